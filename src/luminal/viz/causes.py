"""What in a kernel's code costs time, in words: how its lanes run, what its busiest loop does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from luminal.kernel.tile_ir import Contract, Kernel, Load, Loop, Map, Statement, Store
from luminal.shape.expression import TRUE, Expression, Symbol

OTHERS = 4  # operations beside products that a sentence names


class _Nest(NamedTuple):
    """A loop with no loop in it, those around it, and how often it runs as far as that is known."""

    loops: tuple[Loop, ...]
    times: int

    @property
    def statements(self) -> list[Statement]:
        """The statements of the innermost loop, with those below its conditions."""
        return [*_flat(self.loops[-1].body)]


def causes(kernel: Kernel) -> list[str]:
    """Sentences about a kernel; none for one whose body has no loops, as a sort's or a call."""
    nests = [*_nests(kernel.body, (), 1)]
    if not nests:
        return []
    busiest = max(nests, key=lambda nest: nest.times)
    return [*_lanes(nests), *_work(busiest), *_steps(busiest)]


def _nests(body: tuple[Statement, ...], around: tuple[Loop, ...], count: int) -> Iterator[_Nest]:
    for statement in body:
        inner: tuple[Statement, ...] = getattr(statement, "body", ())
        if not isinstance(statement, Loop):
            yield from _nests(inner, around, count)
            continue
        extent = statement.stop - statement.start
        times = count * (extent.value if extent.is_const else 2)
        within = [*_nests(inner, (*around, statement), times)]
        yield from within or [_Nest((*around, statement), times)]


def _flat(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        yield from _flat(getattr(statement, "body", ()))


def _lanes(nests: list[_Nest]) -> Iterator[str]:
    """How many numbers one instruction computes."""
    loops = {loop for nest in nests for loop in nest.loops}
    widest = max(loop.vector for loop in loops)
    lanes = max(loop.lanes.count for loop in loops)
    if widest > 1 or lanes > 1:
        axes = sorted({loop.axis.name for loop in loops if max(loop.vector, loop.lanes.count) > 1})
        yield f"{max(widest, lanes)} numbers side by side, along {' and '.join(axes)}"
    else:
        yield "no loop runs in vectors: numbers are computed one by one"


def _work(nest: _Nest) -> Iterator[str]:
    """What the busiest loop does beside products."""
    statements = nest.statements
    operations = Counter(s.op for s in statements if isinstance(s, Map))
    products = sum(isinstance(s, Contract) for s in statements)
    loads = [s for s in statements if isinstance(s, Load)]
    guarded = sum(load.guard is not TRUE for load in loads)
    parts = [_counted(products, "product")] if products else []
    parts += [f"{n} {op}" for op, n in operations.most_common(OTHERS)]
    if len(operations) > OTHERS:
        parts.append(f"{len(operations) - OTHERS} more kinds")
    conditional = f", {guarded} of them under conditions" if guarded else ""
    parts += [_counted(len(loads), "load") + conditional] if loads else []
    stores = sum(isinstance(s, Store) for s in statements)
    parts += [_counted(stores, "store")] if stores else []
    if parts:
        yield f"its busiest loop ({nest.loops[-1].axis.name}) has {', '.join(parts)}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + "s" * (count != 1)


def _steps(nest: _Nest) -> Iterator[str]:
    """Which accesses of the busiest loop do not lie side by side along the lanes."""
    along = [loop.axis for loop in nest.loops if loop.vector > 1]
    if not along:
        return
    accesses = [s for s in nest.statements if isinstance(s, Load | Store)]
    gathers = sum(bool(access.indices) for access in accesses)
    apart = [a for a in accesses if not a.indices and _step(a.offset, along[-1]) not in (0, 1)]
    if gathers:
        yield f"loads and stores at computed places, one by one: {gathers} of {len(accesses)}"
    if apart:
        steps = sorted({str(_step(a.offset, along[-1])) for a in apart})
        yield (
            f"loads and stores whose neighbours along {along[-1].name} lie {', '.join(steps)} "
            f"elements apart: {len(apart)} of {len(accesses)}"
        )


def _step(offset: Expression, axis: Symbol) -> Expression | int | str:
    """How far an offset moves with an axis."""
    if axis not in offset.symbols():
        return 0
    step = offset.substitute({axis: axis + 1}) - offset
    return step.value if step.is_const else "some"
