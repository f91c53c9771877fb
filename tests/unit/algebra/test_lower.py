"""HLIR to terms over named axes, on tiny graphs: what remains of views, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.lower import lower
from luminal.algebra.term_text import to_text
from luminal.algebra.terms import term_order
from luminal.base import dtypes
from luminal.frontend.movement.indexing import gather_at
from luminal.frontend.movement.scatter import written
from luminal.shape.expression import const


def algebra(fn: Callable[..., Any], *shapes: tuple[Any, ...]) -> str:
    """The lines of the lowered graph of `fn` but for the heads of its axes."""
    cx = lm.Graph()
    s = cx.dim("s", 1, 64)
    named = [tuple(s if n == "s" else n for n in shape) for shape in shapes]
    tensors = [cx.tensor(shape, name=f"x{k}") for k, shape in enumerate(named)]
    fn(*tensors).output("y")
    lines = to_text(lower(cx.graph())).splitlines()[1:-1]
    return "\n".join(x.strip() for x in lines if not x.startswith(("  axis", "  dim")))


def ops(text: str) -> list[str]:
    """The operations, one a line, without operands."""
    return [line.split(" = ")[1].split("{")[0].split()[0] for line in text.splitlines()[:-1]]


def test_a_matrix_product_is_a_sum_of_products_over_shared_axes() -> None:
    text = algebra(lambda x, w: x @ w, (4, 6), (6, 3))
    assert text == (
        "%0 = Input x0 [a0, a1] : f32\n"
        "%1 = Input x1 [a1, a2] : f32\n"
        "%2 = Mul %0, %1 : f32\n"
        "%3 = Sum{a1} %2 : f32\n"
        "output y = %3 [a0, a2]"
    )


def test_a_value_by_itself_transposed_takes_one_rename() -> None:
    text = algebra(lambda x: x @ x.T, (4, 6))
    assert text == (
        "%0 = Input x0 [a0, a1] : f32\n"
        "%1 = At %0 {a0: a2} : f32\n"
        "%2 = Mul %0, %1 : f32\n"
        "%3 = Sum{a1} %2 : f32\n"
        "output y = %3 [a0, a2]"
    )


def test_a_swap_of_axes_is_one_simultaneous_substitution() -> None:
    text = algebra(lambda x: x + x.T, (4, 4))
    assert "%1 = At %0 {a0: a1, a1: a0} : f32" in text


def test_reshapes_and_transposes_leave_no_operation() -> None:
    def chain(x: Any) -> Any:
        return x.reshape(4, 6).transpose(0, 1).reshape(3, 2, 4).permute(2, 0, 1) + 1.0

    text = algebra(chain, (2, 2, 6))
    assert ops(text) == ["Input", "Literal", "Add"]
    assert "Input x0 [a0, a1, a2*a3]" in text
    assert text.endswith("[a0*a1, a2, a3]")


def test_heads_split_from_a_product_of_symbolic_length() -> None:
    def heads(x: Any, w: Any) -> Any:
        return (x @ w).reshape(x.shape[0], 3, 4).transpose(0, 1)

    text = algebra(heads, ("s", 8), (8, 12))
    assert ops(text) == ["Input", "Input", "Mul", "Sum"]
    assert text.endswith("output y = %3 [a2, a0, a3]")


def test_broadcasts_leave_no_operation() -> None:
    text = algebra(lambda x, b: x * b.reshape(1, 6) + b, (4, 6), (6,))
    assert ops(text) == ["Input", "Input", "Mul", "Add"]


def test_extents_of_1_have_no_axis() -> None:
    text = algebra(lambda x: x.sum(1, keepdim=True) + x.reshape(4, 1), (4, 1))
    assert "Sum" not in text
    assert text.endswith("[a0, 1]")


def test_flips_and_slices_are_one_At_with_fresh_axes() -> None:
    assert "%1 = At %0 {a0: 3 - a1} : f32" in algebra(lambda x: x.flip(0), (4,))
    text = algebra(lambda x: x[1:3].sum(0), (4, 2))
    assert "%1 = At %0 {a0: a2 + 1} : f32" in text
    assert "%2 = Sum{a2} %1 : f32" in text


def test_views_compose_to_one_At() -> None:
    text = algebra(lambda x: x.flip(0)[1:].flip(0)[1:], (6,))
    assert ops(text) == ["Input", "At"]


def test_a_convolution_is_a_contraction_with_a_window() -> None:
    text = algebra(lambda x, w: x.conv2d(w), (1, 2, 5, 5), (3, 2, 3, 3))
    assert ops(text) == ["Input", "At", "Input", "Mul", "Sum"]
    assert "{a1: a4 + a6, a2: a5 + a7}" in text


def test_pooling_without_overlap_needs_no_At() -> None:
    text = algebra(lambda x: x.max_pool2d(2), (1, 3, 4, 8))
    assert ops(text) == ["Input", "Max"]


def test_reductions_of_reductions_are_one() -> None:
    text = algebra(lambda x: x.sum(2).sum(0), (2, 3, 4))
    assert "Sum{a0, a2} %0" in text


def test_a_reduction_over_an_axis_its_operand_lacks_stays() -> None:
    text = algebra(lambda x: x.reshape(3, 1).expand(3, 7).sum(1), (3,))
    assert ops(text) == ["Input", "Sum"]


def test_padding_is_a_select_under_the_domain() -> None:
    text = algebra(lambda x: x.pad([(1, 2)]), (4,))
    assert ops(text) == ["Index", "Input", "At", "Literal", "Select"]
    assert "Index (a1 >= 1 & a1 <= 4)" in text


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_what_loses_nothing_leaves_no_operation(dtype: dtypes.DType) -> None:
    """Products with 1, in either order, and there and back; to the bit, also of NaN and -0."""
    with np.errstate(all="ignore"):
        data = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -3.0, 250, 1e-40])
        data = data.astype(dtype.numpy)
    cx = lm.Graph()
    x = cx.tensor(data.shape, dtype, name="x")
    through = [wide for wide in dtypes.ALL if dtypes.holds(wide, dtype)]
    for k, wide in enumerate(through):
        one = cx.constant(1, wide).cast(dtype)
        untouched = dtype is dtypes.bool_ or dtype.is_moved_only
        product = x if untouched else x * one if k % 2 else one * x
        product.cast(wide).cast(dtype).output(wide.name)
    lowered = lower(cx.graph())
    assert {root.term.op for root in lowered.roots} == {"Leaf"}
    for name, found in lm.compile(cx)({"x": data}).items():
        assert found.tobytes() == data.tobytes(), name


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d is not dtypes.bool_], ids=str)
def test_what_loses_something_is_computed(dtype: dtypes.DType) -> None:
    ends = [-0.3, 1e30 if dtype.size > 2 else 3e4]
    if dtype.is_int:
        limits = np.iinfo(dtype.numpy)
        ends = [limits.min, limits.max]
    data = np.array([*ends, 1, 2, 3], dtype.numpy)
    cx = lm.Graph()
    x = cx.tensor(data.shape, dtype, name="x")
    for narrow in dtypes.ALL:
        if narrow is not dtype and not dtypes.holds(narrow, dtype):
            x.cast(narrow).cast(dtype).output(narrow.name)
    assert {root.term.op for root in lower(cx.graph()).roots} == {"Cast"}
    found, wanted = (lm.compile(cx, backend)({"x": data}) for backend in ("cpu", "reference"))
    for name, expected in wanted.items():
        # Of floats of 8 bits NumPy's own comparison knows no NaN.
        shown = [
            each.astype("f8") if dtype.is_storage else each for each in (found[name], expected)
        ]
        np.testing.assert_array_equal(*shown, name)


def test_two_sorts_of_one_value_are_two_operations() -> None:
    cx = lm.Graph()
    x = cx.tensor((3, 4), name="x")
    x.sort(0)[0].output("y")
    x.sort(1)[0].output("z")
    roots = lower(cx.graph()).roots
    sorts = [t for t in term_order(r.term for r in roots) if t.op == "Sort"]
    assert len({t.attrs.site for t in sorts}) == len(sorts) == 2


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_index_0_and_tensor_0_are_told_apart(backend: str) -> None:
    """`x[i, 0]` and `x[0, i]` have equal maps but for which entry is the tensor's number, 0."""
    cx = lm.Graph()
    x, i = cx.tensor((4, 4), name="x"), cx.tensor((3,), lm.int64, "i")
    gather_at(x, i.extents, [i, const(0)]).output("column")
    gather_at(x, i.extents, [const(0), i]).output("row")
    ones = cx.ones(3)
    written(x, [i, const(0)], ones, "set").output("in column")
    written(x, [const(0), i], ones, "set").output("in row")
    array, places = np.arange(16, dtype=np.float32).reshape(4, 4), np.array([1, 2, 3])
    found = lm.compile(cx, backend)({"x": array, "i": places})
    np.testing.assert_array_equal(found["column"], array[1:, 0])
    np.testing.assert_array_equal(found["row"], array[0, 1:])
    assert found["in column"][1:, 0].tolist() == found["in row"][0, 1:].tolist() == [1, 1, 1]
    assert found["in column"].sum() == array.sum() - array[1:, 0].sum() + 3
