"""From shapes to dims: what a Signature asks for, what it takes where nobody says, its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from luminal.base import dtypes
from luminal.base.errors import DimError, GraphError, ShapeError
from luminal.hlir.graph import Builder, Graph, Output
from luminal.runtime.binding import InputSpec, Signature, explained, unmet
from luminal.shape.expression import Expression, Symbol, all_of, const, symbol

A, B, C = (symbol(name, 0, 100) for name in "abc")


def signature(
    shapes: Mapping[str, Sequence[Expression]],
    requirements: Sequence[Expression] = (),
    dims: Sequence[Symbol] = (),
    intervals: Mapping[str, tuple[int, int]] | None = None,
) -> Signature:
    builder = Builder()
    sinks = []
    for name, shape in shapes.items():
        x = builder.input(name, tuple(shape), dtypes.float32)
        sinks.append(Output(builder.apply("Mul", x, x), f"{name}.squared"))
    return Signature(Graph(tuple(sinks), tuple(dims), tuple(requirements)), intervals)


# --- dims from shapes -----------------------------------------------------------------------------


def test_shapes_and_callers_give_dims() -> None:
    found = signature({"x": (A, B), "y": (A + B,)}, dims=(C,))
    assert found.resolve([(2, 3), (5,)], {}).dims == {"a": 2, "b": 3}
    assert found.resolve([(2, 3), (5,)], {"c": 7, A: 2}).dims == {"a": 2, "b": 3, "c": 7}


@pytest.mark.parametrize(
    ("shapes", "given", "error", "text"),
    [
        ([(2, 3), (6,)], {}, ShapeError, r"y: expected shape \(a \+ b,\), got \(6,\): dimension 0 "
         r"is 6, not 5; a \+ b = 5 with a = 2, b = 3"),
        ([(2,), (6,)], {}, ShapeError, r"x: expected shape \(a, b\), got \(2,\)"),
        ([(2, 3), (5,)], {"a": 4}, DimError, "a: dims says 4, x of shape .* says 2; all occurr"),
        ([(101, 3), (104,)], {}, DimError, r"a: 101 is outside its interval 0\.\.100"),
        ([(2, 3), (5,)], {"z": 4}, DimError, r"z: no such dim; the dims are a, b, c$"),
        ([(2, 3), (5,)], {"c": True}, DimError, "c: True is not an int"),
        ([(2, 3), (5,)], {"c": 1.0}, DimError, r"c: 1\.0 is not an int"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    shapes: list[tuple[int, ...]], given: dict[str, int], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        signature({"x": (A, B), "y": (A + B,)}, dims=(C,)).resolve(shapes, given)


def test_a_graph_without_dims_says_so() -> None:
    with pytest.raises(DimError, match="a: no such dim; the dims are none"):
        signature({"x": (const(2),)}).resolve([(2,)], {"a": 1})


def test_two_inputs_that_disagree() -> None:
    with pytest.raises(DimError, match=r"a: x says 2, y of shape \(3,\) says 3"):
        signature({"x": (A,), "y": (A,)}).resolve([(2,), (3,)], {})


def test_the_ends_of_an_interval_belong_to_it() -> None:
    found = signature({"x": (A,)}, intervals={"a": (3, 5)})
    for n in (3, 5):
        assert found.resolve([(n,)], {}).dims == {"a": n}
    for n in (2, 6):
        with pytest.raises(DimError, match=rf"a: {n} is outside its interval 3\.\.5"):
            found.resolve([(n,)], {})


def test_inputs_beside_give_dims_and_must_fit() -> None:
    found = signature({"x": (A + B,)})
    beside = InputSpec("z", (A, B, A + C), dtypes.float32)
    assert found.resolve([(5,)], {}, [(beside, (2, 3, 99))]).dims == {"a": 2, "b": 3}
    fits = InputSpec("z", (A, B, A + B), dtypes.float32)
    assert found.resolve([(5,)], {}, [(fits, (2, 3, 5))]).dims == {"a": 2, "b": 3}
    with pytest.raises(ShapeError, match=r"z: expected shape .* dimension 2 is 6, not 5"):
        found.resolve([(5,)], {}, [(fits, (2, 3, 6))])


def test_a_name_belongs_to_one_input() -> None:
    builder = Builder()
    x, y = (builder.input("x", (const(n),), dtypes.float32) for n in (2, 3))
    sinks = tuple(Output(builder.apply("Mul", v, v), f"y{k}") for k, v in enumerate((x, y)))
    with pytest.raises(GraphError, match="x: two inputs have this name; rename one"):
        Signature(Graph(sinks))


# --- requirements ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (A + B <= 4, "requirement a + b <= 4 does not hold: the left side is 5, the right side 4, "
         "with a = 2, b = 3"),
        (A.eq(B), "requirement a == b does not hold: the left side is 2, the right side 3, "
         "with a = 2, b = 3"),
        (all_of([A <= 9, B <= 2]), "requirement b <= 2 does not hold: the left side is 3, "
         "the right side 2, with b = 3"),
        (~all_of([A <= 9, B <= 9]), "does not hold: "),
    ],
)  # fmt: skip
def test_a_requirement_that_does_not_hold(condition: Expression, text: str) -> None:
    assert text in unmet(condition, {"a": 2, "b": 3})
    if condition.op != "and":
        with pytest.raises(DimError, match="does not hold"):
            signature({"x": (A, B)}, [condition]).resolve([(2, 3)], {})


def test_names_stand_in_order() -> None:
    many = [symbol(name, 0, 9) for name in "hgfedcba"]
    total = sum(many, const(0))
    dims = {s.name: k for k, s in enumerate(many)}
    assert explained(total, dims).endswith(
        "= 28 with a = 7, b = 6, c = 5, d = 4, e = 3, f = 2, g = 1, h = 0"
    )
    assert explained(const(3), {}) == "3 = 3"
    found = signature({"x": many})
    with pytest.raises(DimError, match=r"the dims are a, b, c, d, e, f, g, h$"):
        found.resolve([(1,) * 8], {"z": 1})


# --- dims that nobody gives -----------------------------------------------------------------------


def test_upper_ends() -> None:
    found = signature({"x": (A, B)}, intervals={"b": (0, 9)})
    assert found.upper_ends({}) == {"a": 100, "b": 9}
    assert found.upper_ends({"b": 4}) == {"a": 100, "b": 4}
    with pytest.raises(DimError, match="b: 10 is outside"):
        found.upper_ends({"b": 10})


def test_the_largest_is_halved_until_requirements_hold() -> None:
    found = signature({"x": (A, B)}, [A + B <= 60], intervals={"b": (0, 40)})
    assert found.upper_ends({}) == {"a": 25, "b": 20}  # 100 + 40, 50 + 40, 25 + 40, 25 + 20
    assert found.upper_ends({"b": 40}) == {"a": 12, "b": 40}
    assert found.upper_ends({"a": 59}) == {"a": 59, "b": 1}
    assert found.upper_ends({"a": 100}) == {"a": 100, "b": 0}  # no way out
    assert found.upper_ends({"a": 50, "b": 40}) == {"a": 50, "b": 40}  # the caller's own fault


def test_halving_stops_at_the_lower_end() -> None:
    found = signature({"x": (A, B)}, [A + B <= 8], intervals={"a": (6, 80), "b": (1, 10)})
    assert found.upper_ends({}) == {"a": 6, "b": 2}  # b goes on where a is at its end


def test_each_requirement_has_its_turn() -> None:
    found = signature({"x": (A, B, C)}, [A <= 30, C <= 10])
    assert found.upper_ends({}) == {"a": 25, "b": 100, "c": 6}


def test_every_dim_may_have_to_go_all_the_way() -> None:
    many = [symbol(name, 0, 2**31 - 1) for name in "abcd"]
    found = signature({"x": many}, [sum(many, const(0)) <= 0])
    assert found.upper_ends({}) == dict.fromkeys("abcd", 0)
