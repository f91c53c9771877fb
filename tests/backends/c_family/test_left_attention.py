"""Attention by warp groups (wgmma), as CUDA has it: its texts on the shims, where every access and
wait is checked, against the reference and PyTorch; and machine code for sm_90a.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.backends.c_backend import CBackend
from luminal.backends.cuda import nvrtc, sass
from luminal.backends.cuda.backend import Cuda
from luminal.base.dots import WGMMA
from luminal.base.dtypes import float32
from luminal.base.numerics import Numerics
from luminal.codegen.c_family.walk import Walk
from luminal.compiler.compile import lower_to_program
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from luminal.kernel.cascade_fragments import Fragments
from luminal.kernel.tile_ir import Retile
from luminal.selection import spell
from tests.backends.c_family.checked import preferring
from tests.backends.c_family.left_attention import MASKS, by_warp_groups
from tests.backends.c_family.offline import skip_without
from tests.backends.cpu.schedule.cascade_cases import CASES, case
from tests.backends.on_device import check_case, compiled_on
from tests.long_share import long_but, mostly_long
from tests.simt.launching import DeviceFault

OTHERS = ("given scores", "two axes of keys", "where greatest")
"""What is no product by a dot, reduces two axes, or has positions to compare."""


def device() -> CBackend:
    """A device on the shims that prefers wgmma."""
    return preferring(WGMMA)


@pytest.mark.parametrize("name", long_but([name for name in CASES if name not in OTHERS], ()))
def test_attention_on_the_shims(name: str) -> None:
    run = case(name, "bfloat16", widened=True)
    check_case(compiled_on(device(), run.graph), run)


@pytest.mark.parametrize("name", ["causal", "grouped"])
def test_attention_is_by_warp_groups(name: str) -> None:
    run = case(name, "bfloat16", widened=True)
    (kernel,) = lower_to_program(run.graph, device()).kernels
    assert by_warp_groups(kernel)


# --- drawn cases ----------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[Any, dict[str, Any], np.ndarray[Any, Any], str]:
    """A graph of attention, its inputs, float64's result, and what was drawn: lengths that are no
    multiple of tiles, one row, heads that share keys, queries that are behind `before` others.
    """
    rng = np.random.default_rng(seed)
    dtype = ("bfloat16", "float16")[seed % 2]
    heads, shared = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    queries, keys = (int(rng.integers(33, 150)), int(rng.integers(1, 200)))
    queries = 1 if seed % 7 == 6 else queries
    width, further = (int(rng.choice((8, 24, 40, 64, 128))) for _ in range(2))
    before = max(0, keys - queries)
    mask = [*MASKS][seed % len(MASKS)]
    shapes = {
        "q": (heads, shared, queries, width), "k": (heads, 1, keys, width),
        "v": (heads, 1, keys, further),
    }  # fmt: skip
    cx = lm.Graph()
    tensors = {n: cx.tensor(shape, name=n, dtype=dtype) for n, shape in shapes.items()}
    q, k, v = (x.cast("float32") for x in tensors.values())
    scores = q @ k.mT * 0.3
    at = cx.arange(queries).reshape(queries, 1), cx.arange(keys).reshape(1, keys)
    seen = MASKS[mask](*at, before)
    if seen is not None:
        scores = lm.where(seen, scores, -np.inf)
    (scores.softmax(-1) @ v).cast(dtype).output("y")
    storage = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[dtype]
    inputs = {n: rng.standard_normal(shape).astype(storage) for n, shape in shapes.items()}
    text = f"{shapes} {dtype} {mask}"
    return cx.graph(), inputs, by_pytorch(inputs, seen_by(mask, inputs)), text


def seen_by(text: str, inputs: dict[str, Any]) -> Any:
    """Which keys are seen by the mask that a text names last."""
    mask = next(name for name in MASKS if text.endswith(name))
    queries, keys = (inputs[name].shape[-2] for name in "qk")
    i, j = np.arange(queries)[:, None], np.arange(keys)[None, :]
    return MASKS[mask](i, j, max(0, keys - queries))


def by_pytorch(inputs: dict[str, Any], seen: Any) -> Any:
    """PyTorch's attention in float64; rows that see nothing are NaN."""
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x.astype(np.float64)) for x in inputs.values())
    mask = None if seen is None else torch.from_numpy(seen)
    k, v = (x.expand(*q.shape[:2], *x.shape[2:]) for x in (k, v))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.3).numpy()
    if seen is not None:
        y[..., ~seen.any(1), :] = np.nan
    return y


