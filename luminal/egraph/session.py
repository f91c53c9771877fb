"""One e-graph in egglog: loading facts, running rules, reading everything back."""

from __future__ import annotations

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from luminal import config, dtypes
from luminal.algebra.terms import Phase, Term
from luminal.dtypes import DType
from luminal.egraph import schema
from luminal.egraph.intern import (
    KINDS,
    Interned,
    index_phase,
    is_fixed,
    literal_text,
    positions,
)
from luminal.egraph.rule_text import rule_text
from luminal.egraph.table import New, Node, Table
from luminal.rules import Rule, notation
from luminal.shape.expression import Expression, Symbol

if TYPE_CHECKING:
    from egglog.bindings import EGraph

_lock = threading.Lock()
_ANALYSE = "(saturate (run analyse))"


@lru_cache(16)
def _base(rules: tuple[Rule, ...], ops: frozenset[str]) -> tuple[EGraph, str]:
    """An e-graph that knows the rules on these operations and nothing else: made once, then pushed
    and popped.
    """
    from egglog.bindings import EGraph

    rules, ops = _reached(rules, ops | schema.ALWAYS)
    lines = [schema.header(ops), *(rule_text(rule) for rule in rules)]
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


def _reached(
    rules: tuple[Rule, ...], ops: frozenset[str]
) -> tuple[tuple[Rule, ...], frozenset[str]]:
    """The rules of egglog that a program of these operations can come to match, and all operations
    that they may bring in.
    """
    sides = {
        rule: (_ops(rule.lhs), _ops(rule.rhs)) for rule in rules if not rule.handler
    }  # fmt: skip
    while True:
        found = ops.union(*(rhs for lhs, rhs in sides.values() if lhs <= ops))
        if found == ops:
            return tuple(rule for rule, (lhs, _) in sides.items() if lhs <= ops), ops
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


@contextmanager
def session(rules: tuple[Rule, ...], terms: Iterable[Term]) -> Iterator[Session]:
    """An e-graph with these rules for these terms; one at a time in a process."""
    ops = frozenset(term.op for term in terms if not term.is_opaque)
    with _lock:
        egraph, text = _base(rules, ops)
        egraph.run_program(*egraph.parse_program("(push)"))
        if config.get("LUMINAL_PRINT_EGGLOG"):
            print(text, file=sys.stderr)
        try:
            yield Session(egraph)
        finally:
            egraph.run_program(*egraph.parse_program("(pop)"))


