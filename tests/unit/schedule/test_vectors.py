"""Rule-made schedules of contractions over windows: which axes become vectors, rows, strips."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import luminal as lm
from luminal.compiler.compile import lower_to_program
from luminal.kernel.knobs import Choices, KnobError
from luminal.kernel.tile_ir import Contract, Kernel, Load, Loop, Map, Reduce, Role, Store
from tests.machines import vectors

MACHINE = vectors(256, registers=32)  # 8 lanes of f32


def tiles(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> tuple[Kernel, set[Any]]:
    """The kernel of a convolution, and (extent, unroll, vector) of its loops in tiles."""
    cx = lm.Graph()
    cx.tensor(x, name="x").conv2d(cx.tensor(w, name="w"), **options).output("y")
    (found,) = lower_to_program(cx.graph(), MACHINE).kernels
    loops = [s for s in found.statements() if isinstance(s, Loop)]
    return found, {
        (str(s.axis.extent), s.unroll, s.vector) for s in loops if s.unroll * s.vector > 1
    }


def test_strided_windows_are_packed_into_strips() -> None:
    """Lanes run along output columns though those lie two apart in x; the kernel's width is 3."""
    found, loops = tiles((1, 32, 33, 33), (64, 32, 3, 3), stride=2)
    assert found.scratch
    assert {vector for _, _, vector in loops} - {1} == {8}


@pytest.mark.parametrize(
    ("steps", "columns", "rows_outside"), [(128, 48, True), (128, 96, False), (768, 96, True)]
)
def test_what_a_tile_reads_again_stays_in_cache(
    steps: int, columns: int, rows_outside: bool
) -> None:
    """All columns, in the first level's cache where a strip is no larger, else in the second's."""
    cx = lm.Graph()
    (cx.tensor((203, steps), name="a") @ cx.tensor((steps, columns), name="b")).output("y")
    (found,) = lower_to_program(cx.graph(), MACHINE).kernels
    assert not found.scratch
    loops = [str(each.axis.extent) for each in found.statements() if isinstance(each, Loop)]
    assert (loops.index("203") < loops.index(str(columns))) is rows_outside


@pytest.mark.parametrize("channels", [16, 32])
def test_lanes_run_along_panels_be_it_a_single_one(channels: int) -> None:
    """For 13 columns would leave a fifth of the lanes idle."""
    cx = lm.Graph()
    w = cx.weight((channels, 256, 3, 3), name="w")
    cx.tensor((1, 256, 13, 13), name="x").conv2d(w, padding=1).output("y")
    _, found = lower_to_program(cx.graph(), MACHINE).kernels
    loops = [each for each in found.statements() if isinstance(each, Loop)]
    assert {str(each.axis.extent) for each in loops if each.vector == 8} == {"16"}


@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_the_register_tile_are_output_channels(stride: int) -> None:
    """Also where the picture is higher than there are channels: only the weight has them."""
    _, loops = tiles((1, 3, 225, 225), (34, 3, 3, 3), stride=stride)
    assert any(extent == "34" and unroll > 1 for extent, unroll, _ in loops)


def test_knobs_are_legal_values_of_choices_that_are_asked_for_once() -> None:
    choices = Choices("Sum", (("streams", 2), ("tile", "8x2")))
    assert choices.pick("streams", 4, (2, 4, 1)) == 2
    assert choices.offered == {"streams": (4, 2, 1)}
    with pytest.raises(AssertionError, match="Sum: knob streams is asked for twice"):
        choices.pick("streams", 1)
    with pytest.raises(KnobError, match="Sum: knob tile=8x2 is not legal here; take one of 4x2"):
        choices.pick("tile", "4x2")
    with pytest.raises(KnobError, match="Sum: no knob pack here; its knobs are: none"):
        Choices("Sum", (("pack", 1),)).finish()


