"""What decides a kernel's code: derived from the imports, as Python's own parser sees them."""

from __future__ import annotations

import ast
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from luminal.backends import registry
from luminal.backends.cpu import compiler, kernels, target
from luminal.runtime import source_hash
from tests.long_share import long_but, mostly_long

ROOT = Path(source_hash.ROOT)
CODE = registry.compiling("cpu").makers
MODULES = sorted(
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if path.name != "__init__.py"
)


@functools.cache
def imports(module: str) -> set[str]:
    """What a module imports when it runs, by its syntax tree."""
    found = set()
    for node in _run(ast.parse(_path(module).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{module}: relative imports are not followed"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if _path(inner).exists() else node.module)
    return {name for name in found if name.split(".")[0] == "luminal"}


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree, those for type checkers only left out."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        children: list[ast.AST] = [*node.orelse]
    else:
        children = [*ast.iter_child_nodes(node)]
    yield node
    for child in children:
        if not isinstance(child, ast.expr):  # imports are statements
            yield from _run(child)


def _path(module: str) -> Path:
    place = ROOT.parent.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@pytest.mark.parametrize("part", mostly_long(range(8), 1))
def test_imports_are_those_of_the_syntax_tree(part: int) -> None:
    for module in MODULES[part::8]:
        assert set(source_hash._imported(_path(module).read_text())) == imports(module), module


def test_the_sources_of_code_are_all_that_its_makers_import() -> None:
    expected: set[str] = set()
    waiting = [*CODE]
    while waiting:
        name = waiting.pop()
        if name not in expected:
            expected.add(name)
            waiting += imports(name)
    found = source_hash.closure(*CODE)
    assert found.keys() == expected
    for name in (
        "shape.expression",
        "shape.prove",
        "base.dtypes",
        "kernel.tile_ir",
        "expand.pointwise",
    ):
        assert f"luminal.{name}" in found
    # What only writes the kernel, or only runs it, is in the kernel's text or in no code at all.
    for name in ("kernel.placement", "base.config", "runtime.object_cache", "backends.cpu.team"):
        assert f"luminal.{name}" not in found


DECIDES = ["shape/bounds.py", "base/dtypes.py", "expand/pointwise.py", "kernel/scratch.py"]
DECIDES_NOT = [
    "nn/linear.py",
    "kernel/placement.py",
    "base/config.py",
    "loaders/gguf.py",
    "__init__.py",
]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources that the hash is taken from."""
    place = tmp_path / "luminal"
    shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(source_hash, "ROOT", str(place))
    _forget()
    yield place
    _forget()


def _forget() -> None:
    source_hash._file.cache_clear()
    source_hash.source_hash.cache_clear()
    source_hash.package_stamp.cache_clear()


@pytest.mark.parametrize("file", long_but(DECIDES + DECIDES_NOT, (*DECIDES[::2], *DECIDES_NOT[:1])))
def test_a_changed_source_makes_another_key(copied: Path, file: str) -> None:
    native = target.current()
    before = compiler.cache_key("kernel", native, kernels.RENDERER)
    with (copied / file).open("a") as source:
        source.write("\nCHANGED = True\n")
    _forget()
    assert (compiler.cache_key("kernel", native, kernels.RENDERER) != before) is (file in DECIDES)


def test_a_search_and_a_kernel_are_made_by_the_same() -> None:
    assert (kernels.RENDERER, compiler.COMPILER) == CODE


def test_a_name_of_a_package_is_the_packages_file(copied: Path) -> None:
    (copied / "base/dtypes.py").write_text(
        "from luminal.nn import Linear, linear\nimport luminal.trace\n"
    )
    (copied / "trace.py").write_text("")
    found = source_hash.closure("luminal.base.dtypes")
    assert {"luminal.nn", "luminal.nn.linear", "luminal.trace"} <= found.keys()
