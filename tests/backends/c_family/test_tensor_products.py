"""Products in tensor memory (tcgen05) as they are generated for CUDA: their texts on the shims,
where every access, fence and wait is checked, and machine code for sm_100a.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.base.dots import MMA, MMA_FLOAT8, TCGEN05
from luminal.codegen.c_family.walk import Walk
from luminal.compiler.compile import lower_by_stages
from luminal.expand.expand import expand
from luminal.kernel.knobs import Knobs, as_knobs
from luminal.runtime.together import kernels_together
from luminal.schedule.groups.bounds import bounds
from luminal.schedule.groups.work import work
from tests.backends.c_family.checked import preferring
from tests.backends.c_family.left_products import check, program
from tests.backends.c_family.matrix_products import product
from tests.backends.c_family.offline import skip_without
from tests.backends.groups.matrix_backend import dots_of
from tests.backends.groups.random_matrices import check as random_product
from tests.long_share import long_but
from tests.simt.launching import DeviceFault


@cache
def device() -> CBackend:
    """A device on the shims that prefers tcgen05."""
    return preferring(TCGEN05, (*MMA_FLOAT8, *MMA), boxes=True)


def ring(
    dtype: str, rows: int, blocks: str, deep: int, stages: int, copies: str = "boxes"
) -> Knobs:
    dot = f"tcgen05.{dtype}.m{rows}"
    knobs = {"dot": dot, "blocks": blocks, "deep": deep, "stages": stages, "copies": copies}
    return as_knobs(knobs)


SIZES = 72, 208, 136  # edges on all sides
CASES = {
    "bf16": ("bfloat16", (False, False), ring("bf16", 128, "128x64 by 128x64", 32, 4)),
    "bf16 turned": ("bfloat16", (True, True), ring("bf16", 64, "64x128 by 64x128", 64, 3)),
    "bf16 by lanes": (
        "bfloat16", (False, False), ring("bf16", 128, "128x64 by 128x64", 32, 4, "lanes")),
    "bf16 by two teams": (
        "bfloat16", (False, True), ring("bf16", 64, "64x128 by 64x64", 32, 3)),
    "bf16 by two teams above each other": (
        "bfloat16", (True, False), ring("bf16", 64, "128x64 by 64x64", 32, 3)),
    "f16 in two blocks": ("float16", (False, True), ring("f16", 128, "128x32 by 128x32", 128, 2)),
    "f16 in one block": (
        "float16", (False, True), ring("f16", 128, "128x64 by 128x64", 128, 1, "values")),
    "two blocks of a dot": (
        "bfloat16", (False, False), ring("bf16", 64, "128x128 by 128x128", 32, 3)),
    "tf32": ("float32", (False, True), ring("tf32", 128, "128x64 by 128x64", 32, 3)),
    "tf32 turned on its way": (
        "float32", (True, False), ring("tf32", 64, "64x64 by 64x64", 16, 2, "values")),
    "int8": ("int8", (False, True), ring("s8", 128, "128x64 by 128x64", 64, 3)),
    "e4m3": ("float8_e4m3fn", (False, True), ring("e4m3", 128, "128x64 by 128x64", 64, 3)),
    "e4m3 turned on its way": (
        "float8_e4m3fn", (True, False), ring("e4m3", 64, "64x64 by 64x64", 32, 2, "values")),
    "e5m2": ("float8_e5m2", (False, True), ring("e5m2", 64, "64x128 by 64x128", 128, 3)),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_rings_on_the_shims(name: str) -> None:
    dtype, turned, knobs = CASES[name]
    check(dtype, SIZES, turned, knobs, device())


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 160, 8))
def test_random_products_on_the_shims(first: int) -> None:
    for seed in range(first, first + 8):
        random_product(seed, 140, device())


MEETING = r"before_meeting\(\); __syncthreads\(\); after_meeting\(\);"
WRONG = "Mismatched|differs between"
FAULTY = ring("bf16", 128, "128x128 by 128x128", 32, 4, "lanes")
FAULTS = {
    "copies that are not published": (r"\n *publish_copies\(\);", "", "has not published"),
    "a commit that is missing": (
        r"if \(threadIdx.x % 128 == 0\) commit_to[^;]*;", "", "waits for a counter|not awaited"),
    "a commit to the other barrier": (
        r"ended\[batches % 2\]", "ended[(batches + 1) % 2]", "waits for a counter|has not awaited"),
    "the parity of another phase": (
        r"\(batches - 1\) / 2 & 1", "(batches - 1) / 2 + 1 & 1", "waits for a counter"),
    "results that are not awaited": (
        r"if \(batches > 0\) await_phase[^;]*;", "", "has not awaited"),
    "a stage that is freed early": (
        r"if \(batches > 1\) await_phase[^;]*;", "", f"{WRONG}|has not awaited"),
    "a missing barrier": (
        r"(?<=publish_copies\(\);\n            )" + MEETING, "",
        "no barrier between|nothing has written"),
    "tensor memory that is not released": (
        r"if \(threadIdx.x < 32\) free_columns<128>\(first_column\);", "", "not freed"),
    "half of it released": (r"free_columns<128>", "free_columns<64>", "not allocated together"),
    "too few columns": (r"_columns<128>", "_columns<64>", "not allocated"),
    "released before all have loaded": (
        MEETING + r"(?=\n    if)", "", "no fence since|not allocated"),
    "sums of another column": (
        r"first_column \+ \(int\)0, factor", "first_column + 8, factor", f"{WRONG}|not allocated"),
    "another column": (r"first_column \+ v(\d+) \+", r"first_column + 1 + v\1 +",
                       "not allocated"),
    "lanes of another warp": (r"threadIdx.x / 32 % 4 << 21", "0u", "lanes of another warp"),
    "sums that are not begun": (r"(0x\d+), v\d+\);", r"\1, true);", WRONG),
    "fewer columns in the instruction": (r"0x8210490", "0x8110490", WRONG),
    "factors of the other dtype": (r"0x8210490", "0x8210010", WRONG),
    "a factor that is not turned": (
        r"0x8210490", "0x8200490", f"{WRONG}|nothing has|out of bounds"),
    "another swizzle": (r"2ull << 61", "4ull << 61", "nothing has written|does not begin"),
    "tiles that lie elsewhere": (r", 4096\)(?=, 0x)", ", 2048)", WRONG),
}  # fmt: skip


@pytest.mark.parametrize("fault", long_but(FAULTS, ("a commit that is missing",)))
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some order of threads: products are made at once, or where they are awaited."""
    before, after, words = FAULTS[fault]
    own = Walk.text

    def wrong(self: Walk) -> str:
        text, count = re.subn(before, after, own(self))
        assert count, f"{before} is not there"
        return text

    monkeypatch.setattr(Walk, "text", wrong)
    with pytest.raises((DeviceFault, AssertionError), match=words):
        check("bfloat16", (128, 256, 128), (False, False), FAULTY, device())