@dataclass(slots=True)
class Session:
    """The e-graph of one program. Loaded nodes are numbered; `load` takes what was written."""

    egraph: EGraph
    interned: Interned = field(default_factory=Interned)
    lines: list[str] = field(default_factory=list)
    loaded: int = 0
    lists: int = 0
    terms: dict[Term, int] = field(default_factory=dict)
    matches: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    axes_known: set[Symbol] = field(default_factory=set)

    # --- writing

    def add_terms(self, order: Iterable[Term]) -> None:
        """Loads terms, operands first."""
        for term in order:
            args = tuple(self.terms[arg] for arg in term.args)
            self.terms[term] = self._term(term, args)

    def _term(self, term: Term, args: tuple[int, ...]) -> int:
        if term.op == "Leaf":
            number, new = self.interned.number("Leaf", (term.attrs, term.dtype))
            if new:
                self._facts("Leaf", number, term.axes, term.dtype, term.phase)
            return self._write("Leaf", "", number)
        if term.op == "Literal":
            text = literal_text(term.attrs.data, term.dtype)
            return self.node("Literal", text, args, term.dtype)
        if term.is_opaque:
            number, new = self.interned.number("Opaque", (term.op, term.attrs, term.dtype))
            if new:
                self._facts("Opaque", number, term.axes, term.dtype, term.phase)
            return self._write("Opaque", "", number, self._list(args))
        return self.node(term.op, term.attrs, args, term.dtype)

    def node(
        self, op: str, attrs: Any, args: tuple[int, ...], dtype: DType | None, rule: str = ""
    ) -> int:
        """Loads a node on loaded nodes: any but a Leaf or an opaque operation. `rule` made it."""
        if op == "Literal":
            assert dtype is not None
            if _is_positive(attrs):
                self.lines.append(f'(positive "{attrs}")')
            return self._write("Literal", rule, f'"{dtype.short}"', f'"{attrs}"')
        if op == "Index":
            assert dtype is not None
            number, new = self.interned.number("Index", (attrs, dtype))
            if new:
                self._facts("Index", number, positions(attrs), dtype, index_phase(attrs))
            return self._write("Index", rule, number)
        if op == "At":
            number, new = self.interned.number("At", attrs)
            if new:
                self._map_facts(number, attrs)
            return self._write("At", rule, number, args[0], self._list(args[1:]))
        if op in ("Sum", "Max"):
            self._declare(attrs)
            return self._write(op, rule, self.interned.axes(attrs), *args)
        if op in schema.TYPED:
            assert dtype is not None
            return self._write(op, rule, f'"{dtype.short}"', *args)
        return self._write(op, rule, *args)

    def new(self, new: New | int, nodes: dict[int, int], rule: str) -> int:
        """Loads what a rule made; `nodes` gives a loaded node of each class in it."""
        if isinstance(new, int):
            return nodes[new]
        args = tuple(self.new(arg, nodes, rule) for arg in new.args)
        return self.node(new.op, new.attrs, args, new.dtype, rule)

    def same(self, one: int, other: int) -> None:
        """Two loaded nodes are equal."""
        self.lines.append(f"(same {one} {other})")

    def _write(self, op: str, rule: str, *columns: Any) -> int:
        self.lines.append(f'(f-{op} {self.loaded} {" ".join(map(str, columns))} "{rule}")')
        self.loaded += 1
        return self.loaded - 1

    def _list(self, args: Sequence[int]) -> int:
        self.lists += 1
        self.lines.append(f'(f-Nil {self.lists} "")')
        for arg in reversed(args):
            self.lists += 1
            self.lines.append(f'(f-Cons {self.lists} {arg} {self.lists - 1} "")')
        return self.lists

    def _facts(
        self, op: str, number: int, axes: frozenset[Symbol], dtype: DType, phase: Phase
    ) -> None:
        self._declare(axes)
        text = f'{self.interned.axes(axes)} "{dtype.short}" {int(phase)}'
        self.lines.append(f"(i-{op} {number} {text})")

    def _map_facts(self, number: int, entries: Any) -> None:
        gone = [axis for axis, _ in entries]
        moved = [entry for _, entry in entries if isinstance(entry, Expression)]
        more = frozenset[Symbol]().union(*map(positions, moved))
        self._declare((*gone, *more))
        phase = max(map(index_phase, moved), default=Phase.LITERAL)
        text = f"{self.interned.axes(gone)} {self.interned.axes(more)} {int(phase)}"
        self.lines.append(f"(i-At {number} {text})")

    def _declare(self, axes: Sequence[Symbol] | frozenset[Symbol]) -> None:
        """What is known of the extents of axes that are new."""
        for axis in axes:
            if axis in self.axes_known:
                continue
            self.axes_known.add(axis)
            only = self.interned.axes((axis,))
            if never_empty(axis):
                self.lines.append(f"(set (never-empty) {only})")
            if is_fixed(axis):
                self.lines.append(f"(set (fixed) {only})")

    # --- running

    def load(self) -> None:
        """Takes the facts written so far into the e-graph and analyses it."""
        facts = "\n".join(self.lines)
        self.lines.clear()
        self.run(f"{facts}\n(run-schedule (saturate (run load)) {_ANALYSE})")

    def step(self) -> None:
        """Loads, and runs one round of egglog's rules."""
        self.load()
        clean = f"(repeat 4 (seq (run clean) {_ANALYSE}))"
        self.run(f"(run-schedule {clean} (run grow) {_ANALYSE})")

    def run(self, text: str) -> None:
        """Runs a piece of a program and counts matches."""
        if config.get("LUMINAL_PRINT_EGGLOG"):
            print(text, file=sys.stderr)
        for output in self.egraph.run_program(*self.egraph.parse_program(text)):
            report = getattr(output, "report", None)
            if report is None:
                continue
            for name, count in report.num_matches_per_rule.items():
                self.matches[name.partition("/")[0]] += count
            for name, spent in report.search_and_apply_time_per_rule.items():
                self.seconds[name.partition("/")[0]] += spent.total_seconds()

    # --- reading

    def read(self, *, makers: bool = False) -> Table:
        """All classes and nodes; with `makers`, the rules that made them."""
        return _Reader(self).read(makers)


