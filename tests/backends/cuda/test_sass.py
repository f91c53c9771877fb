"""Machine code of default kernels has the instructions that they are fast by: wide accesses, matrix
instructions with their loads, and copies without registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc, sass
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from tests.backends.c_family.accesses import LARGE, SQUARE, of
from tests.backends.cuda.present import needs_nvrtc
from tests.long_share import mostly_long

pytestmark = [
    needs_nvrtc,
    pytest.mark.skipif(
        sass.tool() is None,
        reason="nvdisasm is not installed (extra cuda, the wheel nvidia-cuda-nvdisasm)",
    ),
]

WIDE_LOADS, WIDE_STORES = "LDG.E.128", "STG.E.128"
MOVES = {WIDE_LOADS: 1, WIDE_STORES: 1}
PRODUCT = {"HMMA": 16, "LDSM": 4, "LDGSTS.E.BYPASS.128": 4}
BY_WARP_GROUPS = {"HGMMA.64": 4, "UTMALDG.2D": 2, "SYNCS.PHASECHK.TRANS64.TRYWAIT": 1}
KINDS: Mapping[str, Mapping[str, int]] = {
    "softmax": MOVES,
    "product of bf16": PRODUCT,
    "product of f16": PRODUCT,
    "gelu": MOVES,
    "layer norm": MOVES,
    "cumulative sum": MOVES,
    "sum of all": {WIDE_LOADS: 4},
    "sum of columns": {WIDE_LOADS: 4},
    "sum of rows": {WIDE_LOADS: 4},
    "one row": {WIDE_LOADS: 4},
    "one row of bf16": {WIDE_LOADS: 4},
}
"""By kind of kernel the least counts of instructions, by how their names begin."""
PROGRAMS: Mapping[str, Callable[[], Graph]] = {
    **LARGE,
    "product of f16": lambda: of(lambda x, y: x @ y, SQUARE, SQUARE, dtype="f16"),
}
NEVER = "LDL", "STL"  # a lane's own memory: registers that were spilled
NARROW_LOADS = "LDG.E", "LDG.E.U16", "LDG.E.U8", "LDG.E.S8", "LDG.E.S16"


def backend(chip: str) -> CBackend:
    made = registry.compiling(f"cuda:{chip}")
    assert isinstance(made, CBackend)
    return made


def counted(program: str, chip: str) -> Counter[str]:
    """The instructions of all kernels of a program, which are for this chip."""
    made = backend(chip)
    total = Counter[str]()
    for kernel in lower_to_program(PROGRAMS[program](), made).kernels:
        total += sass.counts(made.renderers["sass"](kernel))
    return total


def beginning(counts: Counter[str], name: str) -> int:
    return sum(count for each, count in counts.items() if each.startswith(name))


def missing(counts: Counter[str], wanted: Mapping[str, int]) -> list[str]:
    """What a kernel has too little of, and what it should not have."""
    few = [
        f"{beginning(counts, name)} {name}, at least {least}"
        for name, least in wanted.items()
        if beginning(counts, name) < least
    ]
    found = {name: beginning(counts, name) for name in NEVER}
    return few + [f"{count} {name}, none" for name, count in found.items() if count]


@pytest.mark.parametrize("chip", mostly_long(["sm_90a", "sm_80", "sm_100a"], 1))
@pytest.mark.parametrize("program", mostly_long(KINDS, 2))
def test_the_instructions_of_a_kind(program: str, chip: str) -> None:
    counts, wanted = counted(program, chip), KINDS[program]
    wanted = BY_WARP_GROUPS if wanted is PRODUCT and chip == "sm_90a" else wanted
    wrong = missing(counts, wanted)
    assert not wrong, f"{program} for {chip}: {wrong} of {dict(counts)}"
    if KINDS[program] is MOVES:
        assert not any(counts[name] for name in NARROW_LOADS), dict(counts)


def test_the_model_counts_what_is_issued() -> None:
    """Of a kernel whose instructions are nearly all in one loop, over chunks: to a quarter."""
    made = backend("sm_90a")
    (kernel,) = lower_to_program(PROGRAMS["gelu"](), made).kernels
    counts = counted("gelu", "sm_90a")
    counts["NOP"] = 0
    work, _ = made.counted(kernel, {})
    issued = sum(work.issued.values()) / work.lanes
    assert 0.75 < issued / counts.total() < 1.33


def test_what_is_missing_is_found() -> None:
    counts = Counter({"LDG.E.128": 3, "STG.E": 1, "LDL.64": 2})
    assert missing(counts, {WIDE_LOADS: 4, WIDE_STORES: 1, "HMMA": 0}) == [
        "3 LDG.E.128, at least 4", "0 STG.E.128, at least 1", "2 LDL, none",
    ]  # fmt: skip


def test_instructions_are_counted() -> None:
    text = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @P0  LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0030*/                   LDG.E.128 R8, desc[UR4][R2.64+0x10] ;
    """
    assert sass.counts(text) == {"LDC": 1, "LDG.E.128": 2, "UIADD3": 1}


@pytest.mark.parametrize("chip", ["sm_90a", "sm_100a"])
def test_weights_are_asked_for_before_a_kernel_waits(chip: str) -> None:
    """And nothing but integers is loaded before it has."""
    code = backend(chip).renderers["sass"](
        lower_to_program(row_by_matrix(), backend(chip)).kernels[0]
    )
    names = "CCTL.E.PF2", "ACQBULK", "LDG", "LDL", "STL"
    lines = code.splitlines()
    order = [name for line in lines for name in names if f" {name}" in line]
    wait = order.index("ACQBULK")
    assert wait == order.count("CCTL.E.PF2") >= 4
    assert {*order[wait + 1 :]} == {"LDG"}


def row_by_matrix() -> Graph:
    cx = lm.Graph()
    x, w = cx.tensor((1, 2048), name="x"), cx.tensor((2048, 2048), lm.bfloat16, name="w")
    (x.cast(lm.bfloat16) @ w.mT).output("y")
    return cx.graph()


@pytest.mark.parametrize(("chip", "waits"), [("sm_80", 0), ("sm_90a", 1)])
def test_a_kernel_reads_its_integers_and_waits_for_the_launches_before(
    chip: str, waits: int
) -> None:
    cx = lm.Graph()
    cx.tensor((cx.dim("s", 1, 4096), 512), name="x").softmax(-1).output("y")
    backend = registry.find(f"cuda:{chip}")
    assert isinstance(backend, CBackend)
    (kernel,) = lower_to_program(cx.graph(), backend).kernels
    code = sass.of(nvrtc.compile(backend.text(kernel), chip).code)
    lines = [line for line in code.splitlines() if " LDG" in line or " ACQBULK" in line]
    found = [n for n, line in enumerate(lines) if "ACQBULK" in line]
    assert len(found) == waits == ("PREEXIT" in code)
    assert all(0 < n <= 3 for n in found)  # three integers are read before, and nothing else
