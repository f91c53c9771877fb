"""Iterations of a Loop to be: what each operand of the body is, the same in every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from luminal.base.records import dataclass
from luminal.hlir.ops import Value
from luminal.rolling.block import NodeTable, is_recorded_anew

LAGS = 3  # a value may be read up to this many iterations later

Iteration = list[int]
"""Numbers of nodes, operands first: node m of one iteration does what node m of another does."""


@dataclass(frozen=True, slots=True)
class Inner:
    """Result `index` of the body's node m."""

    m: int
    index: int


@dataclass(frozen=True, slots=True)
class Carried:
    """The operand is carried value k."""

    k: int


@dataclass(frozen=True, slots=True)
class Stream:
    """The operand is one value per iteration, all from outside."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """The operand is the same value, from outside, in every iteration."""

    value: Value


@dataclass(frozen=True, slots=True)
class Again:
    """The operand is a literal or iota that the body records itself."""

    value: Value


Ref: TypeAlias = Inner | Carried | Stream | Fixed | Again


@dataclass(frozen=True, slots=True)
class Carry:
    """A carried value: what it starts as, and what it is in the next iteration."""

    first: Value
    next: Inner | Carried


# An operand of the body is one of four things, which comparing it in all iterations tells: made in
# the iteration, carried from up to three before, a stream (its own in each), or the same in all.
# Three, because a value that is read later than the next iteration needs a line of copies to wait
# in.
@dataclass(slots=True)
class Layers:
    """Iterations that are one body: `refs[m]` are the operands of its node m."""

    iterations: list[Iteration]
    refs: list[list[Ref]] = field(default_factory=list)
    carries: list[Carry] = field(default_factory=list)
    _known: dict[Carry, int] = field(default_factory=dict)

    def carry(self, first: Value, following: Inner | Carried) -> Carried:
        """A carried value; the same one for the same beginning and continuation."""
        new = Carry(first, following)
        if new not in self._known:
            self._known[new] = len(self.carries)
            self.carries.append(new)
        return Carried(self._known[new])


def match(block: NodeTable, iterations: Sequence[Iteration]) -> Layers | None:
    """The most iterations, from the first on, whose operands follow one pattern; None below two.

    An operand is a value of the same iteration, or of one some trips before (the first of them get
    values from outside), or comes from outside, anew in each iteration or not.
    """
    # Slices compare structure only. Here every edge counts: one iteration in the middle, whose lags
    # all lie inside, says which operands come from where, and the others must say the same.
    size = len(iterations[0])
    where = np.full(len(block.nodes), -1, np.int64)
    for t, nodes in enumerate(iterations):
        where[nodes] = np.arange(t * size, (t + 1) * size)
    edges = np.array([[a for n in nodes for a in block.args[n]] for nodes in iterations], np.int64)
    positions = where[edges]
    sample = min(len(iterations) - 1, LAGS)
    lag = np.where(positions[sample] < 0, 0, sample - positions[sample] // size)
    if (lag < 0).any():  # a value of an iteration that comes later
        return None
    trips = np.arange(len(iterations))[:, None]
    expected = np.where(
        (positions[sample] < 0) | (trips < lag), -1, (trips - lag) * size + positions[sample] % size
    )
    is_wrong = (positions != expected).any(1)
    chosen = _chosen(block, iterations)
    is_wrong |= ((expected >= 0) & (chosen != chosen[sample])).any(1)
    count = int(is_wrong.argmax()) if is_wrong.any() else len(iterations)
    # The sample is none of those that agree: they are compared again, without it.
    if count < 2 or (count <= sample and count < len(iterations)):
        return match(block, iterations[:count]) if count >= 2 else None
    layers = Layers([*iterations[:count]])
    column = 0
    for m, n in enumerate(iterations[0]):
        refs = []
        for q in range(len(block.args[n])):
            place = positions[sample, column]
            if place < 0:
                refs.append(_outside(block, layers.iterations, m, q))
            else:
                inner = Inner(int(place) % size, int(chosen[sample, column]))
                firsts = [_operand(block, layers, t, m, q) for t in range(int(lag[column]))]
                refs.append(_delayed(layers, inner, firsts))
            column += 1
        layers.refs.append(refs)
    return layers


def _chosen(block: NodeTable, iterations: Sequence[Iteration]) -> NDArray[np.int64]:
    """The number of its node's result that each operand is, by iteration. Where the operand comes
    from outside it may be another than what the body has there.
    """
    nodes, first = block.nodes, iterations[0]
    if all(len(nodes[n].types) == 1 for n in first):
        return np.zeros((len(iterations), sum(len(nodes[n].args) for n in first)), np.int64)
    return np.array(
        [[arg.index for n in iteration for arg in nodes[n].args] for iteration in iterations],
        np.int64,
    )


def _operand(block: NodeTable, layers: Layers, t: int, m: int, q: int) -> Value:
    return block.nodes[layers.iterations[t][m]].args[q]


def _delayed(layers: Layers, inner: Inner, firsts: Sequence[Value]) -> Inner | Carried:
    """`inner`, as many trips later as there are first values: a line of carried values."""
    # What is read two trips later is carried as a value that is itself carried: a line of them.
    ref: Inner | Carried = inner
    for first in reversed(firsts):
        ref = layers.carry(first, ref)
    return ref


def _outside(block: NodeTable, iterations: Sequence[Iteration], m: int, q: int) -> Ref:
    values = tuple([block.nodes[nodes[m]].args[q] for nodes in iterations])
    first = values[0]
    if is_recorded_anew(first.node):
        if all(v is first or v.node.attrs == first.node.attrs for v in values):
            return Again(first)
    elif all(v == first for v in values):
        return Fixed(first)
    return Stream(values)


def iteration_before(block: NodeTable, layers: Layers) -> Iteration | None:
    """The nodes of one more iteration in front, whose results are the values carried in."""
    # The first layer often looks different, because it alone meets the embedding or a mask that is
    # made on the way; by its place in the dataflow it is still an iteration.
    first, size = layers.iterations[0], len(layers.refs)
    partners: list[int] = [-1] * size
    taken = {n for nodes in layers.iterations for n in nodes}
    for carry in layers.carries:
        if isinstance(carry.next, Carried):
            return None
        n = block.number[carry.first.node]
        if partners[carry.next.m] not in (-1, n) or carry.first.index != carry.next.index:
            return None
        partners[carry.next.m] = n
    carried: dict[int, Value] = {}
    # Readers first: each node says by its operands which ones are at the places of its partner's.
    for m in reversed(range(size)):
        n = partners[m]
        if n < 0 or n in taken or block.is_leaf[n] or block.kind[n] != block.kind[first[m]]:
            return None
        values = block.nodes[n].args
        old = block.nodes[first[m]].args
        for a, value, before, ref in zip(block.args[n], values, old, layers.refs[m], strict=True):
            match ref:
                case Inner(m=inner):
                    if partners[inner] not in (-1, a) or value.index != before.index:
                        return None
                    partners[inner] = a
                case Carried(k=k):
                    if carried.setdefault(k, value) != value or value.type != before.type:
                        return None
                case Fixed(value=same):
                    if value != same:
                        return None
                case Again(value=same):
                    if value.node.attrs != same.node.attrs:
                        return None
                case Stream():
                    if value.type != before.type:
                        return None
    return partners
