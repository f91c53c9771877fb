"""What the documents say stays true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/custom_kernels.md",
        "docs/devices.md",
        "docs/generation.md",
        "docs/onnx.md",
        "docs/pytorch.md",
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
        exec(compile(block, name, "exec"), known)


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
