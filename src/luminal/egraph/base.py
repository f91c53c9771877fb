"""E-graphs that know the rules and no program yet."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from luminal.base import dtypes
from luminal.egraph import schema
from luminal.egraph.binding import egraph_class
from luminal.egraph.rule_text import rule_text
from luminal.rules import Rule

if TYPE_CHECKING:
    from egglog.bindings import EGraph


@lru_cache(4)
def base(rules: tuple[Rule, ...]) -> tuple[EGraph, str]:
    """An e-graph with these rules, and its text. Made once, then pushed and popped: compiling the
    rules takes longer than running them.
    """
    pieces = [*schema.header(), *(rule_text(rule) for rule in rules if not rule.handler)]
    for dtype in dtypes.ALL:
        if dtype.is_float:
            pieces.append(f'(floating "{dtype.short}")')
        if dtype.is_int:
            pieces.append(f'(integral "{dtype.short}")')
        for narrow in dtypes.ALL:
            if dtypes.holds(dtype, narrow):
                pieces.append(f'(holds "{dtype.short}" "{narrow.short}")')
                if narrow.kind == "bool" or narrow.is_float == dtype.is_float:
                    pieces.append(f'(widens "{dtype.short}" "{narrow.short}")')
    egraph = egraph_class()()
    run(egraph, pieces)
    return egraph, "\n".join(pieces)


def run(egraph: EGraph, pieces: Iterable[str]) -> list[Any]:
    """Runs a program given in pieces and returns its outputs. Each node of a parsed program holds
    the text that was parsed: parsing all at once takes hundreds of megabytes.
    """
    commands = [command for piece in pieces for command in egraph.parse_program(piece)]
    return list(egraph.run_program(*commands))
