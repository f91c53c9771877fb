"""Products by warp groups: hand-made texts on the shims, where every access and wait is checked,
and as machine code for sm_90a.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from luminal.backends.cuda import nvrtc, sass
from luminal.base.dots import WGMMA
from luminal.base.errors import CompileError
from luminal.base.swizzles import SWIZZLES
from tests.backends.c_family.offline import skip_without
from tests.backends.c_family.warpgroup_product import Product
from tests.long_share import long_but, mostly_long
from tests.simt.compiling import compile
from tests.simt.launching import DeviceFault, launch

DOTS = {dot.name: dot for dot in WGMMA}


def check(product: Product, steps: int, grid: tuple[int, int] = (1, 1), text: str = "") -> None:
    """Small numbers, so that sums are exact whatever their order."""
    m, n, k = product.rows * grid[0], product.dot.n * grid[1], product.deep * steps
    rng, dtype = np.random.default_rng(0), product.dot.a.numpy
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n)))
    memory = (a.T if "a" in product.turned else a, b if "b" in product.turned else b.T)
    factors = [np.frombuffer(bytearray(each.tobytes()), np.uint8) for each in memory]
    result = np.zeros((m, n), product.dot.accumulator.numpy)
    launch(
        compile(text or product.text, "cuda"), "product", grid, (product.lanes,),
        [*factors, result, np.int32(steps)], dynamic=product.shared_bytes,
    )  # fmt: skip
    np.testing.assert_array_equal(result, a.astype(np.float64) @ b.astype(np.float64))


def drawn(seed: int) -> Product:
    rng = Random(seed)
    dot = rng.choice([dot for dot in WGMMA if dot.n <= 64])
    turned = rng.choice(("", "a", "b", "ab")) if dot.a.size == 2 else ""
    widths = rng.choice([*SWIZZLES]), rng.choice([*SWIZZLES])
    running = rng.randint(0, 2)
    groups, stages = rng.randint(1, 2), running + rng.randint(2, 3)
    held = rng.random() < 0.4
    turned = turned.removeprefix("a") if held else turned
    return Product(dot, turned, widths, stages, groups, running, held)


@pytest.mark.parametrize("seed", mostly_long(range(40), 2))
def test_products_on_the_shims(seed: int) -> None:
    check(drawn(seed), 1 + seed % 6)


@pytest.mark.long
@pytest.mark.parametrize("dot", WGMMA, ids=str)
def test_every_row_on_the_shims(dot: object) -> None:
    check(Product(DOTS[str(dot)]), 2, (2, 2))
    check(Product(DOTS[str(dot)], held=True), 2, (2, 2))


SMALL = Product(DOTS["wgmma.bf16.n16"], "a", (64, 128), stages=3)
FAULTS = {
    "copies that are not published": ("publish_copies();", ""),
    "products without a fence": ("begin_products();", ""),
    "products that are never committed": ("commit_products();", ""),
    "results that are not awaited": ("await_products<0>();", ""),
    "a stage that is freed early": ("await_products<1>();", "await_products<2>();"),
    "a missing barrier": ("__syncthreads();", ""),
    "copies that are awaited late": ("await_copies<1 - 1>();", "await_copies<1>();"),
    "another swizzle": ("1ull << 62", "2ull << 62"),
    "copies that lie straight": ("at >> 3 & 64 - 16", "0"),
    "a descriptor of another step": ("(stage + 1024 +", "(stage + 2048 +"),
    "tiles that lie elsewhere": ("group * 8192, 4096)", "group * 8192, 2048)"),
}


def test_the_product_of_the_faults() -> None:
    check(SMALL, 4)


@pytest.mark.parametrize("fault", long_but(FAULTS, ("a stage that is freed early",)))
def test_faults_are_found(fault: str) -> None:
    """By some order of threads: products are made at once, or where they are awaited."""
    before, after = FAULTS[fault]
    text = SMALL.text
    assert before in text
    wrong = text.replace(before, after)
    with pytest.raises((DeviceFault, AssertionError)):
        check(SMALL, 4, text=wrong)


MACHINE = {
    "bf16": Product(DOTS["wgmma.bf16.n256"], "b", groups=2),
    "bf16 without products that run on": Product(DOTS["wgmma.bf16.n64"], stages=2, running=0),
    "bf16 from registers": Product(DOTS["wgmma.bf16.n256"], "b", groups=2, held=True),
    "f16": Product(DOTS["wgmma.f16.n128"], "ab"),
    "tf32": Product(DOTS["wgmma.tf32.n128"]),
}


@pytest.mark.parametrize("name", long_but(MACHINE, ("bf16",)))
def test_machine_code_multiplies_by_warp_groups(name: str) -> None:
    """A stage is one batch: a fence and as many products as it has steps of the dot."""
    skip_without("cuda")
    product = MACHINE[name]
    code = nvrtc.compile(product.text, "sm_90a")
    assert code.spilled == code.stack == 0
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    counts = sass.counts(sass.of(code.code))
    assert counts["HGMMA.64"] == product.deep // product.dot.k == 4
    assert counts["WARPGROUP.ARRIVE"] == 1, "products are serialized"
    assert counts["LDGSTS.E.BYPASS.128"] >= 2
    assert counts["FENCE.VIEW.ASYNC.S"] == 1


@pytest.mark.parametrize("chip", mostly_long(["sm_100a", "sm_80"], 1))
def test_other_chips_refuse_them(chip: str) -> None:
    skip_without("cuda")
    with pytest.raises(CompileError, match="wgmma"):
        nvrtc.compile(MACHINE["tf32"].text, chip)
