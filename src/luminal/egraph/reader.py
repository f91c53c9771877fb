"""An e-graph of egglog to Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from luminal.algebra.terms import Phase, Term
from luminal.base import dtypes
from luminal.egraph import schema
from luminal.egraph.intern import KINDS, Interned
from luminal.egraph.table import Node, Table
from luminal.shape.expression import Symbol

if TYPE_CHECKING:
    from egglog.bindings import EGraph


class Reader:
    """Frozen values to Python: they are untyped, so each column is read by its sort."""

    def __init__(self, egraph: EGraph, interned: Interned, program: Mapping[Term, int]) -> None:
        self.egraph = egraph
        self.interned = interned
        self.program = program
        self.functions = egraph.freeze().functions
        self.table = Table()
        self.numbers: dict[Any, int] = {}  # of classes
        self.sets: dict[Any, tuple[Symbol, ...]] = {}
        self.lists: dict[Any, tuple[int, ...]] = {}
        self.texts: dict[Any, str] = {}

    def read(self, makers: bool) -> Table:
        table, egraph = self.table, self.egraph
        for row in self.functions["dtype"].rows:
            number = self.number(row.inputs[0])
            table.dtype[number] = dtypes.dtype_of(self.text(row.output))
        for row in self.functions["axes"].rows:
            table.axes[self.number(row.inputs[0])] = frozenset(self.axes(row.output))
        for row in self.functions["phase"].rows:
            phase = Phase(egraph.value_to_i64(row.output))
            table.phase[self.number(row.inputs[0])] = phase
        self.read_lists()
        for op in schema.CONSTRUCTORS:
            if op not in ("Nil", "Cons"):
                self.read_nodes(op, makers)
        for row in self.functions["ref"].rows:
            node = egraph.value_to_i64(row.inputs[0])
            table.refs[node] = self.number(row.output)
        table.program.update((table.refs[node], t.op) for t, node in self.program.items())
        return table

    def read_nodes(self, op: str, makers: bool) -> None:
        table = self.table
        for row in self.functions[op].rows:
            node = self.node(op, row.inputs)
            table.add(self.number(row.output), node)
            if row.subsumed:
                table.subsumed.add(node)
        for row in self.functions[f"made-{op}"].rows if makers else ():
            node = self.node(op, row.inputs)
            table.made.setdefault(node, self.text(row.output))

    def read_lists(self) -> None:
        waiting = {row.output: row.inputs for row in self.functions["Cons"].rows}
        self.lists = {row.output: () for row in self.functions["Nil"].rows}
        # Rows come in no order, a list maybe before its tail.
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

    def node(self, op: str, values: Sequence[Any]) -> Node:
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
            return Node(op, self.text(values[1]), (), dtypes.dtype_of(self.text(values[0])))
        name = self.text(values[0])
        if op == "Reduce":
            return Node(name, self.axes(values[1]), (self.number(values[2]),))
        if op == "Convert":
            dtype = dtypes.dtype_of(self.text(values[1]))
            return Node(name, None, (self.number(values[2]),), dtype)
        return Node(name, None, tuple(map(self.number, values[1:])))

    def text(self, value: Any) -> str:
        if value not in self.texts:
            self.texts[value] = self.egraph.value_to_string(value)
        return self.texts[value]