@pytest.mark.parametrize("seed", mostly_long(range(60), 0))
def test_drawn_attention_on_the_shims(seed: int) -> None:
    graph, inputs, expected, text = drawn(seed)
    found = compiled_on(device(), graph)(inputs)["y"].astype(np.float64)
    # Results of 16 bits are rounded once; what was computed errs a hundred times less than that.
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[
        "bfloat16" if "bfloat16" in text else "float16"
    ]
    least = unit * 2.0**-4  # of sums that cancel
    np.testing.assert_allclose(found, expected, rtol=1.05 * unit, atol=least, err_msg=text)


@pytest.mark.parametrize("seed", mostly_long(range(20), 0))
def test_drawn_relaxed_attention_on_the_shims(seed: int) -> None:
    """Each exponential is rounded to 16 bits once, by half a unit, and so is the result."""
    graph, inputs, expected, text = drawn(seed)
    found = compiled_on(device(), graph, Numerics.RELAXED)(inputs)["y"].astype(np.float64)
    half = 2.0**-9 if "bfloat16" in text else 2.0**-12
    sizes = by_pytorch({**inputs, "v": abs(inputs["v"])}, seen_by(text, inputs))
    most = 1.1 * half * (sizes + abs(expected)) + half * 2.0**-4
    assert np.array_equal(np.isnan(found), np.isnan(expected)), text
    assert np.all((abs(found - expected) <= most) | np.isnan(expected)), text


def test_relaxed_attention_has_one_product_of_exponentials() -> None:
    made, products = Cuda.named("sm_90a"), []
    for numerics in (Numerics.STANDARD, Numerics.RELAXED):
        program = lower_to_program(attention((8, 1024, 64), "bfloat16"), made, numerics)
        products.append(sum(isinstance(s, Retile) for s in program.kernels[0].statements()))
    assert products[0] == 2 * products[1] > 0


def attention(shape: tuple[int, ...], dtype: str, **options: Any) -> Any:
    cx = lm.Graph()
    q, k, v = (cx.tensor(shape, name=name, dtype=dtype) for name in "qkv")
    scaled_dot_product_attention(q, k, v, **options).output("y")
    return cx.graph()


def check_small() -> None:
    """Three blocks of keys, and rows for three warp groups."""
    graph, rng = attention((140, 16), "bfloat16"), np.random.default_rng(0)
    inputs = {n: rng.standard_normal((140, 16)).astype(ml_dtypes.bfloat16) for n in "qkv"}
    found = compiled_on(device(), graph)(inputs)["y"].astype(np.float64)
    q, k, v = (x.astype(np.float64) for x in inputs.values())
    weights = np.exp(q @ k.T / 4 - (q @ k.T / 4).max(1, keepdims=True))
    expected = (weights / weights.sum(1, keepdims=True)) @ v
    np.testing.assert_allclose(found, expected, rtol=2.0**-8, atol=2.0**-12)


@pytest.mark.long
def test_the_attention_of_the_faults() -> None:
    check_small()


