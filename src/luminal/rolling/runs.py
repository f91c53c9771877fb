"""Where layers repeat: along the longest path of a block, cut into slices.

The longest path meets every layer in turn. Slice k is all that node k of the path needs and no
earlier slice has, so slices are the block in pieces, and layers are a repetition in their sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from luminal.base.records import dataclass
from luminal.rolling.block import NodeTable
from luminal.shape.expression import Expression

Array = NDArray[np.int64]

GRAM = 8  # slices read as one symbol: seldom twice in a layer
PERIODS = 16  # periods tried: the most frequent distances between equal symbols
RUNS = 4  # looked at closely
DYNAMIC = 64  # the extent that a dim counts as where values are compared by size


@dataclass(frozen=True, slots=True)
class Slices:
    """`nodes[k]` lists slice k in a canonical order; equal `symbols`: slices of one structure.

    `label[n]` is the slice of node n, -1 for leaves and what is off the path.
    """

    nodes: list[list[int]]
    symbols: Array
    label: list[int]


@dataclass(frozen=True, slots=True)
class Run:
    """Slices `start` to `end` (not included) repeat with a period; `saved`: nodes but one layer."""

    start: int
    end: int
    period: int
    saved: int


# Slice k is all that node k of the longest path needs and no earlier slice has. So layers become a
# repetition in a sequence of numbers whatever order they were recorded in, and one walk finds it;
# comparing subgraphs with each other would be a search.
def cut(block: NodeTable) -> Slices:
    """The block in slices along its longest path."""
    # Along one path through all layers, equal subgraphs are repeats in a text: a slice's structure
    # is a symbol, and a period of symbols a layer.
    path = _longest_path(block)
    label = _labels(block, path)
    members: list[list[int]] = [[] for _ in path]
    for n, k in enumerate(label):
        if k >= 0:
            members[k].append(n)
    symbols: dict[tuple[int, ...], int] = {}
    nodes, symbols_of_slices = [], []
    for k, end in enumerate(path):
        order = members[k] if len(members[k]) == 1 else _ordered(block, end, label)
        nodes.append(order)
        symbols_of_slices.append(symbols.setdefault(_text(block, order), len(symbols)))
    return Slices(nodes, np.array(symbols_of_slices, np.int64), label)


def _longest_path(block: NodeTable) -> list[int]:
    """The path from near the leaves up to the node that is farthest from them."""
    # Whatever a network's layers look like, data passes through all of them in turn; so the longest
    # path crosses every layer, and its nodes are the ticks of a clock that layers repeat by.
    depth: list[int] = []
    for args in block.args:
        deepest = -1
        for a in args:
            if depth[a] > deepest:
                deepest = depth[a]
        depth.append(deepest + 1)
    path: list[int] = []
    n = max(range(len(depth)), key=depth.__getitem__, default=0)
    while depth and depth[n]:
        path.append(n)
        n = max(block.args[n], key=depth.__getitem__)
    return path[::-1]


def passed(block: NodeTable, slices: Slices, run: Run) -> Array:
    """The bytes, by slice k of a run counted from its start, of its values up to k that slices of
    the run behind k read. (What gradients read is read behind the run.)
    """
    last: dict[int, int] = {}
    for k in range(run.start, run.end):
        for n in slices.nodes[k]:
            for a in block.args[n]:
                if run.start <= slices.label[a] < k:
                    last[a] = k
    live = [0] * (run.end - run.start)
    for n, k in last.items():
        size = _bytes(block, n)
        live[slices.label[n] - run.start] += size
        live[k - run.start] -= size
    return np.array(live, np.int64).cumsum()


def _labels(block: NodeTable, path: Sequence[int]) -> list[int]:
    """The number, for each node, of the first slice that needs it; -1: none."""
    # Readers before operands: a node's label is the least of its readers', so one walk backwards is
    # enough.
    none = len(path)
    label = [none] * len(block.nodes)
    for k, n in enumerate(path):
        label[n] = k
    for n in reversed(range(len(label))):
        k = label[n]
        if k == none or block.is_leaf[n]:
            label[n] = -1
            continue
        for a in block.args[n]:
            if k < label[a]:
                label[a] = k
    return label


def _ordered(block: NodeTable, end: int, label: Sequence[int]) -> list[int]:
    """The nodes of the slice of `end`, operands first, in an order that its structure gives."""
    args, k = block.args, label[end]
    # By structure, not by the order of recording: nodes at one place of two orders are partners.
    order: dict[int, None] = {}
    stack = [end]
    while stack:
        n = stack[-1]
        waiting = [a for a in args[n] if label[a] == k and a not in order]
        if waiting:
            stack += waiting[::-1]
        else:
            order[stack.pop()] = None
    return [*order]


def _text(block: NodeTable, order: Sequence[int]) -> tuple[int, ...]:
    """The structure of a slice as numbers."""
    if len(order) == 1:
        return (block.content[order[0]],)
    text: list[int] = []
    place: dict[int, int] = {}
    for n in order:
        text.append(block.content[n])
        text += [place.get(a, -1) for a in block.args[n]]
        place[n] = len(place)
    return tuple(text)


def _bytes(block: NodeTable, n: int) -> int:
    return sum(size_of(t.shape) * t.dtype.size for t in block.nodes[n].types)


def size_of(shape: tuple[Expression, ...]) -> int:
    """Elements, as far as they are known."""
    size = 1
    for extent in shape:
        size *= extent.value if extent.is_const else DYNAMIC
    return size


def runs(slices: Slices) -> list[Run]:
    """Repetitions, those first that save most nodes when all periods but one are taken away."""
    # Repeats in a text of symbols: the text shifted by a period equals itself there. That is linear
    # in the length for each period tried, where comparing subgraphs pairwise would be quadratic.
    symbols = slices.symbols
    weight = np.concatenate([[0], np.cumsum([len(nodes) for nodes in slices.nodes])])
    repetitions: list[Run] = []
    for period in _periods(symbols):
        # Stretches in which the text equals itself one period later; shorter than that is chance.
        equal = symbols[:-period] == symbols[period:]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], equal.view(np.int8), [0]])))
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if stop - start >= period:
                end = stop + period
                saved = int(weight[end] - weight[start]) * (end - start - period) // (end - start)
                repetitions.append(Run(start, end, period, saved))
    return sorted(repetitions, key=lambda run: (-run.saved, run.start))[:RUNS]


# Layers repeat at some distance, and that distance is the most frequent one between equal symbols.
# A symbol is several slices, since single ones (an addition, a product) are alike within a layer
# too.
def _periods(symbols: Array) -> list[int]:
    """Frequent distances from one symbol, or sequence of symbols, to its next occurrence."""
    votes: dict[int, int] = {}
    text, size = symbols.tobytes(), symbols.itemsize
    for width in (1, GRAM):
        before: dict[bytes, int] = {}
        for k in range(len(symbols) - width + 1):
            gram = text[k * size : (k + width) * size]
            distance = k - before.get(gram, k)
            before[gram] = k
            if distance:
                votes[distance] = votes.get(distance, 0) + 1
    return sorted(sorted(votes, key=lambda d: (-votes[d], d))[:PERIODS])
