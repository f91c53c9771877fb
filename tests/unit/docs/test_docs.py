"""What the documents say stays true."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/coming.md",
        "docs/custom_kernels.md",
        "docs/devices.md",
        "docs/distributed.md",
        "docs/exporting.md",
        pytest.param("docs/first_model.md", marks=pytest.mark.long),
        "docs/generation.md",
        "docs/numerics.md",
        "docs/onnx.md",
        "docs/pytorch.md",
        "docs/rules.md",
        "docs/search.md",
        "docs/torch.md",
        "docs/training.md",
    ],
)
# of PyTorch's own modules, when they are first imported
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated")
def test_the_examples_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # for the files that they write
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL)
    assert blocks
    known = {"__name__": "document"}
    for block in blocks:
        brief = re.sub(r"TimeBudget\([23]\)", "TimeBudget(0.3)", block)  # a search of seconds
        exec(compile(brief, name, "exec"), known)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
def test_the_kernel_in_c_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/custom_kernels.md").read_text("utf-8").partition("## A kernel in C\n")[2]
    (source,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    (tmp_path / "norms.c").write_text(source)
    command = source.partition("norms.c: ")[2].partition("\n")[0]
    subprocess.run(command, shell=True, check=True)
    code = re.findall(r"```python no-run\n(.*?)```", text, re.DOTALL)[0]
    exec(compile(f"import luminal as lm\n{code}", "custom_kernels.md", "exec"), {})
    assert capsys.readouterr().out == "[10.0, 20.0]\n"


def test_the_folder_map_names_every_folder_and_module() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    for path in sorted((ROOT / "src/luminal").iterdir()):
        if path.is_dir() and any(path.glob("*.py")):
            assert f"`{path.name}/`" in text
        elif path.suffix == ".py" and path.name != "__init__.py":
            assert f"`{path.name}`" in text


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        if "://" not in target:
            assert (document.parent / target).exists(), target


NAMED = re.compile(
    r"`((?:[\w.-]+/)*[\w-]+\.py|(?:[\w.-]+/)+|(?:src|tests|bench|examples|docs)/[\w./-]+)`"
)
"""In backticks: Python source, a folder, or any path from the checkout's root."""
NOT_HERE = {"objects/"}
"""Folders that documents name and that lie outside of the checkout."""
PLACEHOLDER = re.compile(r"\b(NAME|ROOM)\b")


@cache
def path_ends() -> set[str]:
    """Every file and folder of the checkout by each end of its path, so that a document which
    says `vectors/nest.py` need not say where `vectors/` lies.
    """
    ends: set[str] = set()
    for top in ("src", "tests", "bench", "examples", "docs", "manual"):
        for path in [ROOT / top, *(ROOT / top).rglob("*")]:
            parts = path.relative_to(ROOT).parts
            ends.update("/".join(parts[start:]) for start in range(len(parts)))
    return ends


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_files_that_exist(document: Path) -> None:
    assert missing_files(document.read_text("utf-8")) == []


def test_docstrings_and_comments_name_files_that_exist() -> None:
    missing = {
        str(path.relative_to(ROOT)): names
        for path in sorted((ROOT / "src").rglob("*.py"))
        if (names := [name for name in missing_files(path.read_text("utf-8")) if ".py" in name])
    }
    assert missing == {}


def test_a_file_that_is_gone_is_found() -> None:
    assert missing_files("see `hlir/no_such_file.py`, `kernel/` and `NAME/driver.py`") == [
        "hlir/no_such_file.py"
    ]


def missing_files(text: str) -> list[str]:
    """The files and folders that a text names in backticks and that the checkout has not."""
    named = [name for name in NAMED.findall(text) if not PLACEHOLDER.search(name)]
    return [n for n in named if n.rstrip("/") not in path_ends() and n not in NOT_HERE]


EXAMPLE = re.compile(
    r"^### [^\n]*: (\d+) files?, (\d+) lines?\n(.*?)^```diff\n(.*?)^```", re.DOTALL | re.M
)


def test_the_examples_of_additions_are_in_the_files() -> None:
    examples = EXAMPLE.findall((ROOT / "docs/architecture.md").read_text("utf-8"))
    assert examples
    for files, lines, _, diff in examples:
        parts = re.findall(r"^\+\+\+ (.*)\n((?:\+(?!\+).*\n)+)", diff, flags=re.M)
        assert len(parts) == int(files)
        added = [(file, line[1:]) for file, body in parts for line in body.splitlines()]
        assert len(added) == int(lines)
        for file, line in added:
            assert line in (ROOT / file).read_text("utf-8"), f"{file} has no line {line!r}"


def modules_of_today() -> list[str]:
    """What docs/changes.md names in the right columns of its tables of modules."""
    text = (ROOT / "docs/changes.md").read_text("utf-8")
    _, _, moved = text.partition(": rooms\n")
    package, modules = "luminal", []
    for line in moved.partition("\n## ")[0].splitlines():
        cells = line.strip("| ").split(" | ")
        if cells[0].startswith("before"):
            package = "luminal.frontend" if "frontend" in cells[0] else "luminal"
        elif len(cells) == 2:
            before, now = (re.findall(r"`([\w.]+)`", cell) for cell in cells)
            if cells[1].startswith("the same in"):
                now = [f"{now[0]}.{name.rpartition('.')[2]}" for name in before]
            modules += [f"{package}.{name.removeprefix('luminal.')}" for name in now]
    return modules


def test_renamed_modules_are_where_the_page_says() -> None:
    modules = modules_of_today()
    assert len(modules) > 50
    for name in modules:
        assert importlib.util.find_spec(name), name