FAULTS = {
    "copies that are not published": (r"\n *publish_copies\(\);", ""),
    "products without a fence": (r"\n *begin_products\(\);", ""),
    "products that are never committed": (r"\n *commit_products\(\);", ""),
    "results that are not awaited": (r"\n *await_products<0>\(\);", ""),
    "a missing barrier": (r"\n *__syncthreads\(\);", ""),
    "copies that are awaited late": (r"await_copies<2>", "await_copies<3>"),
    "values along the other major side": (r"_held_turned_b\(", "_held("),
    "another swizzle": (r"\b3ull << 62", "2ull << 62"),
    "lines that lie elsewhere": (r"16ull << 32", "32ull << 32"),
    "the next block of values": (r"(held_turned_b\([^;]*describe_32\(&s2\[[^\]]*)\]", r"\1 + 16]"),
    "words of a factor in another order": (
        r"(_held_turned_b\((?:v\d+, ){8})(v\d+), (v\d+)", r"\1\3, \2",
    ),
    "sums that begin with what was there": (r"_starts\(", "("),
}  # fmt: skip
NEEDS_FORMS = {"values along the other major side", "sums that begin with what was there"}


@pytest.mark.parametrize("fault", long_but(FAULTS, ()))
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some order of threads: products are made at once, or where they are awaited."""
    before, after = FAULTS[fault]
    own = Walk.text

    def wrong(self: Walk) -> str:
        head, name, rest = own(self).partition('extern "C"')
        if "ull" in before or fault in NEEDS_FORMS:
            head, in_head = re.subn(before, after, head)
        else:
            in_head = 0
        rest, in_rest = re.subn(before, after, rest)
        assert in_head + in_rest, f"{before} is not there"
        return head + name + rest

    monkeypatch.setattr(Walk, "text", wrong)
    with pytest.raises((DeviceFault, AssertionError)):
        check_small()


@pytest.mark.long
def test_powers_of_another_base_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spell.LOG2E, float32, np.float32(1.4375).tobytes())
    with pytest.raises(AssertionError, match="Mismatched"):
        check_small()


@pytest.mark.long
def test_a_missing_rescale_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragments, "times", lambda self, term, value, factor: value)
    with pytest.raises(AssertionError, match="Mismatched"):
        check_small()


# --- machine code ---------------------------------------------------------------------------------

KINDS: dict[str, tuple[tuple[int, ...], str, dict[str, Any]]] = {
    "64": ((8, 1024, 64), "bfloat16", {}),
    "128": ((4, 4096, 128), "bfloat16", {}),
    "causal 128": ((4, 8, 1000, 128), "bfloat16", {"is_causal": True}),
    "80": ((8, 1024, 80), "bfloat16", {}),
    "f16": ((8, 1024, 64), "float16", {}),
}
HELD = re.compile(r"HGMMA\.64x\d+x16\.F32(?:\.BF16)? R\d+, R\d+, gdesc\[UR\d+\]\.tnspB")


@pytest.mark.long
@pytest.mark.parametrize("kind", long_but([*KINDS], ("64",)))
def test_machine_code_multiplies_what_lanes_hold(kind: str) -> None:
    """Exponentials are multiplied from registers, by values that lie as they are in memory; no
    product waits for another one of its batch, and nothing of a step leaves registers.
    """
    skip_without("cuda")
    shape, dtype, options = KINDS[kind]
    made = Cuda.named("sm_90a")
    (kernel,) = lower_to_program(attention(shape, dtype, **options), made).kernels
    assert by_warp_groups(kernel)
    code = nvrtc.compile(made.text(kernel), "sm_90a")
    assert code.spilled == code.stack == 0
    if sass.tool() is None:
        pytest.skip("nvdisasm is not installed")
    text = sass.of(code.code)
    counts = sass.counts(text)
    found = {
        name: sum(n for each, n in counts.items() if each.startswith(name))
        for name in ("HGMMA", "HMMA", "LDGSTS", "STL", "LDL", "F2F.", "WARPGROUP.ARRIVE")
    }
    held = len(HELD.findall(text))
    assert 0 < held < found["HGMMA"]
    assert found["HGMMA"] >= 6 * found["WARPGROUP.ARRIVE"] > 0, "products are serialized"
    assert found["LDGSTS"]
    assert not found["STL"] + found["LDL"] + found["HMMA"] + found["F2F."], counts