def gradients(x: tuple[int, ...], w: tuple[int, ...], of: str) -> tuple[Kernel, ...]:
    """The kernels of a convolution's gradient by its picture or its weight."""
    cx = lm.Graph()
    leaves = {"x": cx.tensor(x, name="x"), "w": cx.tensor(w, name="w")}
    y = leaves["x"].conv2d(leaves["w"])
    seed = cx.tensor(y.shape, name="seed")
    lm.grad((y * seed).sum(), [leaves[of]])[0].output("gradient")
    return lower_to_program(cx.graph(), MACHINE).kernels


def inside_loops(kernel: Kernel) -> list[tuple[Any, tuple[str, ...]]]:
    """Each statement with the extents of the loops around it."""
    found: list[tuple[Any, tuple[str, ...]]] = []

    def walk(body: Any, outside: tuple[str, ...]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                walk(statement.body, (*outside, str(statement.axis.extent)))
            else:
                found.append((statement, outside))

    walk(kernel.body, ())
    return found


def test_a_weight_gradient_packs_what_all_taps_share_once() -> None:
    """Lanes over output channels, which lie far apart; the taps' loops inside of the packing."""
    found = next(k for k in gradients((32, 5, 26, 26), (64, 5, 3, 3), "w") if k.scratch)
    strips = {scratch.name for scratch in found.scratch}
    packing = [(s, o) for s, o in inside_loops(found) if getattr(s, "buffer", None) in strips]
    stored = [outside for s, outside in packing if isinstance(s, Store)]
    assert stored
    assert not any("3" in outside for outside in stored)
    assert any(outside.count("3") == 2 for s, outside in packing if isinstance(s, Load))


def test_a_long_contraction_is_summed_in_chunks() -> None:
    """100 pictures: of 57,600 positions 64 partial sums are kept."""
    sizes = [
        str(b.size) for k in gradients((100, 16, 26, 26), (64, 16, 3, 3), "w") for b in k.buffers
    ]
    assert str(50 * 64 * 16 * 9) in sizes


def test_an_input_gradient_masks_its_sums() -> None:
    """Taps outside count nowhere: the accumulator is kept there, no operand is made 0."""
    (found,) = gradients((4, 32, 26, 26), (64, 32, 3, 3), "x")
    contracts = [s.out.id for s in found.statements() if isinstance(s, Contract)]
    selects = [s for s in found.statements() if isinstance(s, Map) and s.op == "Select"]
    assert contracts
    assert [s.args[1].id for s in selects] == contracts


def test_a_product_of_matrices_shares_no_loops_with_what_has_other_axes() -> None:
    """The product's columns are one long axis, whatever is done with its results by window."""
    cx = lm.Graph()
    a, b = cx.tensor((64, 128), name="a"), cx.tensor((128, 16 * 12 * 12), name="b")
    wide = cx.tensor((64, 16, 12, 2, 12, 2), name="wide")
    product = (a @ b).reshape(64, 16, 12, 1, 12, 1)
    lm.where(wide > 0, product.expand(64, 16, 12, 2, 12, 2), 0.0).output("y")
    kernels = lower_to_program(cx.graph(), MACHINE).kernels
    (found,) = (k for k in kernels if any(isinstance(s, Contract) for s in k.statements()))
    assert {str(b.size) for b in found.buffers if b.role is Role.OUT} == {str(64 * 16 * 144)}


def test_long_stretches_are_not_cut_at_the_product_a_contraction_sums_over() -> None:
    """Layers with long formulas, all unlike: no rows x columns x sums are stored."""
    cx = lm.Graph()
    h = cx.tensor((64, 96), name="x")
    weights = [cx.tensor((n, n - 8), name=f"w{n}") for n in (96, 88, 80)]
    for w in weights:
        h = lm.nn.functional.layer_norm(h @ w, w.shape[1:], eps=1e-3)
        h = lm.nn.functional.gelu(h)
    for k, g in enumerate(lm.grad((h * h).sum(), weights)):
        g.output(f"g{k}")
    sizes = [b.size.value for k in lower_to_program(cx.graph(), MACHINE).kernels for b in k.buffers]
    assert max(sizes) <= 96 * 88


def test_axes_that_a_window_walks_as_one_are_one_loop() -> None:
    """A convolution whose result is pooled: its rows and columns come in pairs, and need none."""
    cx = lm.Graph()
    x, w = cx.tensor((4, 16, 26, 26), name="x"), cx.tensor((32, 16, 3, 3), name="w")
    lm.nn.functional.max_pool2d(x.conv2d(w), 2).output("y")
    kernels = lower_to_program(cx.graph(), MACHINE).kernels
    (found,) = (k for k in kernels if any(isinstance(s, Contract) for s in k.statements()))
    extents = {str(s.axis.extent) for s in found.statements() if isinstance(s, Loop)}
    extents |= {str(grid.count) for grid in found.grid}
    assert not extents & {"2", "12"}


def test_an_input_gradient_of_steps_of_two_meets_every_second_tap() -> None:
    """Of 3 x 3 taps 2 x 2 reach a position at most; the others are not tried."""
    cx = lm.Graph()
    x, w = cx.tensor((4, 32, 28, 28), name="x"), cx.tensor((32, 32, 3, 3), name="w")
    y = x.conv2d(w, stride=2, padding=1)
    lm.grad(y, x, cx.tensor(y.shape, name="seed")).output("dx")
    (found,) = lower_to_program(cx.graph(), MACHINE).kernels
    around = [outside for s, outside in inside_loops(found) if isinstance(s, Contract)]
    assert 0 < len(around) <= 4
    assert not any("3" in outside for outside in around)


def test_windows_are_read_in_place_not_stored() -> None:
    """Of padded convolutions, forwards and backwards: no value is larger than an activation."""
    cx = lm.Graph()
    x = cx.tensor((4, 3, 24, 24), name="x")
    weights = [cx.tensor((16, 3, 3, 3), name="v"), cx.tensor((16, 16, 3, 3), name="w")]
    h = x
    for w in weights:
        h = lm.nn.functional.avg_pool2d(lm.nn.functional.silu(h.conv2d(w, padding=1)), 2)
    for k, g in enumerate(lm.grad((h * h).sum(), weights)):
        g.output(f"g{k}")
    sizes = [b.size.value for k in lower_to_program(cx.graph(), MACHINE).kernels for b in k.buffers]
    assert max(sizes) == 4 * 16 * 24 * 24


def lanes(x: tuple[int, ...], w: tuple[int, ...], transposed: bool) -> tuple[Kernel, list[Loop]]:
    """The kernel of a product, x transposed or w, and its loops over vectors."""
    cx = lm.Graph()
    a, b = cx.tensor(x, name="x"), cx.tensor(w, name="w")
    (a.T @ b if transposed else a @ b.T).output("y")
    (kernel,) = lower_to_program(cx.graph(), MACHINE).kernels
    return kernel, [s for s in kernel.statements() if isinstance(s, Loop) and s.vector > 1]


def is_across(kernel: Kernel, loops: list[Loop]) -> bool:
    """Do results lie apart along the lanes?"""
    axes = {loop.axis for loop in loops}
    stores = [
        s for s in kernel.statements() if isinstance(s, Store) and s.buffer not in kernel.scratch
    ]
    return any(
        s.offset.coefficient(a) != 1 for s in stores for a in axes if a in s.offset.symbols()
    )


@pytest.mark.parametrize(("width", "packed"), [(1024, True), (1040, False)])
def test_a_factor_whose_lines_meet_in_the_cache_is_packed_for_the_lanes(
    width: int, packed: bool
) -> None:
    """A weight's gradient: columns of the activations, 4096 bytes apart from row to row."""
    kernel, loops = lanes((1024, width), (1024, 384), transposed=True)
    assert kernel.scratch  # else the gradients, which many rows read
    assert is_across(kernel, loops) is packed


@pytest.mark.parametrize(("rows", "packed"), [(128, False), (256, True)])
def test_rows_enough_pack_columns_that_lie_on_many_pages(rows: int, packed: bool) -> None:
    kernel, loops = lanes((512, rows), (512, 512), transposed=True)
    assert bool(kernel.scratch) is packed
    assert not is_across(kernel, loops)


@pytest.mark.parametrize(
    ("bits", "registers", "packed"), [(512, 32, False), (256, 16, True), (128, 32, True)]
)
def test_short_steps_pack_columns_for_fewer_rows(bits: int, registers: int, packed: bool) -> None:
    """Of a tile of few registers or of short ones: what a step reads is waited for."""
    cx = lm.Graph()
    (cx.tensor((64, 512), name="a") @ cx.tensor((512, 512), name="b")).output("y")
    (kernel,) = lower_to_program(cx.graph(), vectors(bits, registers)).kernels
    assert bool(kernel.scratch) is packed


@pytest.mark.parametrize(
    ("rows", "length", "parts"), [(64, 384, False), (64, 768, True), (128, 768, False)]
)
def test_lanes_hold_parts_of_long_sums_for_few_rows(rows: int, length: int, parts: bool) -> None:
    kernel, _ = lanes((rows, length), (512, length), transposed=False)
    assert any(isinstance(s, Reduce) for s in kernel.statements()) is parts


def test_a_depthwise_convolution_of_channels_that_lie_together() -> None:
    """Lanes run along the channels: the picture is read in place, the taps are packed."""
    cx = lm.Graph()
    x = cx.tensor((1, 56, 56, 96), name="x").permute(0, 3, 1, 2)
    x.conv2d(cx.tensor((96, 1, 3, 3), name="w"), padding=1, groups=96).output("y")
    (kernel,) = lower_to_program(cx.graph(), MACHINE).kernels
    assert kernel.scratch
    assert not any(isinstance(s, Reduce) for s in kernel.statements())


@pytest.mark.parametrize(("stride", "extent"), [(1, 56), (1, 112), (2, 113)])
def test_a_depthwise_tile_leaves_registers_for_its_window(stride: int, extent: int) -> None:
    """Nine taps stay in registers, beside a sum and a factor for each vector of a tile."""
    options = {"stride": stride, "padding": 1, "groups": 16}
    _, loops = tiles((1, 16, extent, extent), (16, 1, 3, 3), **options)
    size = prod(unroll for _, unroll, _ in loops)
    assert 6 <= size <= (32 - 9) // 2
    # In steps of two a row of results is as many rows of the picture.
    assert max(unroll for _, unroll, vector in loops if vector == 1) <= 8 // stride


@pytest.mark.parametrize(
    ("rows", "unrolled"),
    [(64, {("64", 8, 1), ("2048", 1, 8)}), (8192, {("2048", 8, 8)})],
)
def test_rows_that_come_from_memory_are_read_one_after_the_other(
    rows: int, unrolled: set[Any]
) -> None:
    """A weight that caches keep is read by eight rows, which share what they multiply with."""
    cx = lm.Graph()
    (cx.tensor((1, 2048), name="x") @ cx.tensor((rows, 2048), name="w").T).output("y")
    (found,) = lower_to_program(cx.graph(), MACHINE).kernels
    loops = [s for s in found.statements() if isinstance(s, Loop)]
    assert unrolled == {
        (str(s.axis.extent), s.unroll, s.vector) for s in loops if s.unroll * s.vector > 1
    }


def test_a_binary_search_runs_in_lanes_though_it_gathers_at_every_step() -> None:
    cx = lm.Graph()
    row = cx.tensor((1000,), name="row")
    lm.searchsorted(row, cx.tensor((100_000,), name="values")).output("y")
    for kernel in lower_to_program(cx.graph(), MACHINE).kernels:
        loops = [s for s in kernel.statements() if isinstance(s, Loop)]
        assert [loop.vector > 1 for loop in loops] == [True]
