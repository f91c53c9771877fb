"""One e-graph in egglog: loading facts, running rules, reading everything back."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

from luminal.algebra.frames import is_never_empty
from luminal.algebra.terms import Phase, Term
from luminal.base import config, forks
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.egraph import schema
from luminal.egraph.base import base, run
from luminal.egraph.intern import (
    Interned,
    index_phase,
    is_fixed,
    literal_text,
    positions,
)
from luminal.egraph.reader import Reader
from luminal.egraph.table import New, Table
from luminal.hlir.monoid import REDUCTIONS
from luminal.rules import Rule
from luminal.shape.expression import Expression, Symbol

if TYPE_CHECKING:
    from egglog.bindings import EGraph

_lock = forks.lock()
_current: EGraph | None = None  # that is at work
_abandoned: list[EGraph] = []
_ANALYSE = "(saturate (run analyse))"


# The compiled rules are made once a process; each program pushes them and pops them again.
@contextmanager
def session(rules: tuple[Rule, ...]) -> Iterator[Session]:
    """An e-graph with these rules; one at a time in a process."""
    global _current
    with _lock:
        egraph, text = base(rules)
        _current = egraph
        run(egraph, ["(push)"])
        if config.get("LUMINAL_PRINT_EGGLOG"):
            print(text, file=sys.stderr)
        try:
            yield Session(egraph)
        finally:
            run(egraph, ["(pop)"])
            _current = None


def _begin_anew() -> None:
    """A forked child has no use for the e-graph that its parent was at work on."""
    global _current
    if _current is not None:
        _abandoned.append(_current)  # never given back: who knows what state it is in
        _current = None
        base.cache_clear()


forks.on_fork(_begin_anew)


# Each node that egglog's parser makes holds the text that was parsed: one text for everything took
# 230 MB and twice the time. So nodes are written as facts, and a rule for each form of operation
# builds them.
@dataclass(slots=True)
class Session:
    """The e-graph of one program. Nodes are numbered; `load` takes what was written."""

    egraph: EGraph
    interned: Interned = field(default_factory=Interned)
    lines: list[str] = field(default_factory=list)
    written: int = 0
    terms: dict[Term, int] = field(default_factory=dict)
    matches: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    axes_known: set[Symbol] = field(default_factory=set)

    # --- writing

    def add_terms(self, order: Iterable[Term]) -> None:
        """Writes the terms of a program, operands first."""
        for term in order:
            args = tuple(self.terms[arg] for arg in term.args)
            number = self._term(term, args)
            self.terms[term] = number
            self._declare(term.axes)
            # Of leaves and opaque operations no analysis could tell these.
            facts = f'{self.interned.axes(term.axes)} "{term.dtype.short}" {int(term.phase)}'
            self.lines.append(f"(known {number} {facts})")

    def _term(self, term: Term, args: tuple[int, ...]) -> int:
        if term.op == "Leaf":
            number, _ = self.interned.number("Leaf", (term.attrs, term.dtype))
            return self._write("Leaf", [number])
        if term.op == "Literal":
            text = literal_text(term.attrs.data, term.dtype)
            return self.node("Literal", text, args, term.dtype)
        if term.is_opaque:
            number, _ = self.interned.number("Opaque", (term.op, term.attrs, term.dtype))
            return self._write("Opaque", [number, self._list(args)])
        return self.node(term.op, term.attrs, args, term.dtype)

    def node(
        self, op: str, attrs: Any, args: tuple[int, ...], dtype: DType | None, rule: str = ""
    ) -> int:
        """Writes a node on written nodes: any but a Leaf or an opaque operation. `rule` made it."""
        if op == "Literal":
            assert dtype is not None
            if _is_number(attrs):
                self.lines.append(f'(number "{attrs}")')
                if float(attrs) > 0:
                    self.lines.append(f'(positive "{attrs}")')
            return self._write(op, [f'"{dtype.short}" "{attrs}"'], rule)
        if op == "Index":
            return self._write(op, [self._index(attrs, dtype)], rule)
        if op == "At":
            return self._write(op, [self._map(attrs), args[0], self._list(args[1:])], rule)
        if op in REDUCTIONS:
            self._declare(attrs)
            return self._write(schema.head(op), [self.interned.axes(attrs), *args], rule)
        if op in ("Cast", "Bitcast"):
            assert dtype is not None
            return self._write(schema.head(op), [f'"{dtype.short}"', *args], rule)
        return self._write(schema.head(op), args, rule)

    def new(self, new: New | int, nodes: dict[int, int], rule: str) -> int:
        """Writes what a rule made; `nodes` gives a written node of each class in it."""
        if isinstance(new, int):
            return nodes[new]
        args = tuple(self.new(arg, nodes, rule) for arg in new.args)
        return self.node(new.op, new.attrs, args, new.dtype, rule)

    def same(self, one: int, other: int) -> None:
        """Two written nodes are equal."""
        self.lines.append(f"(same {one} {other})")

    def _write(self, head: str, columns: Sequence[object], rule: str = "") -> int:
        """A fact of a node: `(f-Binary 5 "Mul" 3 4 "")`."""
        constructor, _, op = head.partition(" ")
        words = (f"(f-{constructor}", self.written, op, *columns, f'"{rule}")')
        self.lines.append(" ".join(map(str, words)))
        self.written += 1
        return self.written - 1

    def _list(self, args: Sequence[int]) -> int:
        """The number of a list, which is a node as well."""
        number = self._write("Nil", ())
        for arg in reversed(args):
            number = self._write("Cons", (arg, number))
        return number

    def _index(self, expr: Expression, dtype: DType | None) -> int:
        assert dtype is not None
        number, new = self.interned.number("Index", (expr, dtype))
        if new:
            axes = positions(expr)
            self._declare(axes)
            facts = f'{self.interned.axes(axes)} "{dtype.short}" {int(index_phase(expr))}'
            self.lines.append(f"(i-Index {number} {facts})")
        return number

    def _map(self, entries: Any) -> int:
        number, new = self.interned.number("At", entries)
        if new:
            gone = [axis for axis, _ in entries]
            moved = [entry for _, entry in entries if isinstance(entry, Expression)]
            more = frozenset[Symbol]().union(*map(positions, moved))
            self._declare((*gone, *more))
            phase = max(map(index_phase, moved), default=Phase.LITERAL)
            facts = f"{self.interned.axes(gone)} {self.interned.axes(more)} {int(phase)}"
            self.lines.append(f"(i-At {number} {facts})")
        return number

    def _declare(self, axes: Iterable[Symbol]) -> None:
        """What is known of the extents of axes that are new."""
        for axis in axes:
            if axis in self.axes_known:
                continue
            self.axes_known.add(axis)
            only = self.interned.axes((axis,))
            if is_never_empty(axis):
                self.lines.append(f"(set (never-empty) {only})")
            if is_fixed(axis):
                self.lines.append(f"(set (fixed) {only})")

    # --- running

    def load(self) -> None:
        """Takes what was written so far into the e-graph and analyses it."""
        lines = [*self.lines, f"(run-schedule (saturate (run load)) {_ANALYSE})"]
        self.lines.clear()
        self.run(lines)

    def step(self) -> None:
        """Loads, and runs one round of egglog's rules."""
        self.load()
        # What subsumes comes first, so that rules which grow the graph match less.
        clean = f"(repeat 4 (seq (run clean) {_ANALYSE}))"
        self.run([f"(run-schedule {clean} (run grow) {_ANALYSE})"])

    def run(self, lines: Sequence[str]) -> None:
        """Runs a piece of a program and counts matches."""
        if config.get("LUMINAL_PRINT_EGGLOG"):
            print("\n".join(lines), file=sys.stderr)
        for output in run(self.egraph, lines):
            report = getattr(output, "report", None)
            if report is None:
                continue
            for name, count in report.num_matches_per_rule.items():
                self.matches[name.partition("/")[0]] += count
            for name, spent in report.search_and_apply_time_per_rule.items():
                self.seconds[name.partition("/")[0]] += spent.total_seconds()

    # --- reading

    def read(self, *, makers: bool = False) -> Table:
        """The table of all classes and nodes; with `makers`, the rules that made them."""
        return Reader(self.egraph, self.interned, self.terms).read(makers)


def _is_number(text: str) -> bool:
    """Is the literal neither NaN nor infinite?"""
    return not text.startswith(("nan", "inf", "-inf"))
