"""E-graphs that know the rules and no program yet."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from luminal import dtypes
from luminal.dtypes import DType
from luminal.egraph import schema
from luminal.egraph.rule_text import rule_text
from luminal.rules import Rule, notation

if TYPE_CHECKING:
    from egglog.bindings import EGraph

MADE_BY_HANDLERS = frozenset(("Mul", "Div", "Select", "Cast", "Sum", "Max"))


@lru_cache(16)
def base(rules: tuple[Rule, ...], ops: frozenset[str]) -> tuple[EGraph, str]:
    """An e-graph with the rules that a program of these operations can come to match, and its
    text. Made once, then pushed and popped: compiling the rules takes most of the time.
    """
    from egglog.bindings import EGraph

    lines = [schema.header(), *map(rule_text, _reached(rules, ops | MADE_BY_HANDLERS))]
    for dtype in dtypes.ALL:
        if dtype.is_float:
            lines.append(f'(floating "{dtype.short}")')
        if dtype.is_int:
            lines.append(f'(integral "{dtype.short}")')
        for narrow in dtypes.ALL:
            if holds(dtype, narrow):
                lines.append(f'(holds "{dtype.short}" "{narrow.short}")')
                if narrow.kind == "bool" or narrow.is_float == dtype.is_float:
                    lines.append(f'(widens "{dtype.short}" "{narrow.short}")')
    text = "\n".join(lines)
    egraph = EGraph()
    egraph.run_program(*egraph.parse_program(text))
    return egraph, text


def _reached(rules: tuple[Rule, ...], ops: frozenset[str]) -> list[Rule]:
    """The rules of egglog whose left sides can be made of these operations and of right sides."""
    sides = {rule: (_ops(rule.lhs), _ops(rule.rhs)) for rule in rules if not rule.handler}
    while True:
        found = ops.union(*(rhs for lhs, rhs in sides.values() if lhs <= ops))
        if found == ops:
            return [rule for rule, (lhs, _) in sides.items() if lhs <= ops]
        ops = found


def _ops(text: str) -> frozenset[str]:
    """The operations in a pattern."""
    parts = notation.parts(notation.pattern(text))
    return frozenset(part.op for part in parts if isinstance(part, notation.Apply))


def holds(wide: DType, narrow: DType) -> bool:
    """Does every value of `narrow` have one of `wide`, with the way back?"""
    if wide is narrow or narrow.kind == "bool":
        return wide is not dtypes.bool_
    if wide.kind == "bool" or (narrow.is_float and not wide.is_float):
        return False
    if narrow.is_float:
        return wide.size > narrow.size
    if wide.is_float:
        mantissa = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}[wide.short]
        return narrow.bits - (narrow.kind == "int") <= mantissa
    if wide.kind == narrow.kind:
        return wide.size > narrow.size
    return wide.kind == "int" and wide.size > narrow.size
