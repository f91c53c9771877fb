"""docs/tour.md shows what the compiler makes today; `pytest --update-golden` writes it anew.

A block of the tour says in its first line what it holds:

    ```text dump=selection                      a whole stage
    ```text dump=tile kernel=k1                 one kernel of it
    ```text dump=asm kernel=k0 from=vfmadd lines=4    that many lines from the first with this text
    ```python file=examples/softmax_of_matmul.py      a file
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from luminal.backends import registry
from luminal.backends.cpu.backend import Cpu
from luminal.backends.cpu.target import X86_64, CpuTarget
from luminal.compiler import dump

ROOT = Path(__file__).resolve().parents[3]
TOUR = ROOT / "docs/tour.md"
SOURCE = ROOT / "src/luminal"
MOST_LINES = 7000
EXAMPLE = ROOT / "examples/softmax_of_matmul.py"
BLOCK = re.compile(r"(?<=\n)```(\w+ (?:dump|file)=[^\n]*)\n(.*?)(?<=\n)```\n", re.DOTALL)


@cache
def stages() -> dump.Dump:
    """The example for a fixed machine, so that the tour is the same everywhere."""
    level = X86_64.levels["avx512"]
    target = CpuTarget(
        name="avx512",
        triple="x86_64-unknown-linux-gnu",
        cpu=level.cpu,
        features=level.features,
        llvm_features="",
        vector_bits=level.vector_bits,
        registers=level.registers,
        fma=True,
        dots=(),
        cores=2,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        l3_bytes=16 << 20,
    )
    spec = importlib.util.spec_from_file_location("example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dump.Dump(module.graph().graph(), Cpu(target))


def content(head: str) -> str:
    """What belongs into the block of this first line."""
    words = dict(word.split("=", 1) for word in shlex.split(head)[1:])
    if "file" in words:
        return (ROOT / words["file"]).read_text("utf-8")
    text = stages().text(words["dump"]) + "\n"
    if "kernel" in words:
        kernels = re.split(r"^(k\d+):\n", text, flags=re.MULTILINE)
        text = kernels[kernels.index(words["kernel"]) + 1].rstrip("\n") + "\n"
    if "from" in words:
        lines = text.splitlines(keepends=True)
        start = next((k for k, line in enumerate(lines) if words["from"] in line), None)
        assert start is not None, f"docs/tour.md: {head}: nothing starts with {words['from']!r}"
        text = "".join(lines[start : start + int(words["lines"])])
    return text.expandtabs(4)


def test_the_tour_is_true(update_golden: bool) -> None:
    tour = TOUR.read_text("utf-8")
    again = BLOCK.sub(lambda block: f"```{block[1]}\n{content(block[1])}```\n", tour)
    if update_golden:
        TOUR.write_text(again, "utf-8")
    elif again != tour:
        pytest.fail(
            "docs/tour.md is out of date: run `pytest tests/unit/docs/test_tour.py "
            "--update-golden`, and read the difference"
        )


def test_the_tour_passes_every_stage() -> None:
    shown = set(re.findall(r"dump=([\w.]+)", TOUR.read_text("utf-8")))
    assert {*dump.STAGES, *registry.compiling("cpu").renderers} <= shown


def test_the_core_can_be_read_in_an_afternoon() -> None:
    core = core_files()
    assert len(core) >= 25
    lines = {file: len((SOURCE / file).read_text("utf-8").splitlines()) for file in core}
    assert sum(lines.values()) <= MOST_LINES, (
        f"the core has {sum(lines.values())} lines, more than {MOST_LINES}; move what is no part "
        f"of the idea to another file: {lines}"
    )


def core_files() -> list[str]:
    """The first column of the tables under the heading "The core"."""
    core = TOUR.read_text("utf-8").split("\n## The core\n")[1]
    return re.findall(r"^\| `([\w/]+\.py)` \|", core, flags=re.MULTILINE)
