"""Which operation made the first NaN of a step, and where it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from luminal.backends.reference.interpreter import Arrays, interpret
from luminal.base.records import dataclass
from luminal.hlir.graph import Graph
from luminal.hlir.ops import Node, Value
from luminal.loaders.mapped import Array


class _Found(NamedTuple):
    """A node, and how many of its results' elements are NaN or infinite."""

    node: Node
    broken: int
    size: int


Mask = np.ndarray[Any, np.dtype[np.bool_]]
Masks = Mapping[Value, Mask]


@dataclass(slots=True)
class NonFinite:
    """The interpreter's trace callback: which elements of values are NaN, and which infinite."""

    nans: dict[Value, Mask] = field(default_factory=dict)
    infinities: dict[Value, Mask] = field(default_factory=dict)

    def __call__(self, node: Node, arrays: tuple[Any, ...], seconds: float) -> None:
        """Looks at a node's results."""
        for index, array in enumerate(map(_as_float, arrays)):
            if array is not None:
                for masks, mask in ((self.nans, np.isnan), (self.infinities, np.isinf)):
                    if mask(array).any():
                        masks[Value(node, index)] = mask(array)

    def made(self, value: Value, masks: Masks) -> _Found:
        """The operation that made the NaNs (or infinities) of a value: back along operands that
        have some, where a Select was decided along what it took.
        """
        while True:
            node = value.node
            args = [arg for arg in node.args if _flows(arg, value, masks)]
            if not args or node.op.name == "Loop":
                return _Found(node, int(masks[value].sum()), masks[value].size)
            value = args[0]

    def report(self, graph: Graph) -> tuple[_Found | None, _Found | None]:
        """What made the first NaN that reaches a result, and the infinity that led to it."""
        results = [sink.value for sink in graph.sinks]
        nan = next((self.made(value, self.nans) for value in results if value in self.nans), None)
        begun = results if nan is None else nan.node.args
        for value in begun:
            if value in self.infinities:
                infinite = self.made(value, self.infinities)
                if infinite.node.op.name != "Constant":  # masks hold them on purpose
                    return nan, infinite
        return nan, None


def _flows(arg: Value, result: Value, masks: Masks) -> bool:
    """Has an operand NaNs (or infinities), and if it is chosen from, some that were chosen?"""
    if arg not in masks:
        return False
    is_chosen_from = result.node.op.name == "Select" and masks[arg].shape == masks[result].shape
    return not is_chosen_from or bool((masks[arg] & masks[result]).any())


def _as_float(array: Any) -> Array | None:
    values = np.asarray(array)
    if values.dtype.kind in "iub":
        return None
    return values if values.dtype.kind == "f" else values.astype(np.float32)  # bfloat16


# Checks inside the program would change its kernels, and with them what they look for. The step is
# computed again on the reference from values kept from before it: slow, and once.
def first_nan(graph: Graph, inputs: Mapping[str, Array]) -> str:
    """One line on the first NaN, and the first infinity, of a run of `graph`; no State changes.

    The reference backend computes it, in the order in which the operations were recorded.
    """
    observer = NonFinite()
    with np.errstate(all="ignore"):
        interpret(graph, inputs, {}, Arrays(), observer)
    nan, infinite = observer.report(graph)
    parts = []
    if infinite is not None:
        parts.append(f"the first infinity is made by {_told(infinite)}")
    if nan is not None:
        parts.append(f"the first NaN is made by {_told(nan)}")
    return "; ".join(parts) or "the reference backend computes it without a NaN or infinity"


def _told(origin: _Found) -> str:
    node = origin.node
    name = getattr(node.attrs, "name", "")
    types = ", ".join(str(arg.type) for arg in node.args)
    what = f"{node.op.name} {name}".rstrip() + (f" of {types}" if types else "")
    what += f", {node.recorded}" if node.recorded is not None else ""
    return f"{what}: {origin.broken} of {origin.size} elements"
