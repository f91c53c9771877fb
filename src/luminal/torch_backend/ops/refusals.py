"""Values that PyTorch refuses where the library has a meaning for them: noted, and raised for.

A refusal is a bool that a run computes beside its results; if it is true, the call raises before
it writes to any argument but those that a program updates where they lie. Positions that are an
argument are looked at before the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any

import luminal as lm
from luminal.base.records import dataclass
from luminal.hlir.attributes import InputAttrs, StateAttrs, ViewAttrs, WeightAttrs
from luminal.hlir.index_inputs import index_inputs
from luminal.hlir.ops import Node, Value
from luminal.torch_backend.errors import UnsupportedError

_FEW = 64  # nodes, of which positions are made that no argument decides

Tensor = lm.Tensor
Refusal = tuple[Tensor, Exception]


@dataclass(slots=True)
class Noted:
    """`conditions`: what must not be true; `positions`: by the name of an Input, of how many."""

    conditions: list[Refusal] = field(default_factory=list)
    positions: dict[str, list[Any]] = field(default_factory=dict)


_noted: ContextVar[Noted] = ContextVar("luminal_torch_refusals")


@contextmanager
def noted() -> Iterator[Noted]:
    """Inside, what operators refuse is listed."""
    notes = Noted()
    token = _noted.set(notes)
    try:
        yield notes
    finally:
        _noted.reset(token)


def refuse_where(condition: Tensor, error: Exception) -> None:
    """A run in which `condition` is true anywhere raises `error`."""
    _noted.get().conditions.append((condition.any(), error))


def refuse_outside(index: Tensor, n: Any) -> None:
    """A call with a position outside of 0 .. n - 1 raises IndexError."""
    node = index.value.node
    if isinstance(node.attrs, InputAttrs):
        _noted.get().positions.setdefault(node.attrs.name, []).append(n)
    else:
        _refuse_computed(index, 0, n)


def refuse_far_outside(index: Tensor, n: Any) -> None:
    """Refuses positions outside of -n .. n - 1. The library looks itself at what is cut out of an
    Input; what depends on no argument is PyTorch's own.
    """
    node = index.value.node
    while isinstance(node.attrs, ViewAttrs) or node.op.name == "Cast":
        node = node.args[0].node
    if not isinstance(node.attrs, InputAttrs) and not _is_known(index):
        _refuse_computed(index, -n, n)


def refuse_positions_there(graph: lm.Graph, names: Collection[str], notes: Noted) -> None:
    """Has the program look at positions that are inputs of these names, which lie on a device: the
    host would have to wait for them.
    """
    recorded = graph.graph()
    nodes = {node for some in recorded.by_op().values() for node in some}
    for use in index_inputs(recorded):
        if use.name not in names or (not use.steps and use.name in notes.positions):
            continue
        if use.steps and use.steps[-1] not in nodes:
            raise UnsupportedError(f"{use.name}: positions within a loop, on a device")
        value = Value(use.steps[-1], 0) if use.steps else graph.leaves[use.name]
        _refuse_computed(graph.wrap(value), -use.extent, use.extent)
    for name in names & notes.positions.keys():
        for n in notes.positions.pop(name):
            _refuse_computed(graph.wrap(graph.leaves[name]), 0, n)


def _is_known(index: Tensor) -> bool:
    """Is it made of few nodes, and of no argument?"""
    seen: set[Node] = set()
    waiting = [index.value.node]
    while waiting and len(seen) < _FEW:
        node = waiting.pop()
        if isinstance(node.attrs, InputAttrs | WeightAttrs | StateAttrs):
            return False
        seen.add(node)
        waiting += [arg.node for arg in node.args if arg.node not in seen]
    return not waiting


def _refuse_computed(index: Tensor, least: Any, n: Any) -> None:
    error = IndexError(f"an index is out of range for {n}")
    refuse_where((index < least) | (index >= n), error)
