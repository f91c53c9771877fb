"""Groups of one Form make one kernel: whatever a kernel depends on is in the key, names are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.terms import Term, Terms
from luminal.base import dtypes
from luminal.base.dots import BF16_PAIRS
from luminal.compiler.assemble import PlacedStep
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.fused import Fused, Place, Store
from luminal.kernel.layout import Layout
from luminal.program.steps import KernelStep, LoopStep, Step
from luminal.shape.expression import axis, symbol
from tests.fuzz.programs.record import record
from tests.fuzz.programs.wide import dag
from tests.long_share import mostly_long
from tests.unit.kernel.machine import MACHINE


def kernel_steps(cx: lm.Graph) -> list[KernelStep]:
    found: list[KernelStep] = []
    parts = lower_by_stages(cx.graph(), MACHINE).partition
    waiting: list[Step] = [*parts.prologue, *parts.steps]
    while waiting:
        step = waiting.pop(0)
        waiting += step.body if isinstance(step, LoopStep) else ()
        found += [step] if isinstance(step, KernelStep) else []
    return found


@pytest.mark.parametrize("seed", mostly_long(range(8), 1))
def test_groups_of_one_form_make_one_kernel(seed: int) -> None:
    """Every fused of some DAGs placed by itself, and beside the first one of its form."""
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


def fused(
    make: Callable[[Terms, Term, Term], Term] = lambda terms, x, y: add(terms, x, y),
    a: Place = A,
    b: Place = B,
    c: Place = C,
) -> Fused:
    """`c = make(a, b)`."""
    terms = Terms()
    x, y = (terms.leaf(value, FRAME) for value in leaves())
    term = make(terms, x, y)
    return Fused((Store(term, c, FRAME),), {x: a, y: b}, frozenset())


def leaves() -> list[object]:
    cx = lm.Graph()
    return [cx.tensor((6, 10), name=name).value for name in "xy"]  # type: ignore[misc]


def add(terms: Terms, x: Term, y: Term) -> Term:
    return terms.pointwise("Add", (x, y), dtypes.float32)


def half(terms: Terms, x: Term) -> Term:
    literal = terms.literal(np.float32(0.5).tobytes(), dtypes.float32)
    return terms.pointwise("Mul", (x, literal), dtypes.float32)


def store(base: Fused, **changed: object) -> Fused:
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
    "plain": fused(),
    "another operation": fused(lambda t, x, y: t.pointwise("Mul", (x, y), dtypes.float32)),
    "a dtype of the result": fused(lambda t, x, y: t.pointwise("Add", (x, y), dtypes.float64)),
    "operands the other way": fused(lambda t, x, y: t.pointwise("Sub", (y, x), dtypes.float32)),
    "operands this way": fused(lambda t, x, y: t.pointwise("Sub", (x, y), dtypes.float32)),
    "one buffer twice": fused(b=place("a")),
    "in place": fused(c=place("a")),
    "in place of the other": fused(c=place("b")),
    "a layout": fused(a=place("a", layout=Layout(order=(1, 0)))),
    "a layout of the result": fused(c=place("c", layout=Layout(padding=16))),
    "an alignment": fused(a=place("a", layout=Layout(alignment=4))),
    "a frame": fused(a=place("a", frame=((N,), (M,)))),
    "a stored dtype": fused(c=place("c", dtype=dtypes.float64)),
    "an extent": fused(c=place("c", frame=((M,), (LONGER,)))),
    "added": store(fused(), add=True),
    "ordered": store(fused(), ordered=(M,)),
    "another frame of the store": store(fused(), frame=((N,), (M,))),
    "a store elsewhere": store(fused(), index=(M, N)),
    "a store at other positions": store(fused(), index=(M + 1, N)),
    "facts": replace(fused(), facts=(S >= 3,)),
    "other facts": replace(fused(), facts=(T >= 3,)),
    "moved": fused(moved),
    "moved further": fused(moved_further),
    "a literal": fused(lambda t, x, y: add(t, half(t, x), y)),
    "a literal elsewhere": fused(lambda t, x, y: add(t, x, half(t, y))),
    "a sum": fused(summed("Sum", (N,)), c=place("c", frame=((M,), ()))),
    "a maximum": fused(summed("Max", (N,)), c=place("c", frame=((M,), ()))),
    "a sum over the other axis": fused(summed("Sum", (M,)), c=place("c", frame=((), (N,)))),
    "a condition": fused(index(M < 3)),
    "another condition": fused(index(M < 4)),
    "a condition on a dim": fused(index(M < S)),
    "a condition on another dim": fused(index(M < T)),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_a_kernel_depends_on_is_in_the_key(name: str) -> None:
    same = [other for other, each in DIFFERENT.items() if each.form.key == DIFFERENT[name].form.key]
    assert same == [name]


def test_what_is_local_is_in_the_key() -> None:
    base = fused(summed("Sum", (N,)), c=place("c", frame=((M,), ())))
    assert replace(base, local=frozenset(base.reductions)).form.key != base.form.key


def test_what_a_dot_computes_is_in_the_key() -> None:
    base = fused(summed("Sum", (N,)), c=place("c", frame=((M,), ())))
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
    other = Fused(
        (Store(add(terms, x, y), Place("f", dtypes.float32, frame), frame),), reads, frozenset()
    )
    assert other.form.key == fused().form.key
    assert other.form.operands == ("d", "e", "f")
    assert fused().form.operands == ("a", "b", "c")
