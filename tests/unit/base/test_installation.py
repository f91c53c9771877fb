"""What errors say of installing extras is the command that does it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import luminal as lm
from luminal.base import installation

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TEXTS = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]


def test_the_name_is_that_of_the_project() -> None:
    assert PROJECT["name"] == installation.NAME
    assert lm.__version__ == installation.VERSION


def test_every_hint_names_an_extra_that_there_is() -> None:
    hints = [
        extra
        for path in TEXTS
        for extra in re.findall(r"installation\.hint\(.([\w-]+)", path.read_text("utf-8"))
    ]
    assert len(hints) >= 14
    assert set(hints) <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize(
    ("system", "machine", "missing"),
    [
        ("linux", "x86_64", set()),
        ("linux", "aarch64", set()),
        ("darwin", "arm64", set()),
        ("darwin", "x86_64", {"llvmlite"}),
        ("win32", "AMD64", set()),
        ("win32", "ARM64", {"llvmlite", "egglog"}),
    ],
)
def test_nothing_is_asked_for_that_has_no_wheel(
    system: str, machine: str, missing: set[str]
) -> None:
    needs = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["search"]]
    here = {"sys_platform": system, "platform_machine": machine}
    requirements = [Requirement(need) for need in needs]
    left_out = {r.name for r in requirements if r.marker and not r.marker.evaluate(here)}
    assert left_out == missing


def test_no_text_says_to_install_what_is_luminal_on_an_index() -> None:
    wrong = re.compile(r"luminal\[|install ['\"]?luminal\b(?!-)")
    assert [str(path) for path in TEXTS if wrong.search(path.read_text("utf-8"))] == []


def test_a_checkout_is_installed_again_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv/bin/python"))
    assert installation.hint("serve") == (
        "install it by `.venv/bin/python -m pip install -e '.[serve]'`"
    )
    monkeypatch.chdir("/")
    assert f"-e '{str(ROOT)[1:]}[serve]'" in installation.hint("serve")


class _Distribution:
    """Of which pip has noted where it came from."""

    def __init__(self, noted: object) -> None:
        self.noted = noted

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.noted is None else json.dumps(self.noted)


@pytest.mark.parametrize(
    ("noted", "requirement"),
    [
        (None, "luminal-compiler[onnx]"),
        (
            {"url": "file:///x/luminal_compiler-0.1.0-py3-none-any.whl", "archive_info": {}},
            "luminal-compiler[onnx] @ file:///x/luminal_compiler-0.1.0-py3-none-any.whl",
        ),
        ({"url": "file:///x", "dir_info": {}}, "luminal-compiler[onnx] @ file:///x"),
        (
            {"url": "https://host/x", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            "luminal-compiler[onnx] @ git+https://host/x@12ab",
        ),
    ],
    ids=["index", "wheel", "folder", "repository"],
)
def test_a_wheel_comes_again_from_where_it_came(
    noted: object, requirement: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "lib/luminal/installation.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: _Distribution(noted))
    assert installation.hint("onnx").endswith(f" -m pip install '{requirement}'`")


@pytest.mark.parametrize("package", ["onnx", "torch"])
def test_packages_that_need_another_say_the_extra(package: str) -> None:
    inner = {"onnx": "luminal.onnx", "torch": "luminal.torch_backend"}[package]
    script = f"import sys; sys.modules[{package!r}] = None; import {inner}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"ModuleNotFoundError: {inner}: " in done.stderr
    assert f"[{package}]'`" in done.stderr


# --- a wheel, elsewhere ---------------------------------------------------------------------------

SCRIPT = """
import luminal as lm

lm.manual_seed(0)
x = lm.randn((3, 4))
y: lm.Tensor = (x @ x.T).softmax(-1)
print(lm.__file__, y.sum().item())
reveal_type(x.sum())
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a wheel of this checkout, its dependencies those of this environment."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip(f"setuptools {setuptools.__version__} is too old for pyproject.toml")
    numpy = importlib.metadata.distribution("numpy")
    packages = Path(str(numpy.locate_file(""))).resolve()
    folder = tmp_path_factory.mktemp("elsewhere")
    source = folder / "source"  # a copy: setuptools writes into it
    source.mkdir()
    for name in ("src", "pyproject.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"):
        _run("cp", "-r", ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    _run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source)
    _run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    python = folder / "env/bin/python"
    [wheel] = folder.glob("luminal_compiler-*.whl")
    _run(*pip, "--python", python, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    [site] = folder.glob("env/lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{packages}\n")
    return folder


def _run(*words: object, cwd: Path | None = None) -> str:
    # In a folder elsewhere nothing of this checkout is on the path.
    env = {name: text for name, text in os.environ.items() if cwd is None or name != "PYTHONPATH"}
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.long
def test_a_wheel_brings_the_command_and_its_model(elsewhere: Path) -> None:
    command = elsewhere / "env/bin/luminal"
    assert _run(command, "--version", cwd=elsewhere) == f"luminal {installation.VERSION}\n"
    words = ("generate", "--prompt", "ROMEO:", "--max-tokens", "8", "--temperature", "0")
    assert _run(command, *words, cwd=elsewhere).startswith("ROMEO:")
    page = next(elsewhere.glob("env/lib/python*/site-packages/luminal/serve/page/index.html"))
    assert page.stat().st_size > 1000


@pytest.mark.long
def test_a_script_runs_from_a_wheel(elsewhere: Path) -> None:
    script = elsewhere / "script.py"
    script.write_text(SCRIPT.replace("reveal_type(x.sum())\n", ""))
    place, total = _run(elsewhere / "env/bin/python", script, cwd=elsewhere).split()
    assert Path(place).is_relative_to(elsewhere / "env")
    assert float(total) == pytest.approx(3)


@pytest.mark.long
def test_a_script_is_type_checked_against_a_wheel(elsewhere: Path) -> None:
    pytest.importorskip("mypy")
    python, script = elsewhere / "env/bin/python", elsewhere / "typed.py"
    script.write_text(SCRIPT)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python)
    shown = _run(*mypy, script, cwd=elsewhere)
    assert 'Revealed type is "luminal.frontend.tensor.Tensor"' in shown


@pytest.mark.long
def test_a_hint_of_a_wheel_names_the_wheel(elsewhere: Path) -> None:
    script = "from luminal.base import installation; print(installation.hint('plot'))"
    shown = _run(elsewhere / "env/bin/python", "-c", script, cwd=elsewhere)
    [wheel] = elsewhere.glob("luminal_compiler-*.whl")
    assert f"'luminal-compiler[plot] @ {wheel.as_uri()}'" in shown


@pytest.mark.long
def test_subpackages_with_extras_are_there_by_their_names() -> None:
    script = "import luminal as lm; lm.onnx.load, lm.luminal_backend, lm.pt2, lm.training"
    _run(sys.executable, "-c", script)
