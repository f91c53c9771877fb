"""Contractions that read weights in panels: what is copied, by whom, and that results are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.backends import registry
from luminal.backends.cpu import backend
from luminal.base.dots import BF16_BLOCKS, BF16_PAIRS
from luminal.base.errors import GraphError, VerifyError
from luminal.base.numerics import Numerics
from luminal.compiler.compile import Stages, finish, lower_by_stages
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from luminal.kernel.tile_interpreter import run as interpret
from luminal.kernel.tile_ir import Contract
from luminal.program.buffers import BufferKind
from luminal.program.selection import Choice, verify
from luminal.program.selection_text import parse, to_text
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.schedule.vectors import nest, panels
from luminal.selection import dots, layouts
from tests.close import close, close_to_greatest
from tests.long_share import mostly_long
from tests.machines import usual

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _small_matrices_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "SMALLEST", 1 << 13)


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape, np.float32)


def compiled(graph: lm.Graph) -> Stages:
    return lower_by_stages(graph.graph(), registry.compiling("cpu"))


def copies(stages: Stages) -> list[str]:
    """The layouts of what the prologue derives."""
    return [str(b.layout) for b in stages.program.buffers if b.kind is BufferKind.DERIVED]


def run(graph: lm.Graph, weights: dict[str, Array], **inputs: Array) -> dict[str, Array]:
    exe = lm.compile(graph)
    return {name: np.asarray(y) for name, y in exe({**inputs, **weights}).items()}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 5, 33])
@pytest.mark.parametrize("width", mostly_long([64, 24, 32, 80], 2))
def test_heads_stored_apart(rows: int, width: int, turned: bool) -> None:
    """What is read between, at other positions in each head, parts the columns; a panel has some of
    one head, so that its lanes are neighbours in the result. Results in either order of heads.
    """
    heads, k = 6, 131
    cx = lm.Graph()
    x, w = (
        cx.tensor((rows, k), name="x"),
        cx.weight((heads * width, k) if turned else (k, heads * width), name="w"),
    )
    a, b = (cx.tensor((rows, heads * width // 2), name=name) for name in "ab")
    halves = [part.reshape(rows, heads, width // 2) for part in (a, b)]
    q = (x @ (w.mT if turned else w)).reshape(rows, heads, width)
    y = q * lm.cat(halves, -1)
    (y.transpose(0, 1) if turned else y).output("y")
    found = copies(compiled(cx))
    if rows > 1:
        lanes = backend.current().target.vector_lanes(4)
        panel = next((size for size in (2 * lanes, lanes) if width % size == 0), None)
        assert [layout.split(f"panel({1 - turned}:")[1:] for layout in found] == (
            [[f"{panel})"]] if panel else []
        )
    given = {"x": drawn(rows, k), "a": drawn(*a.shape), "b": drawn(*b.shape)}
    values = drawn(*w.shape)
    with_halves = np.concatenate([given[n].reshape(rows, heads, -1) for n in "ab"], -1)
    wanted = (given["x"] @ (values.T if turned else values)).reshape(
        rows, heads, width
    ) * with_halves
    close_to_greatest(
        run(cx, {"w": values}, **given)["y"], wanted.swapaxes(0, 1) if turned else wanted, 1e-5
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", mostly_long([2, 33, 8, 3], 2))
@pytest.mark.parametrize(("k", "n"), [(200, 96), (131, 127), (64, 1000), (1000, 17)])
def test_products_with_a_weight(k: int, n: int, rows: int, turned: bool) -> None:
    cx = lm.Graph()
    w = cx.weight((n, k) if turned else (k, n), name="w")
    (cx.tensor((rows, k), name="x") @ (w.mT if turned else w)).relu().output("y")
    (layout,) = copies(compiled(cx))
    assert "panel" in layout
    x, values = drawn(rows, k), drawn(*w.shape)
    got = run(cx, {"w": values}, x=x)["y"]
    close_to_greatest(got, np.maximum(x @ (values.T if turned else values), 0), 1e-5)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 40])
def test_a_dynamic_number_of_rows(rows: int) -> None:
    cx = lm.Graph()
    w = cx.weight((200, 100), name="w")
    (cx.tensor((cx.dim("s", 0, 64), 100), name="x") @ w.mT).output("y")
    assert len(copies(compiled(cx))) == 1
    x, values = drawn(rows, 100), drawn(200, 100)
    close_to_greatest(run(cx, {"w": values}, x=x)["y"], x @ values.T, 1e-5)


def test_nothing_leaks_from_the_edges_of_panels() -> None:
    """Infinite and NaN weights stay in their columns; the last panel is not whole."""
    cx = lm.Graph()
    (cx.tensor((5, 256), name="x") @ cx.weight((256, 70), name="w")).output("y")
    x, w = drawn(5, 256), drawn(256, 70)
    w[3, 31], w[4, 32], w[5, 69] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        close_to_greatest(run(cx, {"w": w}, x=x)["y"], x @ w, 1e-5)


@pytest.mark.parametrize("groups", [1, 4, 8])
@pytest.mark.parametrize("size", mostly_long([1, 7, 12, 5, 32], 3))
def test_convolutions_of_small_pictures(size: int, groups: int) -> None:
    """Columns of a picture that leave lanes idle: the lanes run along channels, from panels."""
    cx = lm.Graph()
    w = cx.weight((96, 64 // groups, 3, 3), name="w")
    x = cx.tensor((2, 64, size, size), name="x")
    x.conv2d(w, padding=1, groups=groups).relu().output("y")
    if size > 1:
        assert ("panel" in "".join(copies(compiled(cx)))) is (size < 13 and groups == 1)
    picture, values = drawn(2, 64, size, size), drawn(*w.shape)
    arrays = torch.from_numpy(picture), torch.from_numpy(values)
    expected = torch.conv2d(*arrays, padding=1, groups=groups).relu().numpy()
    close_to_greatest(run(cx, {"w": values}, x=picture)["y"], expected, 1e-5)


WINDOWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, int], bool]] = {
    "the first layer": ((2, 3, 64, 64), (32, 3, 7, 7), {"stride": 2, "padding": 3}, True),
    "a channel left over": ((1, 5, 63, 66), (49, 5, 3, 3), {"stride": 2, "padding": 1}, True),
    "steps of four": ((1, 3, 67, 131), (24, 3, 11, 11), {"stride": 4, "padding": 2}, True),
    "no overlap": ((1, 3, 64, 256), (40, 3, 8, 8), {"stride": 8}, False),
    "steps of one": ((2, 3, 32, 32), (32, 3, 7, 7), {"padding": 3}, False),
    "no window": ((1, 40, 64, 64), (32, 40, 1, 1), {"stride": 2}, False),
    "few channels": ((1, 3, 64, 64), (7, 3, 7, 7), {"stride": 2, "padding": 3}, False),
    "lines that no cache keeps": ((1, 600, 20, 66), (16, 600, 3, 3), {"stride": 2}, False),
    "few results": ((1, 3, 10, 10), (32, 3, 7, 7), {"stride": 2, "padding": 3}, False),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_in_steps(name: str) -> None:
    """Lanes along the columns would want a copy of all windows: they run along channels."""
    shape, weight, options, in_panels = WINDOWS[name]
    cx = lm.Graph()
    w = cx.weight(weight, name="w")
    x = cx.tensor((cx.dim("n", 0, 4), *shape[1:]), name="x")
    x.conv2d(w, **options).output("y")
    assert ("panel" in "".join(copies(compiled(cx)))) is in_panels
    picture, values = drawn(*shape), drawn(*weight)
    picture[0, 1, 2, 3], picture[0, 2, -1, -1], picture[-1, 0, 8, 9] = np.nan, np.inf, -np.inf
    for images in (picture, picture[:0]):
        arrays = torch.from_numpy(images), torch.from_numpy(values)
        expected = torch.conv2d(*arrays, **options)  # type: ignore[arg-type]
        close_to_greatest(run(cx, {"w": values}, x=images)["y"], expected.numpy(), 1e-5)


def test_panels_pass_by_rows_that_stay_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows from far are read once, in blocks: all panels come again for each of these."""
    length = backend.current().target.l2_bytes // (2 * 4 * 100)  # a hundred rows are near
    cx = lm.Graph()
    w = cx.weight((210, length), name="w")
    (cx.tensor((250, length), name="x") @ w.mT).output("y")
    panel = int(copies(compiled(cx))[0].rpartition(":")[2].rstrip(")"))
    for caches, blocked in ((nest.STREAMED_CACHES, False), (0.5, True)):
        monkeypatch.setattr(nest, "STREAMED_CACHES", caches)
        counts = [
            tuple(int(g.count.evaluate({})) for g in kernel.grid)
            for kernel in compiled(cx).program.kernels
        ]
        assert ((3, -(-210 // panel)) in counts) is blocked
    given, values = drawn(250, length), drawn(210, length)
    expected = given.astype(np.float64) @ values.T.astype(np.float64)
    close_to_greatest(run(cx, {"w": values}, x=given)["y"], expected, 1e-5)


def test_a_single_row_reads_the_weight_as_it_is() -> None:
    for shape, turned in (((4096, 512), True), ((512, 128), False)):
        cx = lm.Graph()
        w = cx.weight(shape, name="w")
        (cx.tensor((1, 512), name="x") @ (w.mT if turned else w)).output("y")
        assert copies(compiled(cx)) == []


@pytest.mark.parametrize("rows", [1, 8, 33])
def test_a_masked_weight_is_packed_with_its_mask(rows: int) -> None:
    cx = lm.Graph()
    x, w = cx.tensor((rows, 200), name="x"), cx.weight((200, 200), name="w")
    (x @ w.tril()).output("y")
    (x @ w.tril().mT).output("turned")
    assert copies(compiled(cx)) == []
    given, values = drawn(rows, 200), drawn(200, 200)
    got = run(cx, {"w": values}, x=given)
    close_to_greatest(got["y"], given @ np.tril(values), 1e-5)
    close_to_greatest(got["turned"], given @ np.tril(values).T, 1e-5)


def test_small_weights_and_inputs_are_read_as_they_are() -> None:
    cx = lm.Graph()
    (cx.tensor((64, 40), name="x") @ cx.weight((40, 50), name="w")).output("y")
    (cx.tensor((64, 400), name="a") @ cx.tensor((400, 500), name="b")).output("z")
    assert copies(compiled(cx)) == []


def storage(name: str) -> Callable[[Array], Array]:
    dtype = getattr(lm, name).numpy
    return lambda x: x.astype(dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_panels_hold_what_the_weight_holds(dtype: str) -> None:
    """Weights of 16 bits stay 16 bits; the kernel widens them."""
    cx = lm.Graph()
    wide = "float64" if dtype == "float64" else "float32"
    x = cx.tensor((9, 300), dtype=getattr(lm, dtype), name="x")
    (x @ cx.weight((210, 300), getattr(lm, dtype), "w").mT).output("y")
    program = compiled(cx).program
    (derived,) = [b for b in program.buffers if b.kind is BufferKind.DERIVED]
    assert derived.dtype.name == dtype
    to = storage(dtype)
    values, w = to(drawn(9, 300)), to(drawn(210, 300))
    expected = to(values.astype(wide) @ w.astype(wide).T)
    got = run(cx, {"w": w}, x=values)["y"]
    # bfloat16's last digit, 2**-8, of sums of 300 terms with mixed signs
    np.testing.assert_allclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=1e-2, atol=0.2
    )


needs_pairs = pytest.mark.skipif(
    BF16_PAIRS not in registry.compiling("cpu").target.dots,
    reason="no instruction for pairs of bfloat16",
)


OF_BFLOAT16 = (BF16_PAIRS, BF16_BLOCKS)


def paired(stages: Stages) -> bool:
    """Does a kernel multiply several bfloat16 at a time?"""
    statements = [s for kernel in stages.program.kernels for s in kernel.statements()]
    return any(isinstance(s, Contract) and s.dot in OF_BFLOAT16 for s in statements)


@needs_pairs
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", mostly_long([2, 33, 3], 2))
@pytest.mark.parametrize(("k", "n"), [(200, 96), (130, 127), (1000, 17)])
def test_bfloat16_is_multiplied_in_pairs(k: int, n: int, rows: int, turned: bool) -> None:
    cx = lm.Graph()
    x = cx.tensor((rows, k), dtype=lm.bfloat16, name="x")
    w = cx.weight((n, k) if turned else (k, n), lm.bfloat16, "w")
    (x @ (w.mT if turned else w) + cx.weight((n,), lm.bfloat16, "b")).output("y")
    assert paired(compiled(cx))
    assert not paired(lower_by_stages(cx.graph(), registry.compiling("cpu"), Numerics.EXACT))
    to = storage("bfloat16")
    x, w, b = to(drawn(rows, k)), to(drawn(n, k)), to(drawn(n))
    wide = to(x.astype(np.float32) @ w.astype(np.float32).T).astype(np.float32)
    given = w if turned else np.ascontiguousarray(w.T)
    got = run(cx, {"w": given, "b": b}, x=x)["y"].astype(np.float32)
    # bfloat16's last digit, 2**-8, with sums and terms rounded apart
    np.testing.assert_allclose(got, wide + b.astype(np.float32), rtol=2e-2, atol=0.1)


@needs_pairs
@pytest.mark.parametrize(
    ("rows", "extents", "turned", "copied"),
    [
        (200, (1040, 520), True, False),
        (64, (1040, 520), True, True),  # too few rows to pack it again and again
        (1, (1040, 520), True, False),  # a single one reads it as it lies
        (200, (1040, 520), False, True),  # neighbours lie apart
        (200, (130, 126), True, True),  # small
    ],
)
def test_a_large_weight_of_words_is_held_once(
    rows: int, extents: tuple[int, int], turned: bool, copied: bool
) -> None:
    cx = lm.Graph()
    n, k = extents
    x = cx.tensor((cx.dim("s", 1, rows) if rows > 1 else 1, k), dtype=lm.bfloat16, name="x")
    w = cx.weight((n, k) if turned else (k, n), lm.bfloat16, "w")
    (x.cast(lm.float32) @ (w.mT if turned else w)).output("y")
    stages = lower_by_stages(cx.graph(), usual())
    assert paired(stages)
    assert bool(copies(stages)) is copied
    to = storage("bfloat16")
    wide, given = to(drawn(rows, k)), to(drawn(n, k))
    expected = wide.astype(np.float64) @ given.astype(np.float64).T
    exe = lm.compile(cx)
    for count in {1, rows // 3 + 1, rows}:
        got = exe(x=wide[:count], w=given if turned else np.ascontiguousarray(given.T))["y"]
        close(got, expected[:count], ulp=16)


@needs_pairs
def test_pairs_along_heads_that_are_summed_over() -> None:
    """A sum over (head, width): the pairs are neighbours in a head."""
    cx = lm.Graph()
    x = cx.tensor((3, 7, 50), dtype=lm.bfloat16, name="x")  # head, row, width
    w = cx.weight((160, 3 * 50), lm.bfloat16, "w")
    lm.einsum("hsd,nhd->sn", x, w.reshape(160, 3, 50)).output("y")
    assert paired(compiled(cx))
    to = storage("bfloat16")
    x, w = to(drawn(3, 7, 50)), to(drawn(160, 150))
    expected = np.einsum("hsd,nhd->sn", *(v.astype(np.float32) for v in (x, w.reshape(160, 3, 50))))
    got = run(cx, {"w": w}, x=x)["y"].astype(np.float32)
    # bfloat16's last digit, 2**-8, with sums and terms rounded apart
    np.testing.assert_allclose(got, expected, rtol=2e-2, atol=0.1)


@needs_pairs
def test_sibling_products_are_all_in_pairs() -> None:
    """Gate and up of one kernel: no product of f32 is left."""
    cx = lm.Graph()
    x = cx.tensor((6, 200), dtype=lm.bfloat16, name="x")
    gate, up = (x @ cx.weight((160, 200), lm.bfloat16, name).mT for name in ("g", "u"))
    (gate.sigmoid() * gate * up).output("y")
    program = compiled(cx).program
    statements = [s for kernel in program.kernels for s in kernel.statements()]
    products = [s for s in statements if isinstance(s, Contract)]
    assert len(products) == 2
    assert {s.dot for s in products} <= {*OF_BFLOAT16}
    to = storage("bfloat16")
    given, g, u = (to(drawn(*shape)) for shape in ((6, 200), (160, 200), (160, 200)))
    wide = [to(given.astype(np.float32) @ w.astype(np.float32).T) for w in (g, u)]
    first, second = (w.astype(np.float32) for w in wide)
    got = run(cx, {"g": g, "u": u}, x=given)["y"].astype(np.float32)
    # bfloat16's last digit, 2**-8, of both factors and of their product
    np.testing.assert_allclose(got, first / (1 + np.exp(-first)) * second, rtol=5e-2, atol=0.2)


OTHERS: dict[str, Callable[[lm.Graph, Any, Any], Any]] = {
    "an input": lambda cx, x, w: x @ cx.tensor((200, 96), dtype=lm.bfloat16, name="o"),
    "a state": lambda cx, x, w: x @ cx.state((200, 96), lm.bfloat16, 0.5),
    "a sum of weights": lambda cx, x, w: x @ (w + cx.weight((200, 96), lm.bfloat16, "o")),
    "a weight of float32": lambda cx, x, w: (
        x.to(lm.float32) @ cx.weight((200, 96), lm.float32, "o")
    ).to(lm.bfloat16),
    "x itself": lambda cx, x, w: x[:, :96],
}


@needs_pairs
@pytest.mark.parametrize("name", OTHERS)
def test_a_product_in_pairs_beside_what_reads_x_otherwise(name: str) -> None:
    """One kernel reads x both in words and by itself."""
    cx = lm.Graph()
    x = cx.tensor((9, 200), dtype=lm.bfloat16, name="x")
    w = cx.weight((200, 96), lm.bfloat16, "w")
    ((x @ w) * OTHERS[name](cx, x, w)).output("y")
    assert paired(compiled(cx))
    to = storage("bfloat16")
    given = {"x": to(drawn(9, 200)), "w": to(drawn(200, 96))}
    if "o" in cx.leaves:
        given["o"] = drawn(200, 96).astype(cx.leaves["o"].dtype.numpy)
    got = np.asarray(lm.compile(cx)(given)["y"]).astype(np.float32)
    exact = lm.compile(cx, backend="reference")(given)["y"].astype(np.float32)
    # bfloat16's last digit, 2**-8, of sums of 200 terms and of what is added
    np.testing.assert_allclose(got, exact, rtol=5e-2, atol=0.5)


@needs_pairs
def test_pairs_keep_nan_and_infinities_in_their_places() -> None:
    cx = lm.Graph()
    x = cx.tensor((5, 128), dtype=lm.bfloat16, name="x")
    (x @ cx.weight((130, 128), lm.bfloat16, "w").mT).output("y")
    to = storage("bfloat16")
    x, w = to(drawn(5, 128)), to(drawn(130, 128))
    x[1, 4], w[31, 3], w[129, 5] = np.nan, np.inf, -np.inf
    got = run(cx, {"w": w}, x=x)["y"].astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float32) @ w.astype(np.float32).T
    # bfloat16's last digit, 2**-8, with sums and terms rounded apart
    np.testing.assert_allclose(got, expected, rtol=2e-2, atol=0.2)


@needs_pairs
@pytest.mark.parametrize("k", [128, 129])
def test_an_odd_sum_is_widened_and_what_lies_turned_is_joined(k: int) -> None:
    """The sum is odd, or neighbours along it lie apart in x."""
    cx = lm.Graph()
    shape = (4, k) if k == 129 else (k, 4)
    x = cx.tensor(shape, dtype=lm.bfloat16, name="x")
    turned = x if k == 129 else x.mT
    (turned @ cx.weight((200, k), lm.bfloat16, "w").mT).output("y")
    stages = compiled(cx)
    assert len(copies(stages)) == 1
    assert paired(stages) is (k == 128)
    to = storage("bfloat16")
    given, w = to(drawn(*shape)), to(drawn(200, k))
    wide = given.astype(np.float32) if k == 129 else given.astype(np.float32).T
    got = run(cx, {"w": w}, x=given)["y"].astype(np.float32)
    # bfloat16's last digit, 2**-8, with sums and terms rounded apart
    np.testing.assert_allclose(got, wide @ w.astype(np.float32).T, rtol=2e-2, atol=0.1)


OWNERS: dict[str, Callable[[lm.Graph, tuple[int, ...], str], Any]] = {
    "input": lambda cx, shape, name: cx.tensor(shape, dtype=lm.bfloat16, name=name),
    "weight": lambda cx, shape, name: cx.weight(shape, lm.bfloat16, name),
}


@needs_pairs
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("owners", [("input", "input"), ("input", "weight")])
@pytest.mark.parametrize(("m", "k", "n"), [(65, 34, 70), (3, 130, 48), (1, 64, 100)])
def test_bfloat16_is_multiplied_in_pairs_whoever_owns_it(
    m: int, k: int, n: int, owners: tuple[str, str], turned: tuple[bool, bool]
) -> None:
    """Packed in pairs, or joined as it is read, where neighbours lie apart."""
    cx = lm.Graph()
    shapes = [(k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)]
    factors = [
        OWNERS[owner](cx, shape, name)
        for owner, shape, name in zip(owners, shapes, "ab", strict=True)
    ]
    a, b = (x.mT if turn else x for x, turn in zip(factors, turned, strict=True))
    (a.float() @ b.float()).output("y")
    assert paired(compiled(cx))
    assert not paired(lower_by_stages(cx.graph(), registry.compiling("cpu"), Numerics.EXACT))
    to = storage("bfloat16")
    given = {name: to(drawn(*shape)) for name, shape in zip("ab", shapes, strict=True)}
    given["a"][0, 0], given["b"][1, 0] = np.nan, np.inf
    wide = [given[name].astype(np.float32) for name in "ab"]
    x, w = (each.T if turn else each for each, turn in zip(wide, turned, strict=True))
    got = np.asarray(lm.compile(cx)(given)["y"])
    with np.errstate(invalid="ignore"):
        close_to_greatest(got, x @ w, 1e-5)


@needs_pairs
@pytest.mark.parametrize("causal", [False, True])
def test_scores_of_attention_are_multiplied_in_pairs(causal: bool) -> None:
    cx = lm.Graph()
    q, k, v = (cx.tensor((3, 200, 64), dtype=lm.bfloat16, name=name) for name in "qkv")
    scaled_dot_product_attention(q, k, v, is_causal=causal).output("y")
    assert paired(compiled(cx))
    to = storage("bfloat16")
    given = {name: to(drawn(3, 200, 64)) for name in "qkv"}
    tensors = (torch.from_numpy(given[name].astype(np.float64)) for name in "qkv")
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal).numpy()
    got = np.asarray(lm.compile(cx)(given)["y"]).astype(np.float64)
    # bfloat16's last digit, 2**-8, with sums and terms rounded apart
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2)


@needs_pairs
def test_the_interpreter_multiplies_pairs_as_the_hardware_does() -> None:
    cx = lm.Graph()
    x = cx.tensor((3, 6), dtype=lm.bfloat16, name="x")
    (x.float() @ cx.weight((20, 6), lm.bfloat16, "w").mT.float()).output("y")
    cpu = registry.compiling("cpu")
    plain = lower_by_stages(cx.graph(), cpu)
    (gene,) = layouts.genes(plain.selection, cpu.layouts)
    chosen = layouts.with_layouts(plain.selection, {gene: gene.layouts[-1]})
    chosen = dots.by_rule(chosen, cpu.target.dots, Numerics.STANDARD)
    stages = finish(plain.graph, plain.lowered, chosen, cpu)
    assert paired(stages)
    to = storage("bfloat16")
    arrays = {"x": to(drawn(3, 6)), "w": to(drawn(20, 6))}
    runner = registry.compiling("cpu").runner(stages.program)
    got = np.asarray(Executable(stages.graph, [Variant({}, runner)])(arrays)["y"])
    (copy,), (product,) = stages.program.prologue, stages.program.launches
    out = np.zeros(60, np.float32)
    kernels = stages.program.kernels
    size = int(kernels[copy.kernel].buffers[1].size.value)
    panels = np.zeros(size, arrays["w"].dtype)
    interpret(kernels[copy.kernel], {"b0": arrays["w"].ravel(), "b1": panels}, {})
    interpret(kernels[product.kernel], {"b0": arrays["x"].ravel(), "b1": panels, "b2": out}, {})
    # the interpreter sums the same terms in the same order: 10 ulp
    np.testing.assert_allclose(out.reshape(3, 20), got, rtol=1e-6, atol=1e-6)


def test_a_tied_embedding_is_gathered_by_rows_and_multiplied_in_panels() -> None:
    cx = lm.Graph()
    table = cx.weight((300, 96), name="table")
    picked = cx.tensor((12,), dtype=lm.int64, name="picked")
    (table[picked].tanh() @ table.mT).output("logits")
    stages = compiled(cx)
    assert len(copies(stages)) == 1
    assert parse(to_text(stages.selection), stages.lowered) == stages.selection
    values, rows = drawn(300, 96), RANDOM.integers(0, 300, 12)
    close_to_greatest(
        run(cx, {"table": values}, picked=rows)["logits"], np.tanh(values[rows]) @ values.T, 1e-5
    )


def test_a_derived_weight_lies_in_panels_alone() -> None:
    """The prologue writes the sum of two weights into panels; no row-major copy remains."""
    cx = lm.Graph()
    a, b = cx.weight((256, 160), name="a"), cx.weight((256, 160), name="b")
    (cx.tensor((8, 160), name="x") @ (a.exp() * b).mT).output("y")
    (layout,) = copies(compiled(cx))
    assert "panel" in layout
    x, u, v = drawn(8, 160), drawn(256, 160), drawn(256, 160)
    close_to_greatest(run(cx, {"a": u, "b": v}, x=x)["y"], x @ (np.exp(u) * v).T, 1e-5)


def test_a_weight_that_is_an_output_too() -> None:
    cx = lm.Graph()
    w = cx.weight((256, 160), name="w")
    doubled = w.exp() * w
    (cx.tensor((8, 160), name="x") @ doubled.mT).output("y")
    doubled.output("doubled")
    x, values = drawn(8, 160), drawn(256, 160)
    got = run(cx, {"w": values}, x=x)
    close_to_greatest(got["doubled"], np.exp(values) * values, 1e-5)
    close_to_greatest(got["y"], x @ (np.exp(values) * values).T, 1e-5)


def test_batched_weights() -> None:
    cx = lm.Graph()
    w = cx.weight((3, 90, 70), name="w")
    (cx.tensor((3, 6, 70), name="x") @ w.mT).output("y")
    assert len(copies(compiled(cx))) == 1
    x, values = drawn(3, 6, 70), drawn(3, 90, 70)
    close_to_greatest(run(cx, {"w": values}, x=x)["y"], x @ values.transpose(0, 2, 1), 1e-5)


@pytest.mark.parametrize("heads", [(4, 32), (3, 80), (32, 4), (8, 16, 2)])
def test_results_split_into_heads(heads: tuple[int, ...]) -> None:
    """The weight's dimension is several axes; panels follow where these run as one."""
    cx = lm.Graph()
    n = int(np.prod(heads))
    y = cx.tensor((5, 150), name="x") @ cx.weight((n, 150), name="w").mT
    y.reshape(5, *heads).transpose(0, 1).output("y")
    x, w = drawn(5, 150), drawn(n, 150)
    close_to_greatest(
        run(cx, {"w": w}, x=x)["y"], np.swapaxes((x @ w.T).reshape(5, *heads), 0, 1), 1e-5
    )


def test_setting_the_weight_makes_the_panels_anew_and_programs_share_them() -> None:
    parameter = lm.Parameter((256, 128), name="w")
    executables = []
    for rows in (4, 8):
        cx = lm.Graph()
        (cx.tensor((rows, 128), name="x") @ cx.weight_of(parameter).mT).output("y")
        executables.append(lm.compile(cx))
    for _ in range(2):
        w = drawn(256, 128)
        parameter.set(w)
        for rows, exe in zip((4, 8), executables, strict=True):
            x = drawn(rows, 128)
            close_to_greatest(np.asarray(exe({"x": x})["y"]), x @ w.T, 1e-5)
    (first, second) = [exe.memory_report() for exe in executables]
    assert first.derived_bytes == second.derived_bytes == 256 * 128 * 4


def test_a_loop_reads_an_invariant_weight_in_panels() -> None:
    cx = lm.Graph()
    w = cx.weight((128, 128), name="w")
    last, _ = lm.scan(lambda h, _: ((h @ w.mT).tanh(), h), cx.tensor((6, 128), name="h"), length=3)
    last.output("y")
    stages = compiled(cx)
    assert len(copies(stages)) == 1
    assert parse(to_text(stages.selection), stages.lowered) == stages.selection
    h, values = drawn(6, 128), drawn(128, 128) / 10
    expected = h
    for _ in range(3):
        expected = np.tanh(expected @ values.T)
    close_to_greatest(run(cx, {"w": values}, h=h)["y"], expected, 1e-5)


def test_products_in_both_directions_share_the_layout_of_a_cast() -> None:
    """Both read through one edge: a second copy would be made and never read."""
    cx = lm.Graph()
    widened = cx.weight((384, 512), lm.bfloat16, "w").cast("float32")
    x, g = cx.tensor((64, 512), name="x"), cx.tensor((64, 384), name="g")
    (x @ widened.mT).output("y")
    (g @ widened).output("dx")
    stages = compiled(cx)
    verify(stages.selection)
    assert len(copies(stages)) == 1
    w = drawn(384, 512).astype(lm.bfloat16.numpy)
    given = {"x": drawn(64, 512), "g": drawn(64, 384)}
    got = run(cx, {"w": w}, **given)
    close_to_greatest(got["y"], given["x"] @ w.astype(np.float32).T, 1e-5)
    close_to_greatest(got["dx"], given["g"] @ w.astype(np.float32), 1e-5)


def test_a_layout_that_nothing_reads_is_refused() -> None:
    cx = lm.Graph()
    (cx.tensor((64, 512), name="x") @ cx.weight((384, 512), name="w").mT).output("y")
    selection = compiled(cx).selection
    with pytest.raises(VerifyError, match=r"layout 1 of .* is made and never read"):
        verify(replace(selection, reads={}))


def test_genes_are_data_that_a_search_may_choose() -> None:
    cx = lm.Graph()
    (cx.tensor((8, 160), name="x") @ cx.weight((256, 160), name="w").mT).output("y")
    cpu = registry.compiling("cpu")
    chosen = compiled(cx).selection
    plain = replace(
        chosen, choices={t: Choice(c.residence) for t, c in chosen.choices.items()}, reads={}
    )
    (gene,) = layouts.all_genes(plain, cpu.layouts)
    as_it_is, panels = gene.layouts
    assert gene.rows == 8
    assert gene.now == as_it_is
    assert [each.now for each in layouts.all_genes(chosen, cpu.layouts)] == [panels]
    assert layouts.by_rule(plain, cpu.layouts, wishes={gene.weight: str(as_it_is)}) == plain
    assert layouts.by_rule(plain, cpu.layouts) == chosen


def test_a_layout_is_of_what_lies_in_memory() -> None:
    cx = lm.Graph()
    (cx.tensor((8, 160), name="x") @ cx.weight((160, 160), name="w").tril()).output("y")
    selection = compiled(cx).selection
    (product,) = (term for term in selection.choices if term.op == "Mul")
    with pytest.raises(VerifyError, match="reads operand 1, which is inlined"):
        verify(replace(selection, reads={(product, 1): 0}))


def test_rolled_layers_read_each_weight_in_panels() -> None:
    """Layers that repeat are a Loop over a list of weights, each copied into panels."""
    cx = lm.Graph()
    names = [f"w{k}" for k in range(5)]
    h = cx.tensor((6, 160), name="x")
    for name in names:
        h = (h @ cx.weight((160, 160), name=name).mT).relu() + h
    h.output("y")
    assert len(copies(compiled(cx))) == 5
    given, weights = drawn(6, 160), {name: drawn(160, 160) / 13 for name in names}
    expected = given
    for name in names:
        expected = np.maximum(expected @ weights[name].T, 0) + expected
    close_to_greatest(run(cx, weights, x=given)["y"], expected, 1e-5)


# --- dots of a selection


def product_in_pairs() -> Stages:
    """Two products of bfloat16, the second of what the first gives out."""
    cx = lm.Graph()
    x = cx.tensor((32, 128), dtype=lm.bfloat16, name="x")
    first, second = (cx.weight((128, 128), lm.bfloat16, name) for name in "wv")
    hidden = x @ first
    hidden.output("hidden")
    (hidden @ second).output("y")
    return compiled(cx)


@needs_pairs
def test_dots_are_in_the_text_which_is_read_back() -> None:
    stages = product_in_pairs()
    (dot,) = set(stages.selection.dots.values())
    assert dot in OF_BFLOAT16
    text = to_text(stages.selection)
    assert text.count(f" {dot}\n") == 2
    assert parse(text, stages.lowered) == stages.selection
    with pytest.raises(GraphError, match="no dot bf16x3: there are bf16x2"):
        parse(text.replace(f" {dot}\n", " bf16x3\n"), stages.lowered)


@needs_pairs
def test_a_dot_that_the_target_lacks_is_refused() -> None:
    stages, cpu = product_in_pairs(), backend.current()
    bare = replace(cpu, target=replace(cpu.target, dots=()))
    with pytest.raises(VerifyError, match=r"is computed by the dot bf16x\d; native has no dots"):
        finish(stages.graph, stages.lowered, stages.selection, bare)


@needs_pairs
def test_a_dot_of_what_is_no_product_is_refused() -> None:
    selection = product_in_pairs().selection
    cx = lm.Graph()
    cx.tensor((4, 8), name="x").sum(1).output("y")
    plain = compiled(cx).selection
    total = next(term for term in plain.choices if term.is_reduction)
    with pytest.raises(VerifyError, match="none for the dot bf16x2: what it sums is no product"):
        verify(replace(plain, dots={total: BF16_PAIRS}))
    leaf = next(term for term in selection.choices if term.is_leaf)
    with pytest.raises(VerifyError, match="bf16x2, and no kernel computes it"):
        verify(replace(selection, dots={leaf: BF16_PAIRS}))
