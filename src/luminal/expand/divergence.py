"""Which values differ between the lanes of a group, and where some lanes may miss others.

What is computed of the lane's number differs, as does what is loaded from where it says, or carried
through a loop that takes other steps in other lanes, and what lanes hold of a block. A barrier or
an exchange under a condition or in a loop that differs is one at which some lanes wait for others
that never come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.expand.ir import (
    Apply,
    Exchange,
    If,
    Kernel,
    Load,
    LoadMatrix,
    LoadSums,
    Loop,
    Meeting,
    Multiply,
    MultiplyLeft,
    Operand,
    Statement,
    Value,
)


def divergent(kernel: Kernel) -> list[Statement]:
    """The loops and ifs in which lanes meet, and that not all lanes of a group may come to."""
    if kernel.lane is None:
        return []
    varying = _varying(kernel, kernel.lane)
    return [
        statement
        for statement in kernel.statements()
        if isinstance(statement, Loop | If)
        and any(_is_among(control, varying) for control in _controls(statement))
        and _has_meeting(statement.body)
    ]


def _varying(kernel: Kernel, lane: Value) -> set[int]:
    """The values that may differ between lanes."""
    statements = [*kernel.statements()]
    kinds = Multiply | MultiplyLeft | LoadMatrix | LoadSums
    held = [s.outs for s in statements if isinstance(s, kinds)]
    varying = {lane.id, *(out.id for outs in held for out in outs)}
    before = 0
    while len(varying) > before:  # loops carry values backwards
        before = len(varying)
        for statement in statements:
            for out, operands in _flows(statement):
                if any(_is_among(operand, varying) for operand in operands):
                    varying.add(out.id)
    return varying


def _flows(statement: Statement) -> Iterable[tuple[Value, Sequence[Operand]]]:
    """What a statement defines, with what decides whether it differs."""
    match statement:
        case Apply(out, _, args):
            yield out, args
        case Load(out, _, address, mask):
            yield out, (address,) if mask is None else (address, mask)
        case Exchange(out, value):
            yield out, (value,)
        case Loop(index):
            controls = _controls(statement)
            yield index, controls
            for carry in statement.carries:
                for value in (carry.inner, carry.result):
                    yield value, (*controls, carry.init, carry.next)
        case If(condition, choices):
            for choice in choices:
                yield choice.result, (condition, choice.then, choice.otherwise)


def _controls(statement: Loop | If) -> tuple[Operand, ...]:
    if isinstance(statement, Loop):
        return statement.start, statement.stop
    return (statement.condition,)


def _is_among(operand: Operand, values: set[int]) -> bool:
    return isinstance(operand, Value) and operand.id in values


def _has_meeting(body: Sequence[Statement]) -> bool:
    return any(
        _has_meeting(statement.body)
        if isinstance(statement, Loop | If)
        else isinstance(statement, Meeting)
        for statement in body
    )
