"""Which operation made the first NaN of a step, and in which layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from luminal.backends.reference.interpreter import Arrays, interpret
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node
from luminal.loaders.mapped import Array
from luminal.training.layers import Layers


class _Found(NamedTuple):
    """A node, and how many of its results' elements are NaN or infinite."""

    node: Node
    broken: int
    size: int


@dataclass(slots=True)
class FirstNonFinite:
    """The interpreter's trace callback: the first operation that makes a NaN of operands without
    one, and the first that makes an infinity of finite ones (masks hold infinities on purpose).
    """

    nan: _Found | None = None
    infinite: _Found | None = None
    _seen: dict[Node, tuple[bool, bool]] = field(default_factory=dict)

    def __call__(self, node: Node, arrays: tuple[Any, ...], seconds: float) -> None:
        """Looks at a node's results."""
        floats = [each for each in map(_as_float, arrays) if each is not None]
        nans = sum(int(np.isnan(each).sum()) for each in floats)
        infinities = sum(int(np.isinf(each).sum()) for each in floats)
        size = sum(each.size for each in floats)
        before = [self._seen.get(arg.node, (False, False)) for arg in node.args]
        if nans and self.nan is None and not any(nan for nan, _ in before):
            self.nan = _Found(node, nans, size)
        is_finite_before = not any(nan or infinite for nan, infinite in before)
        is_literal = node.op.name == "Constant"
        if infinities and self.infinite is None and is_finite_before and not is_literal:
            self.infinite = _Found(node, infinities, size)
        self._seen[node] = nans > 0, infinities > 0


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
