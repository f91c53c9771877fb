"""From the graph to the launch list no code says what it compiles for, and memory is Buffers.

A comment of its own line may: why a thing is so is often a machine's or a compiler's doing.

The contract "neutral" in pyproject.toml says the same of imports.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from luminal.runtime import source_hash

ROOT = Path(source_hash.ROOT)
MACHINES = re.compile(r"avx|llvm|x86|\bsse|\bneon\b|\bptx\b", re.IGNORECASE)
# What is thought of a CPU alone: such facts are a backend's costs and schedules.
POLICY = re.compile(
    r"\b(threads?|cores?|l[123]_bytes|vector_bits|vector_lanes)\b|cache.lines?\b|-level cache",
    re.IGNORECASE,
)
DECIDES = re.compile(
    r"(hlir|rolling|algebra|rules|egraph|selection|program|kernel|expand|compiler)\b"
)
HOST_MEMORY = re.compile(r"\baligned_empty\b|__array_interface__|\.ctypes\b|\bmemmove\b")
EDGES = (  # where users' arrays and files come in and results go out
    "memory/data.py",
    "memory/dlpack_device.py",
    "memory/arrays.py",
    "memory/parameter.py",
    "memory/state.py",
    "runtime/arrays.py",
    "runtime/device.py",
    "runtime/output_pool.py",
    "search/worker.py",
)


def neutral() -> list[Path]:
    """The modules that the contract names."""
    contracts = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]
    (names,) = (c["source_modules"] for c in contracts["contracts"] if c["id"] == "neutral")
    places = [ROOT / name.removeprefix("luminal.").replace(".", "/") for name in names]
    return sorted(
        path
        for place in places
        for path in (place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")])
    )


def faults(name: str, text: str) -> list[str]:
    """Lines that name a machine or think of one kind, or memory that only the host has."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        names_one = MACHINES.search(line) or (DECIDES.match(name) and POLICY.search(line))
        if names_one or (HOST_MEMORY.search(line) and name not in EDGES):
            found.append(f"{name}:{number}: {line.strip()}")
    return found


def test_nothing_neutral_names_a_machine() -> None:
    modules = neutral()
    assert {path.parent.name for path in modules} >= {"selection", "kernel", "search", "compiler"}
    found = [f for path in modules for f in faults(str(path.relative_to(ROOT)), path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("kernel/placement.py", "lanes = 16  # of AVX-512"),
        ("selection/fast.py", "from luminal.codegen.llvm import render"),
        ("program/buffers.py", "array = aligned_empty(shape, dtype)"),
        ("search/space.py", "start = array.ctypes.data"),
        ("selection/layouts.py", "return size > target.l2_bytes"),
        ("kernel/rows.py", "chunks = 4 * target.cores"),
        ("program/memory_plan.py", "size = 64  # rounded up to whole cache lines"),
        ("selection/fast.py", "MOST = 1 << 18  # stays in the second-level cache"),
    ],
)
def test_faults_are_found(name: str, line: str) -> None:
    assert faults(name, f"first\n{line}\n") == [f"{name}:2: {line}"]
    assert not faults(name, f"a register tile of vectors\n# {line}\n")


def test_only_what_decides_must_not_think_of_threads() -> None:
    line = "one thread at a time\n"
    assert faults("selection/fast.py", line)
    assert not faults("runtime/driver.py", line)


def test_edges_hold_arrays() -> None:
    for name in EDGES:
        assert HOST_MEMORY.search((ROOT / name).read_text()), f"{name} is no edge any more"


def named_by(dialect: str, modules: Iterable[Path]) -> set[str]:
    """The modules that name a dialect, but for its own."""
    word = re.compile(rf"(?<![a-z]){dialect}(?![a-z])", re.IGNORECASE)
    own = f"backends/{dialect}/", f"codegen/c_family/{dialect}.py"
    names = {str(path.relative_to(ROOT)): path.read_text() for path in modules}
    return {n for n, text in names.items() if not n.startswith(own) and word.search(text)}


@pytest.mark.parametrize("dialect", ["metal", "hip"])
def test_a_dialect_is_its_own_files_and_a_row(dialect: str) -> None:
    """Adding one touches nothing else."""
    assert named_by(dialect, ROOT.rglob("*.py")) == {"backends/registry.py"}
