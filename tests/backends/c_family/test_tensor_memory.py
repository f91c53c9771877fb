"""Products in tensor memory: hand-made texts on the shims, where every access, fence and wait is
checked, and as machine code for sm_100a.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from luminal.backends.cuda import nvrtc, sass
from luminal.base.dots import TCGEN05
from luminal.base.errors import CompileError
from luminal.base.swizzles import SWIZZLES
from luminal.codegen.c_family.tensor_memory import instruction_of
from tests.backends.c_family.offline import skip_without
from tests.backends.c_family.tensor_product import LANES, Product
from tests.long_share import long_but, mostly_long
from tests.simt.compiling import compile
from tests.simt.launching import DeviceFault, launch

DOTS = {dot.name: dot for dot in TCGEN05}


def check(product: Product, steps: int, grid: tuple[int, int] = (1, 1), text: str = "") -> None:
    """Small numbers, so that sums are exact whatever their order."""
    m, n, k = product.dot.m * grid[0], product.dot.n * grid[1], product.deep * steps
    rng, dtype = np.random.default_rng(0), product.dot.a.numpy
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n)))
    memory = (a.T if "a" in product.turned else a, b if "b" in product.turned else b.T)
    factors = [np.frombuffer(bytearray(each.tobytes()), np.uint8) for each in memory]
    sums = product.dot.accumulator.numpy
    bias, result = rng.integers(-9, 10, n).astype(sums), np.zeros((m, n), sums)
    launch(
        compile(text or product.text, "cuda"), "product", grid, (LANES,),
        [*factors, bias, result, np.int32(steps)], dynamic=product.shared_bytes,
    )  # fmt: skip
    whole = a.astype(np.float64) @ b.astype(np.float64) + bias
    np.testing.assert_array_equal(result, np.maximum(whole, 0))


def drawn(seed: int) -> Product:
    rng = Random(seed)
    dot = rng.choice([dot for dot in TCGEN05 if dot.n <= 64])
    can_turn = dot.a.size <= 2 and dot.n * dot.a.size >= 16  # copies are of 16 bytes
    turned = rng.choice(("", "a", "b", "ab")) if can_turn else ""
    return Product(
        dot, turned, (rng.choice([*SWIZZLES]), rng.choice([*SWIZZLES])), rng.randint(2, 4)
    )


@pytest.mark.parametrize("seed", mostly_long(range(40), 1))
def test_products_on_the_shims(seed: int) -> None:
    check(drawn(seed), 1 + seed % 7)


@pytest.mark.long
@pytest.mark.parametrize("dot", TCGEN05, ids=str)
def test_every_row_on_the_shims(dot: object) -> None:
    check(Product(DOTS[str(dot)], stages=2), 2, (2, 2))


SMALL = Product(DOTS["tcgen05.bf16.m128.n64"], "a", (64, 128), stages=3)
TYPE = instruction_of(SMALL.dot, SMALL.turned)
LAST = "await_phase(&made[(steps - 1) % 3], (steps - 1) / 3 & 1);"
FREED = "if (step > 0) await_phase(&made[next % 3], next / 3 - 1 & 1);"
MEETING = "before_meeting();\n    __syncthreads();\n    after_meeting();\n"
FREE = "if (warp == 0) free_columns<64>(sum);"
WRONG = "Mismatched|differs between"
NOT_AWAITED = "which it has not awaited|that it has not awaited"


def instructed(**changed: int) -> tuple[str, str]:
    """Another descriptor of the instruction: fields by (first bit, bits, value)."""
    fields = {"sums": (4, 2), "a": (7, 3), "b": (10, 3), "negated": (13, 1), "turned": (15, 2),
              "columns": (17, 6), "rows": (24, 5)}  # fmt: skip
    value = TYPE
    for name, new in changed.items():
        first, bits = fields[name]
        value = value & ~((1 << bits) - 1 << first) | new << first
    return f"{TYPE:#x}", f"{value:#x}"


FAULTS = {
    "copies that are not published": ("publish_copies();", "", "has not published"),
    "a barrier left out": ("publish_copies();\n        __syncthreads();", "publish_copies();",
                           "nothing has written|no barrier between"),
    "a stage that is filled early": (
        f"{FREED}\n            fetch(next);", f"fetch(next);\n            {FREED}", WRONG),
    "phases that are not awaited in turn": (FREED, "", f"{WRONG}|{NOT_AWAITED}"),
    "results that are not awaited": (LAST, "", NOT_AWAITED),
    "the phase before the last": (LAST, LAST.replace("/ 3 &", "/ 3 + 1 &"), "waits for a counter"),
    "products that are never committed": (
        "commit_to(&made[step % 3]);", "", "waits for a counter"),
    "a barrier of phases that does not begin": (
        "begin_phases(&made[stage]);", ";", "nothing has written"),
    "no fence after the wait": (f"{LAST}\n    after_meeting();", LAST, "no fence since"),
    "loads that are not awaited": (
        f"await_columns_32({', '.join(f'r[{n}]' for n in range(32))});", "", WRONG),
    "lanes of another warp": ("sum + (warp * 32 << 16)", "sum", "lanes of another warp"),
    "a product by each lane of a warp": (
        "if (threadIdx.x == 0) {", "if (threadIdx.x < 32) {", "waits for a counter"),
    "sums that are not begun": ("step > 0);", "true);", WRONG),
    "columns that are freed before they are loaded": (
        f"{LAST}\n    after_meeting();", f"{LAST}\n    after_meeting();\n    {FREE}",
        "not allocated|has not awaited"),
    "columns that are never freed": (FREE, "", "tensor memory that is not freed"),
    "columns that are freed twice": (FREE, FREE + FREE, "not allocated"),
    "columns that are freed in part": (FREE, FREE.replace("64", "32"), "not allocated together"),
    "no meeting before they are freed": (MEETING + "    " + FREE, FREE, "not allocated|no fence"),
    "no fence before they are freed": (
        MEETING + "    " + FREE, MEETING.replace("before_meeting();", "") + FREE,
        "no fence since another warp loaded"),
    "too few columns": ("_columns<64>", "_columns<32>", "not allocated"),
    "columns that are no power of two": ("_columns<64>", "_columns<96>", "power of two"),
    "columns after the end of allocation": (
        "end_allocation();", "end_allocation(); allocate_columns<32>(&place);", "has ended"),
    "no fence after the allocation": (
        "before_meeting();\n    __syncthreads();\n    after_meeting();\n    const unsigned sum",
        "__syncthreads();\n    const unsigned sum", "no fences since another warp allocated"),
    "products that run on at the end": (
        "    if (warp == 0) free", "    if (threadIdx.x == 0) multiply_f16(sum, "
        f"factor_64(memory, 8192), factor_128(memory, 8192), {TYPE:#x}, false);\n"
        "    if (warp == 0) free", "frees tensor memory that a product writes"),
    "another swizzle": ("2ull << 61", "4ull << 61", f"{WRONG}|does not begin"),
    "a swizzle that is not there": ("2ull << 61", "3ull << 61", "swizzle that is not there"),
    "a descriptor as wgmma's": ("1ull << 46 | ", "", "the constant of tcgen05"),
    "a descriptor with other bits": ("1ull << 46 | ", "9ull << 46 | ", "must be zero"),
    "lines that lie apart": ("32ull << 32", "64ull << 32", f"{WRONG}|nothing has written"),
    "copies that lie straight": ("at >> 3 & 64 - 16", "0", WRONG),
    "a factor in the middle of lines": ("(stage + 0,", "(stage + 256,", "does not begin"),
    "a factor of another step": ("(stage + 1024,", "(stage + 2048,", WRONG),
    "tiles that lie elsewhere": (", 4096)", ", 2048)", WRONG),
    "factors of another dtype": (*instructed(a=0, b=0), WRONG),
    "a dtype that the kind does not have": (*instructed(a=2), "factors that its kind"),
    "sums that the kind does not have": (*instructed(sums=2), "sums that its kind"),
    "a factor that is negated": (*instructed(negated=1), "must be zero"),
    "a factor that is not turned": (*instructed(turned=0), f"{WRONG}|nothing has|out of bounds"),
    "fewer rows": (*instructed(rows=4), WRONG),
    "rows that are not there": (*instructed(rows=6), "rows and columns that are not there"),
    "more columns": (*instructed(columns=16), "not allocated|nothing has|out of bounds"),
    "columns that are not there": (*instructed(columns=7), "rows and columns that are not there"),
}  # fmt: skip


@pytest.mark.long
def test_the_product_of_the_faults() -> None:
    check(SMALL, 4)


@pytest.mark.parametrize(
    "fault", long_but(FAULTS, ("lanes of another warp", "a stage that is filled early"))
)
def test_faults_are_found(fault: str) -> None:
    """By some order of threads: products are made at once, or where they are awaited."""
    before, after, words = FAULTS[fault]
    text = SMALL.text
    assert before in text
    with pytest.raises((DeviceFault, AssertionError), match=words):
        check(SMALL, 4, text=text.replace(before, after))


def test_turned_factors_of_32_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="swizzle of 32 bytes"):
        instruction_of(DOTS["tcgen05.tf32.m128.n64"], "b")


# What the PTX ISA's table says of three instructions, field by field.
DESCRIPTORS = {
    ("tcgen05.bf16.m128.n256", ""): 1 << 4 | 1 << 7 | 1 << 10 | 32 << 17 | 8 << 24,
    ("tcgen05.f16.m64.n8", "ab"): 1 << 4 | 1 << 15 | 1 << 16 | 1 << 17 | 4 << 24,
    ("tcgen05.tf32.m128.n128", ""): 1 << 4 | 2 << 7 | 2 << 10 | 16 << 17 | 8 << 24,
    ("tcgen05.s8.m64.n32", "b"): 2 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | 4 << 17 | 4 << 24,
}


def test_instructions_are_described_as_the_maker_says() -> None:
    for (name, turned), described in DESCRIPTORS.items():
        assert instruction_of(DOTS[name], turned) == described


MACHINE = {
    "bf16": (Product(DOTS["tcgen05.bf16.m128.n256"], "b"), "UTCHMMA"),
    "f16": (Product(DOTS["tcgen05.f16.m64.n128"], "ab", stages=2), "UTCHMMA"),
    "tf32": (Product(DOTS["tcgen05.tf32.m128.n128"]), "UTCHMMA"),
    "s8": (Product(DOTS["tcgen05.s8.m128.n64"], stages=3), "UTCIMMA"),
}


@pytest.mark.parametrize("name", long_but(MACHINE, ("bf16",)))
def test_machine_code_multiplies_in_tensor_memory(name: str) -> None:
    """A stage is as many products as it has steps of the dot, and a commit."""
    skip_without("cuda")
    product, multiplies = MACHINE[name]
    code = nvrtc.compile(product.text, "sm_100a")
    assert code.spilled == code.stack == 0
    assert code.registers <= 128
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    assert counts[multiplies] == product.deep // product.dot.k == 4
    assert counts["UTCBAR"] == 1
    assert sum(n for name, n in counts.items() if name.startswith("LDTM")) >= 1
    assert counts["LDGSTS.E.BYPASS.128"] >= 2
    assert not [name for name in counts if name.startswith(("HMMA", "IMMA", "FFMA"))]


@pytest.mark.parametrize("chip", mostly_long(["sm_90a", "sm_120a", "sm_120", "sm_80"], 1))
def test_other_chips_refuse_them(chip: str) -> None:
    """RTX Blackwell (sm_120a) has no tensor memory either."""
    skip_without("cuda")
    with pytest.raises(CompileError, match="tcgen05"):
        nvrtc.compile(MACHINE["tf32"][0].text, chip)


SCALED = """
extern "C" __global__ void product(float *c, const unsigned *words)
{{
    float c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3];
    asm volatile("mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale.scale_vec::{scales}"
        ".f32.{factor}.{factor}.f32.{scale} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, "
        "{{%0, %1, %2, %3}}, %10, {{0, 0}}, %11, {{0, 0}};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(words[4]),
          "r"(words[5]), "r"(words[6]), "r"(words[7]));
    c[0] = c0, c[1] = c1, c[2] = c2, c[3] = c3;
}}
"""
FORMATS = {
    "QMMA.SF.16832": {"kind": "mxf8f6f4", "k": 32, "scales": "1X", "factor": "e4m3",
                      "scale": "ue8m0"},
    "OMMA.SF.16864.F32.E2M1.E2M1.E8": {"kind": "mxf4", "k": 64, "scales": "2X", "factor": "e2m1",
                                       "scale": "ue8m0"},
    "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3": {"kind": "mxf4nvf4", "k": 64, "scales": "4X",
                                          "factor": "e2m1", "scale": "ue4m3"},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("instruction", FORMATS)
def test_factors_with_scales_are_for_lanes_of_sm_120a_alone(instruction: str) -> None:
    """What RTX Blackwell has instead of tensor memory; B200's are tcgen05's alone."""
    skip_without("cuda")
    text = SCALED.format(**FORMATS[instruction])
    for chip in ("sm_90a", "sm_100a", "sm_120"):
        with pytest.raises(CompileError, match="block scale"):
            nvrtc.compile(text, chip)
    code = nvrtc.compile(text, "sm_120a")
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    assert sum(n for name, n in counts.items() if name.startswith(instruction)) == 1
