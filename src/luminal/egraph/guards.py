"""The guards of rules with a handler, over what the handler found: as rows, they can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.algebra.frames import is_never_empty, upper
from luminal.algebra.terms import AtAttrs, Phase
from luminal.base.costs import Shares
from luminal.egraph.intern import positions
from luminal.egraph.table import Table
from luminal.rules import Rule, notation
from luminal.rules.notation import AxesOf, Compare, Property, SetOf, SetOperation, SetPattern
from luminal.shape.expression import Expression, Symbol

Bound = Mapping[str, "int | frozenset[Symbol] | AtAttrs"]
"""What the variables of a rule stand for: classes, sets of axes, index maps."""


# Guards are rows, not code, so each can be left out by a test: then the rule must be found wrong,
# or the e-graph larger if it is marked `growth`.
class Guards:
    """The guards of one rule in one e-graph, for a machine that work is shared out on."""

    def __init__(self, rule: Rule, table: Table, shares: Shares) -> None:
        self.rule = rule
        self.shares = shares
        self.table = table
        self.guards = [notation.guard(text) for text in rule.guards]

    def hold(self, **bound: int | frozenset[Symbol] | AtAttrs) -> bool:
        """Do all guards of the rule hold, with each of their variables given?"""
        return all(self._holds(guard, bound) for guard in self.guards)

    def _holds(self, guard: notation.Guard, bound: Bound) -> bool:
        if isinstance(guard, Compare):
            left, right = self._axes(guard.left, bound), self._axes(guard.right, bound)
            return {"==": left == right, "!=": left != right, "<=": left <= right}[guard.op]
        return self._property(guard, bound)

    def _property(self, guard: Property, bound: Bound) -> bool:
        # One row per guard, as in `rule_text`: a rule asks the same questions in Python as in
        # egglog, and tests take each guard out to see that the rule needs it.
        name, args = guard.name, guard.args
        if name == "nonempty":
            return all(map(is_never_empty, self._axes(notation.axes(args[0]), bound)))
        if name in ("moves", "shifts"):
            indices = [index for _, index in _map(bound, args[0])]
            return all(map(_is_shift, indices)) if name == "shifts" else not _is_rename(indices)
        if name == "uncut":
            # Axes of chunks are named with a dot: cut again and again, they would have no end.
            return all("." not in axis.name for axis in _set(bound, args[0]))
        x = _class(bound, args[-1])
        match name:
            case "run":
                return self.table.phase[x] is Phase.RUN
            case "weight":
                return self.table.phase[x] is not Phase.RUN
            case "given":
                return (x, self.rule.lhs.partition("(")[0]) in self.table.program
            case "long":
                points = upper(self.table.axes[x])
                axes = self._axes(notation.axes(args[0]), bound)
                return self.shares.leave_idle(points, points * upper(axes))
        raise ValueError(f"rule {self.rule.name}: {name} is no guard of a handler")

    def _axes(self, axes: SetPattern, bound: Bound) -> frozenset[Symbol]:
        match axes:
            case notation.SetVariable(name=name):
                return _set(bound, name)
            case AxesOf(name=name):
                return self.table.axes[_class(bound, name)]
            case SetOf(names=()):
                return frozenset()
            case SetOperation(op=op, left=left, right=right):
                a, b = self._axes(left, bound), self._axes(right, bound)
                return {"-": a - b, "|": a | b, "&": a & b}[op]
        raise ValueError(f"rule {self.rule.name}: {axes} is only for examples")


def _class(bound: Bound, name: str) -> int:
    value = bound[name]
    assert isinstance(value, int), name
    return value


def _set(bound: Bound, name: str) -> frozenset[Symbol]:
    value = bound[name]
    assert isinstance(value, frozenset), name
    return value


def _map(bound: Bound, name: str) -> AtAttrs:
    value = bound[name]
    assert isinstance(value, tuple), name
    return value


def _is_rename(indices: Sequence[Expression | int]) -> bool:
    """Is each index another axis, free to be read under its name?"""
    return all(isinstance(index, Symbol) and index.extent is not None for index in indices)


def _is_shift(index: Expression | int) -> bool:
    """Is the index `axis + c` or `c - axis`?"""
    if isinstance(index, int):
        return False
    axes = [*positions(index)]
    stride = index.coefficient(axes[0]) if len(axes) == 1 else None
    return stride is not None and stride.is_const and abs(stride.value) == 1