def never_empty(axis: Symbol) -> bool:
    """Is the extent at least 1, whatever the dims are?"""
    lo = None if axis.extent is None else axis.extent.interval.lo
    return lo is not None and lo >= 1


def _is_positive(text: str) -> bool:
    return not text.startswith(("nan", "-", "inf")) and float(text) > 0


class _Reader:
    """Frozen values to Python: they are untyped, so each column is read by its sort."""

    def __init__(self, session: Session) -> None:
        self.egraph = session.egraph
        self.interned = session.interned
        self.program = session.terms
        self.functions = session.egraph.freeze().functions
        self.table = Table()
        self.numbers: dict[Any, int] = {}  # of classes
        self.sets: dict[Any, tuple[Symbol, ...]] = {}
        self.lists: dict[Any, tuple[int, ...]] = {}

    def read(self, makers: bool) -> Table:
        table, egraph = self.table, self.egraph
        for row in self.functions["dtype"].rows:
            number = self.number(row.inputs[0])
            table.dtype[number] = dtypes.dtype_of(egraph.value_to_string(row.output))
        for row in self.functions["axes"].rows:
            table.axes[self.number(row.inputs[0])] = frozenset(self.axes(row.output))
        for row in self.functions["phase"].rows:
            phase = Phase(egraph.value_to_i64(row.output))
            table.phase[self.number(row.inputs[0])] = phase
        self.read_lists()
        for op, columns in schema.CONSTRUCTORS.items():
            if op in self.functions and op not in ("Nil", "Cons"):
                self.read_nodes(op, columns, makers)
        for row in self.functions["ref"].rows:
            node = egraph.value_to_i64(row.inputs[0])
            table.refs[node] = self.number(row.output)
        table.program.update((table.refs[node], t.op) for t, node in self.program.items())
        return table

    def read_nodes(self, op: str, columns: tuple[str, ...], makers: bool) -> None:
        table = self.table
        for row in self.functions[op].rows:
            node = self.node(op, columns, row.inputs)
            table.add(self.number(row.output), node)
            if row.subsumed:
                table.subsumed.add(node)
        for row in self.functions[f"made-{op}"].rows if makers else ():
            node = self.node(op, columns, row.inputs)
            table.made.setdefault(node, self.egraph.value_to_string(row.output))

    def read_lists(self) -> None:
        waiting = {row.output: row.inputs for row in self.functions["Cons"].rows}
        self.lists = {row.output: () for row in self.functions["Nil"].rows}
        while waiting:
            for cell, (head, tail) in [*waiting.items()]:
                if tail in self.lists:
                    self.lists[cell] = (self.number(head), *self.lists[tail])
                    del waiting[cell]

    def number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def axes(self, value: Any) -> tuple[Symbol, ...]:
        if value not in self.sets:
            numbers = map(self.egraph.value_to_i64, self.egraph.value_to_set(value))
            self.sets[value] = self.interned.axes_of(numbers)
        return self.sets[value]

    def node(self, op: str, columns: tuple[str, ...], values: Sequence[Any]) -> Node:
        if op in KINDS:
            key = self.interned.tables[op][self.egraph.value_to_i64(values[0])]
            if op == "Leaf":
                return Node("Leaf", key[0], (), key[1])
            if op == "Index":
                return Node("Index", key[0], (), key[1])
            if op == "Opaque":
                return Node(key[0], key[1], self.lists[values[1]], key[2])
            return Node("At", key, (self.number(values[1]), *self.lists[values[2]]))
        if op == "Literal":
            dtype = dtypes.dtype_of(self.egraph.value_to_string(values[0]))
            return Node(op, self.egraph.value_to_string(values[1]), (), dtype)
        if op in ("Sum", "Max"):
            return Node(op, self.axes(values[0]), (self.number(values[1]),))
        if op in schema.TYPED:
            dtype = dtypes.dtype_of(self.egraph.value_to_string(values[0]))
            return Node(op, None, (self.number(values[1]),), dtype)
        return Node(op, None, tuple(map(self.number, values)))