N = 2048
MACHINE = {
    "bf16": ("bfloat16", (False, True), "UTCHMMA"),
    "bf16 turned": ("bfloat16", (True, False), "UTCHMMA"),
    "f16": ("float16", (True, True), "UTCHMMA"),
    "tf32": ("float32", (False, True), "UTCHMMA"),
    "int8": ("int8", (False, True), "UTCIMMA"),
    "e4m3": ("float8_e4m3fn", (False, True), "UTCQMMA"),
    "e5m2": ("float8_e5m2", (False, True), "UTCQMMA"),
}


@pytest.mark.parametrize("name", long_but(MACHINE, ("bf16",)))
def test_machine_code_multiplies_in_tensor_memory(name: str) -> None:
    """It is what the model chooses; a step is a batch of products, and one commit."""
    skip_without("cuda")
    dtype, turned, multiplies = MACHINE[name]
    made = Cuda.named("sm_100a")
    (kernel,) = program(made, dtype, (N, N, N), turned, ()).kernels
    code = nvrtc.compile(made.text(kernel), "sm_100a")
    assert code.spilled == code.stack == 0
    assert code.registers <= 128
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    assert counts[multiplies] >= 2
    assert counts["UTCBAR"] == 1
    assert counts["UTMALDG.2D"] > 0
    assert sum(n for key, n in counts.items() if key.startswith("LDTM")) >= 1
    assert not any(key.startswith(("HMMA", "IMMA", "QMMA", "FFMA")) for key in counts)


ELSEWHERE = {"sm_89": "mma.e4m3", "sm_90a": "wgmma.e4m3", "sm_120a": "mma.e4m3"}


@pytest.mark.parametrize("chip", long_but(ELSEWHERE, ("sm_89",)))
def test_floats_of_8_bits_are_multiplied_elsewhere(chip: str) -> None:
    """Where sums of few bits are allowed; with `standard` numerics they are widened first."""
    skip_without("cuda")
    made = Cuda.named(chip)
    (kernel,) = program(made, "float8_e4m3fn", (N, N, N), (False, True), ()).kernels
    assert {dot.family for dot in dots_of(kernel)} == {ELSEWHERE[chip]}
    code = nvrtc.compile(made.text(kernel), chip)
    assert code.spilled == code.stack == 0
    stages = lower_by_stages(product("float8_e4m3fn", N, N, N, (False, True)), made)
    (step,) = stages.partition.steps
    assert not dots_of(made.schedules.place(step).kernel)
    if sass.tool() is not None:
        assert any(key.startswith(("QMMA", "QGMMA")) for key in sass.counts(sass.of(code.code)))


@pytest.mark.long
def test_a_persistent_kernel_leaves_them_out() -> None:
    """A group that allocates may wait for one that waits for it."""
    made = Cuda.named("sm_100a")
    for dot, number in (("tcgen05.bf16.m128", ()), ("mma.bf16", (0,))):
        lowered = program(made, "bfloat16", (N, N, N), (False, True), as_knobs({"dot": dot}))
        lanes = [kernel.lanes for kernel in lowered.kernels]
        assert kernels_together(lowered, lanes, 32) == number


def test_tensor_memory_shares_the_time_of_the_matrix_units() -> None:
    """By the static model of a large product, which prefers it to mma.sync."""
    made, n = Cuda.named("sm_100a"), 8192
    assert made.chip is not None
    shares = {}
    for dot in ("", "mma.bf16"):
        knobs = as_knobs({"dot": dot} if dot else {})
        (kernel,) = program(made, "bfloat16", (n, n, n), (False, False), knobs).kernels
        expanded = expand(kernel, instructions=made.dialect.instructions)
        chunks = int(expanded.chunks.evaluate({}))
        found = bounds(work(expanded, {}), made.chip, chunks, 6 * n * n, made.walkers)
        least = n**3 / (made.chip.pipes.left * made.chip.units * made.chip.hertz)
        shares[dot] = least / max(found.issue, found.shared), least / found.seconds
    assert shares[""][0] > 0.75 > 0.35 > shares["mma.bf16"][0]
    assert shares[""][1] > 0.55 > 2 * shares["mma.bf16"][1]
