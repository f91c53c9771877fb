"""Sums that products are added to while a lane goes on: one variable each, from first to last.

What a product by warp groups adds is there once it has been awaited. A copy that is made before
would be one of what is not there: so the sums of a chain of products, and what loops carry of them,
are all the same variable. What is computed may be many a sum's beginning, which is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.expand.ir import Apply, Carry, Kernel, Loop, MultiplyLeft, Operand, Value


def variables(kernel: Kernel) -> dict[int, int]:
    """For each value that is such a sum the one whose variable it is."""
    same: dict[int, int] = {}
    statements = [*kernel.statements()]
    computed = {s.out for s in statements if isinstance(s, Apply)}
    for statement in statements:
        if isinstance(statement, MultiplyLeft):
            for acc, out in zip(statement.acc, statement.outs, strict=True):
                _join(same, (out,) if acc in computed else (acc, out))
    carries = [c for loop in statements if isinstance(loop, Loop) for c in loop.carries]
    before = -1
    while before != len(same):  # loops stand in loops
        before = len(same)
        for carry in carries if same else ():
            members = _members(carry)
            if any(isinstance(value, Value) and value.id in same for value in members):
                _join(same, members)
    return {number: _first(same, number) for number in same}


def _members(carry: Carry) -> Sequence[Operand]:
    return carry.init, carry.result, carry.inner, carry.next


def _join(same: dict[int, int], operands: Sequence[Operand]) -> None:
    """Makes values one variable; constants have none."""
    numbers = [operand.id for operand in operands if isinstance(operand, Value)]
    firsts = [_first(same, number) for number in numbers]
    same.update(dict.fromkeys([*numbers, *firsts], min(firsts)))


def _first(same: dict[int, int], number: int) -> int:
    while same.get(number, number) != number:
        number = same[number]
    return number
