"""Which layer of a module recorded which nodes, and what every layer gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from itertools import islice
from typing import Any

from luminal.base.records import dataclass
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import is_tensor
from luminal.frontend.tensor import Tensor
from luminal.hlir.ops import Node
from luminal.nn.module import Module


# Nodes carry no names, or equal ones of two layers would not be one. `forward` is wrapped for the
# time of a recording instead, and a node belongs to the innermost call that made it.
@dataclass(slots=True)
class Layers:
    """The innermost layer of nodes by path ("" is the model itself), and of calls their results."""

    of_node: dict[Node, str] = field(default_factory=dict)
    results: dict[str, Tensor] = field(default_factory=dict)
    forward: frozenset[Node] = frozenset()  # all that was recorded up to the loss

    def described(self, node: Node) -> str:
        """Where a node belongs, in words: a layer, or what its gradient or update is computed by.

        Nodes of a backward pass have no layer; the nearest operand that has one tells it.
        """
        where = "" if node in self.forward else " (backward or update)"
        waiting, seen = [node], {node}
        for current in waiting:
            if current in self.of_node:
                return f"layer {self.of_node[current] or 'model'}{where}"
            new = [arg.node for arg in current.args if arg.node not in seen]
            seen.update(new)
            waiting += new
        return f"the loss{where}"


@contextmanager
def noted_layers(model: Module, graph: Recorder) -> Iterator[Layers]:
    """Notes the layers of what is recorded into `graph` inside the block."""
    layers = Layers()
    wrapped: list[tuple[Module, Any]] = []
    # Reversed, so that of a module with several paths the first one is left.
    paths = {module: path for path, module in reversed([*model.named_modules()])}
    for module, path in paths.items():
        wrapped.append((module, vars(module).get("forward")))
        vars(module)["forward"] = partial(_forward, layers, graph, path, module.forward)
    try:
        yield layers
    finally:
        for module, before in wrapped:
            if before is None:
                del vars(module)["forward"]
            else:
                vars(module)["forward"] = before
        layers.forward = frozenset(graph.builder)


def _forward(
    layers: Layers,
    graph: Recorder,
    path: str,
    forward: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    start = len(graph.builder)
    result = forward(*args, **kwargs)
    for node in islice(graph.builder, start, None):
        # Inner calls end first, so the innermost layer has its nodes before those around it.
        layers.of_node.setdefault(node, path)
    if is_tensor(result) and result.graph is graph:
        layers.results.setdefault(path, result)
    return result
