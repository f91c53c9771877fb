"""Counted loops in LLVM IR, with values carried from step to step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luminal.codegen.llvm_builder import I64, FunctionBuilder, IRValue

Trips = tuple[int | None, int | None]
Step = Callable[[IRValue, list[IRValue]], Sequence[IRValue]]


def counted(
    b: FunctionBuilder,
    name: str,
    bounds: tuple[IRValue, IRValue],
    size: int | IRValue,
    carried: Sequence[IRValue],
    step: Step,
    trips: Trips = (None, None),
) -> list[IRValue]:
    """A loop from start below stop by `size`; `step(i, carried)` writes its body.

    `trips` bounds the number of steps: a single one is written without a loop, and the first test
    is left out where at least one is certain. Gives the carried values after the loop.
    """
    start, stop = bounds
    at_least, at_most = trips
    if at_most is not None and at_most <= 0:
        return list(carried)
    if at_least == at_most == 1:
        return list(step(start, list(carried)))
    certain = at_least is not None and at_least >= 1
    head, done = b.label(f"{name}.loop"), b.label(f"{name}.done")
    before = b.current
    if certain:
        b.br(head)
    else:
        b.cond_br(b.icmp("slt", start, stop), head, done)
    b.block(head)
    i = b.phi(I64, [(start, before)])
    phis = [b.phi(value.type, [(value, before)]) for value in carried]
    following = list(step(i, phis))
    after = b.binary("add", i, b.const(I64, size) if isinstance(size, int) else size)
    latch = b.current
    for phi, value in zip((i, *phis), (after, *following), strict=True):
        b.add_incoming(phi, value, latch)
    b.cond_br(b.icmp("slt", after, stop), head, done)
    b.block(done)
    if certain:
        return following
    pairs = zip(carried, following, strict=True)
    return [b.phi(old.type, [(old, before), (new, latch)]) for old, new in pairs]
