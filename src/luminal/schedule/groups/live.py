"""How many registers the values of expanded IR need at once, about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.expand.ir import (
    Accumulate,
    Apply,
    AtPhase,
    Await,
    Barrier,
    Begin,
    Commit,
    Copy,
    CopyBox,
    Exchange,
    Fetch,
    If,
    Kernel,
    Load,
    LoadMatrix,
    LoadSums,
    Loop,
    Multiply,
    MultiplyLeft,
    Operand,
    Publish,
    Statement,
    Store,
    Value,
    every,
)

WORD = 4  # bytes of a register


def live_words(kernel: Kernel) -> int:
    """The most words of 32 bits that a lane holds at one time, if nothing is computed twice."""
    walk = _Walk()
    walk.before(kernel.setup, walk.before(kernel.body, set()))
    return walk.most


def unused(kernel: Kernel) -> set[int]:
    """The numbers of operations' results of which nothing comes; compilers leave them out."""
    statements = [*kernel.statements()]
    others = [s for s in statements if not isinstance(s, Apply)]
    read = [operand for s in others for operand in (*_used(s), *_ended(s))]
    used = {operand.id for operand in read if isinstance(operand, Value)}
    applied = [s for s in statements if isinstance(s, Apply)]
    for statement in reversed(applied):
        if statement.out.id in used:
            used |= {arg.id for arg in statement.args if isinstance(arg, Value)}
    return {statement.out.id for statement in applied} - used


class _Walk:
    """From the end to the beginning: a value lives from where it is defined to its last use."""

    def __init__(self) -> None:
        self.most = 0
        self.words: dict[int, int] = {}

    def before(self, body: Sequence[Statement], after: set[int]) -> set[int]:
        """What lives before a body, of what lives after it."""
        live = set(after)
        count = sum(self.words[number] for number in live)
        for statement in reversed(body):
            inside = set[int]()
            if isinstance(statement, Loop | If):
                inside = self.inside(statement, live)
            for value in _defined(statement):
                if value.id in live:
                    live.discard(value.id)
                    count -= self.words[value.id]
            for number in (*self.noted(_used(statement)), *inside):
                if number not in live:
                    live.add(number)
                    count += self.words[number]
            self.most = max(self.most, count)
        return live

    def inside(self, statement: Loop | If, after: set[int]) -> set[int]:
        """What a body needs of what is defined before it."""
        defined = {value.id for value in _defined(statement)}
        if isinstance(statement, If):
            end = set(self.noted(choice.then for choice in statement.choices))
            return self.before(statement.body, (after - defined) | end) - after
        # What the body reads lives in all its trips, as what is carried to the next one does.
        begun = {statement.index.id, *(carry.inner.id for carry in statement.carries)}
        inner = {value.id for value in _made(statement.body)} | begun
        outer = {number for number in self.noted(_read(statement.body)) if number not in inner}
        end = outer | set(self.noted(carry.next for carry in statement.carries))
        return self.before(statement.body, (after - defined) | end) - begun - after

    def noted(self, operands: Iterable[Operand | None]) -> list[int]:
        """The numbers of values, whose words are noted."""
        numbers = []
        for operand in operands:
            if isinstance(operand, Value):
                dtype, lanes = operand.type.dtype, operand.type.lanes
                size = 0 if dtype.kind == "bool" else -(-dtype.size * lanes // WORD)
                self.words[operand.id] = size
                numbers.append(operand.id)
        return numbers


def _defined(statement: Statement) -> tuple[Value, ...]:
    match statement:
        case Apply(out) | Load(out) | Exchange(out):
            return (out,)
        case Multiply(outs) | MultiplyLeft(outs) | LoadMatrix(outs) | LoadSums(outs):
            return outs
        case Loop(carries=carries):
            return tuple(carry.result for carry in carries)
        case If(choices=choices):
            return tuple(choice.result for choice in choices)
    return ()


def _used(statement: Statement) -> tuple[Operand | None, ...]:
    """What a statement itself reads."""
    match statement:
        case Apply(args=args):
            return args
        case Load(address=address, mask=mask):
            return address, mask
        case Store(address=address, value=value, mask=mask):
            return address, value, mask
        case Fetch(address=address) | LoadMatrix(address=address) | LoadSums(address=address):
            return (address,)
        case Multiply(acc=acc, a=a, b=b):
            return *acc, *a, *b, *statement.scales
        case MultiplyLeft(acc=acc):
            return *acc, *statement.held, *(factor.address for factor in statement.left)
        case Accumulate(address=address, adds=adds):
            left = *statement.left, *statement.scales
            return address, *(factor.address for factor in left), adds
        case Begin(lifts):
            return tuple(lift.address for lift in lifts)
        case Exchange(value=value):
            return (value,)
        case Loop(start=start, stop=stop, carries=carries):
            return start, stop, *(carry.init for carry in carries)
        case If(condition=condition, choices=choices):
            return condition, *(choice.otherwise for choice in choices)
        case Copy(address=address, source_address=source, live=live):
            return address, source, live
        case AtPhase(address=address, number=number):
            return address, number
        case CopyBox(address=address, origin=origin, turn=turn):
            return address, *origin, turn
        case Barrier() | Publish() | Commit() | Await():
            return ()


def _read(body: Sequence[Statement]) -> Iterable[Operand | None]:
    """All that the statements of a body read, those inside included."""
    for statement in every(body):
        yield from _used(statement)
        yield from _ended(statement)


def _ended(statement: Statement) -> Iterable[Operand]:
    """What the end of a statement's body reads."""
    if isinstance(statement, Loop):
        yield from (carry.next for carry in statement.carries)
    if isinstance(statement, If):
        yield from (choice.then for choice in statement.choices)


def _made(body: Sequence[Statement]) -> Iterable[Value]:
    """All that the statements of a body define, those inside included."""
    for statement in every(body):
        yield from _defined(statement)
        if isinstance(statement, Loop):
            yield statement.index
            yield from (carry.inner for carry in statement.carries)
