"""Steps that are told by pointers to whole row-major tensors: kernels written by hand, and what
ranks do together.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.algebra.terms import OpaqueAttrs, Term
from luminal.program.buffers import BufferKind
from luminal.program.scope import Scope
from luminal.program.steps import CollectiveStep, CustomStep, Unit, leaves_of
from luminal.shape.expression import axis


def custom(scope: Scope, term: Term) -> list[Unit]:
    """A hand-written kernel, told by pointers to row-major tensors; all its results at once."""
    attrs: OpaqueAttrs = term.attrs
    before: list[Unit] = []
    edges = zip(term.args, attrs.frames, strict=True)
    operands = tuple(scope.row_major(arg, frame, before) for arg, frame in edges)
    used, results = scope.siblings(term), []
    for k, (shape, dtype) in enumerate(attrs.hlir.types):
        if k in used:
            results.append(scope.home(used[k]))
        else:
            frame = tuple((axis(f"i{d}", extent),) for d, extent in enumerate(shape))
            buffer = scope.memory.buffer(BufferKind.ARENA, dtype, shape)
            results.append(scope.memory.place(buffer, frame))
    origins = () if term.recorded is None else (term.recorded,)
    step = CustomStep(attrs.hlir, operands, tuple(results), origins)
    reads = frozenset(term.args)
    return behind(before, Unit(tuple(used.values()), reads, (step,), leaves=leaves_of(reads)))


def collective(scope: Scope, term: Term) -> list[Unit]:
    """What all ranks do together, told by pointers to row-major tensors."""
    attrs: OpaqueAttrs = term.attrs
    before: list[Unit] = []
    operand = scope.row_major(term.args[0], attrs.frames[0], before)
    step = CollectiveStep(attrs.hlir, operand, scope.home(term))
    reads = frozenset(term.args)
    unit = Unit((term,), reads, (step,), leaves=leaves_of(reads), after=scope.before.get(term))
    return behind(before, unit)


def behind(before: Sequence[Unit], unit: Unit) -> list[Unit]:
    """A unit that reads copies, and those: wherever it moves, they come first."""
    unit.before = tuple(before)
    return [*before, unit]
