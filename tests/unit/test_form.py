"""Groups of one Form make one kernel: whatever a kernel depends on is in the key, names are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal import dtypes
from luminal.algebra.terms import Term, Terms
from luminal.assemble import PlacedStep
from luminal.compiler import lower_by_stages
from luminal.dots import BF16_PAIRS
from luminal.kernel.group import Group, Place, Store
from luminal.kernel.layout import Layout
from luminal.program.steps import KernelStep, LoopStep, Step
from luminal.shape.expression import axis, symbol
from tests.fuzz.programs.record import record
from tests.fuzz.programs.wide import dag
from tests.long_share import mostly_long
from tests.unit.test_placement import MACHINE


def kernel_steps(cx: lm.Graph) -> list[KernelStep]:
    found: list[KernelStep] = []
    parts = lower_by_stages(cx.graph(), MACHINE).partition
    waiting: list[Step] = [*parts.prologue, *parts.steps]
    while waiting:
        step = waiting.pop(0)
        waiting += step.body if isinstance(step, LoopStep) else ()
        found += [step] if isinstance(step, KernelStep) else []
    return found


@pytest.mark.parametrize("seed", mostly_long(range(8), 3))
def test_groups_of_one_form_make_one_kernel(seed: int) -> None:
    """Every group of some DAGs placed by itself, and beside the first one of its form."""
    first: dict[object, PlacedStep] = {}
    shared = 0
    for number in range(seed, 32, 8):
        for step in kernel_steps(record(dag(number, smallest=60, largest=200)).cx):
            placed = PlacedStep.of(step, MACHINE, ())
            known = first.setdefault(step.key, placed)
            shared += known is not placed
            assert known.text == placed.text
            assert known.launch == placed.launch
            assert known.operands == placed.operands
    assert shared >= 3


def test_layers_are_placed_once() -> None:
    cx = lm.Graph()
    for layer in range(6):
        x, w = cx.tensor((5, 16), name=f"x{layer}"), cx.weight((16, 16), name=f"w{layer}")
        (x @ w).softmax(-1).output(f"y{layer}")
    stages = lower_by_stages(cx.graph(), MACHINE)
    assert len(stages.partition.steps) == 12
    assert len(stages.placed) <= 4  # axes are named in order, but a10 comes before a9
    operands = [launch.operands for launch in stages.program.launches]
    assert len(set(operands)) == len(stages.partition.steps)


# --- one thing changed at a time

M, N = axis("m", 6), axis("n", 10)
FRAME = ((M,), (N,))


def place(operand: object, **changed: object) -> Place:
    return replace(Place(operand, dtypes.float32, FRAME), **changed)  # type: ignore[arg-type]


A, B, C = map(place, "abc")


def group(
    make: Callable[[Terms, Term, Term], Term] = lambda terms, x, y: add(terms, x, y),
    a: Place = A,
    b: Place = B,
    c: Place = C,
) -> Group:
    """`c = make(a, b)`."""
    terms = Terms()
    x, y = (terms.leaf(value, FRAME) for value in leaves())
    term = make(terms, x, y)
    return Group((Store(term, c, FRAME),), {x: a, y: b}, frozenset())


def leaves() -> list[object]:
    cx = lm.Graph()
    return [cx.tensor((6, 10), name=name).value for name in "xy"]  # type: ignore[misc]


def add(terms: Terms, x: Term, y: Term) -> Term:
    return terms.pointwise("Add", (x, y), dtypes.float32)


def half(terms: Terms, x: Term) -> Term:
    literal = terms.literal(np.float32(0.5).tobytes(), dtypes.float32)
    return terms.pointwise("Mul", (x, literal), dtypes.float32)


def store(base: Group, **changed: object) -> Group:
    return replace(base, stores=(replace(base.stores[0], **changed),))  # type: ignore[arg-type]


def moved(terms: Terms, x: Term, y: Term) -> Term:
    return add(terms, terms.at(x, {M: M + 1}), y)


def moved_further(terms: Terms, x: Term, y: Term) -> Term:
    return add(terms, terms.at(x, {M: M + 2}), y)


def summed(op: str, axes: tuple[object, ...]) -> Callable[[Terms, Term, Term], Term]:
    return lambda terms, x, y: terms.reduce(op, axes, add(terms, x, y))  # type: ignore[arg-type]


def index(condition: object) -> Callable[[Terms, Term, Term], Term]:
    return lambda terms, x, y: terms.pointwise(
        "Select",
        (terms.boolean(condition), x, y),
        dtypes.float32,  # type: ignore[arg-type]
    )


S = symbol("s", 1, 9)
T = symbol("t", 1, 9)
LONGER = axis("n", 11)

DIFFERENT = {
    "plain": group(),
    "another operation": group(lambda t, x, y: t.pointwise("Mul", (x, y), dtypes.float32)),
    "a dtype of the result": group(lambda t, x, y: t.pointwise("Add", (x, y), dtypes.float64)),
    "operands the other way": group(lambda t, x, y: t.pointwise("Sub", (y, x), dtypes.float32)),
    "operands this way": group(lambda t, x, y: t.pointwise("Sub", (x, y), dtypes.float32)),
    "one buffer twice": group(b=place("a")),
    "in place": group(c=place("a")),
    "in place of the other": group(c=place("b")),
    "a layout": group(a=place("a", layout=Layout(order=(1, 0)))),
    "a layout of the result": group(c=place("c", layout=Layout(padding=16))),
    "an alignment": group(a=place("a", layout=Layout(alignment=4))),
    "a frame": group(a=place("a", frame=((N,), (M,)))),
    "a stored dtype": group(c=place("c", dtype=dtypes.float64)),
    "an extent": group(c=place("c", frame=((M,), (LONGER,)))),
    "added": store(group(), add=True),
    "ordered": store(group(), ordered=(M,)),
    "another frame of the store": store(group(), frame=((N,), (M,))),
    "a store elsewhere": store(group(), index=(M, N)),
    "a store at other positions": store(group(), index=(M + 1, N)),
    "facts": replace(group(), facts=(S >= 3,)),
    "other facts": replace(group(), facts=(T >= 3,)),
    "moved": group(moved),
    "moved further": group(moved_further),
    "a literal": group(lambda t, x, y: add(t, half(t, x), y)),
    "a literal elsewhere": group(lambda t, x, y: add(t, x, half(t, y))),
    "a sum": group(summed("Sum", (N,)), c=place("c", frame=((M,), ()))),
    "a maximum": group(summed("Max", (N,)), c=place("c", frame=((M,), ()))),
    "a sum over the other axis": group(summed("Sum", (M,)), c=place("c", frame=((), (N,)))),
    "a condition": group(index(M < 3)),
    "another condition": group(index(M < 4)),
    "a condition on a dim": group(index(M < S)),
    "a condition on another dim": group(index(M < T)),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_a_kernel_depends_on_is_in_the_key(name: str) -> None:
    same = [other for other, each in DIFFERENT.items() if each.form.key == DIFFERENT[name].form.key]
    assert same == [name]


def test_what_is_local_is_in_the_key() -> None:
    base = group(summed("Sum", (N,)), c=place("c", frame=((M,), ())))
    assert replace(base, local=frozenset(base.reductions)).form.key != base.form.key


def test_what_a_dot_computes_is_in_the_key() -> None:
    base = group(summed("Sum", (N,)), c=place("c", frame=((M,), ())))
    (total,) = base.reductions
    assert replace(base, dots={total: BF16_PAIRS}).form.key != base.form.key


def test_names_are_not_in_the_key() -> None:
    """Other buffers, other axes of the same extents and order, other leaves."""
    p, q = axis("p", 6), axis("q", 10)
    terms = Terms()
    terms.literal(b"\0\0\0\0", dtypes.float32)  # numbers the terms otherwise
    x, y = (terms.leaf(value, ((p,), (q,))) for value in leaves())  # type: ignore[arg-type]
    frame = ((p,), (q,))
    reads = {x: Place("d", dtypes.float32, frame), y: Place("e", dtypes.float32, frame)}
    other = Group(
        (Store(add(terms, x, y), Place("f", dtypes.float32, frame), frame),), reads, frozenset()
    )
    assert other.form.key == group().form.key
    assert other.form.operands == ("d", "e", "f")
    assert group().form.operands == ("a", "b", "c")
