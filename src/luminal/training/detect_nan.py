"""Which operation made the first NaN of a step, and in which layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from luminal.backends.reference.interpreter import Arrays, interpret
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node
from luminal.loaders.mapped import Array
from luminal.records import dataclass
from luminal.training.layers import Layers


class _Found(NamedTuple):
    """A node, and how many of its results' elements are NaN or infinite."""

    node: Node
    broken: int
    size: int


@dataclass(slots=True)
class FirstNonFinite:
    """The interpreter's trace callback, operands first: the first operation that makes a NaN, and
    the first that makes an infinity of what is finite (masks hold infinities on purpose).
    """

    nan: _Found | None = None
    infinite: _Found | None = None
    _broken: set[Node] = field(default_factory=set)

    def __call__(self, node: Node, arrays: tuple[Any, ...], seconds: float) -> None:
        """Looks at a node's results."""
        floats = [each for each in map(_as_float, arrays) if each is not None]
        nans = sum(int(np.isnan(each).sum()) for each in floats)
        infinities = sum(int(np.isinf(each).sum()) for each in floats)
        size = sum(each.size for each in floats)
        if nans and self.nan is None:
            self.nan = _Found(node, nans, size)
        is_made_here = not any(arg.node in self._broken for arg in node.args)
        if infinities and self.infinite is None and is_made_here and node.op.name != "Constant":
            self.infinite = _Found(node, infinities, size)
        if nans or infinities:
            self._broken.add(node)


def _as_float(array: Any) -> Array | None:
    found = np.asarray(array)
    if found.dtype.kind in "iub":
        return None
    return found if found.dtype.kind == "f" else found.astype(np.float32)  # bfloat16


def first_nan(graph: Graph, inputs: Mapping[str, Array], layers: Layers) -> str:
    """One line on the first NaN, and the first infinity, of a run of `graph`; no State changes.

    The reference backend computes it, in the order in which the operations were recorded.
    """
    found = FirstNonFinite()
    with np.errstate(all="ignore"):
        interpret(graph, inputs, {}, Arrays(), found)
    parts = []
    if found.infinite is not None:
        parts.append(f"the first infinity is made by {_told(found.infinite, layers)}")
    if found.nan is not None:
        parts.append(f"the first NaN is made by {_told(found.nan, layers)}")
    return "; ".join(parts) or "the reference backend computes it without a NaN or infinity"


def _told(found: _Found, layers: Layers) -> str:
    node = found.node
    name = getattr(node.attrs, "name", "")
    types = ", ".join(str(arg.type) for arg in node.args)
    what = f"{node.op.name} {name}".rstrip() + (f" of {types}" if types else "")
    return f"{what} in {layers.described(node)}: {found.broken} of {found.size} elements"
