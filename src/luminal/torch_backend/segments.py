"""Graphs with operators that the library has not: parts are compiled, PyTorch runs the rest.

Nodes get levels: even ones are compiled, odd ones are not. A node's level is the lowest that its
operands' allow, so there are as few parts as a chain of dependences needs.
"""

from __future__ import annotations

import operator
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

from luminal.torch_backend.compiled import compiled
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.options import Options
from luminal.torch_backend.plans import Results
from luminal.torch_backend.translation import missing, translated


# Levels make as few parts as a chain of dependences needs; parts in the order of the graph would be
# cut wherever an operator is missing.
def compiled_in_parts(
    module: GraphModule, static: Sequence[int], options: Options, lie: Results
) -> Callable[[list[Any]], Any]:
    """A function of a list of arguments. `static`: positions of those that are Weights; `lie`: how
    results lie in memory.

    Raises UnsupportedError where the options ask for errors; else warns once a graph.
    """
    try:
        return compiled(translated(module, static, lie), options.compile)
    except UnsupportedError as error:
        lacking = missing(module)
        if not options.falls_back or not lacking:
            raise UnsupportedError(_text(lacking) or str(error)) from None
    warnings.warn(f"luminal: PyTorch runs {_text(lacking)}", stacklevel=2)
    return _Parts(module, lacking, static, options, Results(share=lie.share))


def _text(lacking: dict[Node, str]) -> str:
    """The reasons, each once."""
    reasons = Counter(lacking.values())
    return "; ".join(f"{why} ({n} times)" if n > 1 else why for why, n in reasons.items())


class _Parts:
    """A graph cut into parts, which run one after the other."""

    def __init__(
        self,
        module: GraphModule,
        outside: Collection[Node],
        static: Sequence[int],
        options: Options,
        lie: Results,
    ) -> None:
        self._boxed_call = True  # of the instance: wrappers copy its attributes
        levels = _levels(module, outside)
        _compute_sizes_where_used(module, levels)
        arguments = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        weights = {arguments[k] for k in static}
        self._whole = split_module(module, module, levels.__getitem__)
        parts: list[tuple[str, Any]] = list(self._whole.named_children())
        for name, part in parts:
            if int(name.removeprefix("submod_")) % 2:
                setattr(self._whole, name, _Foreign(part))
            else:
                inner = [node.name for node in part.graph.nodes if node.op == "placeholder"]
                weight_places = [k for k, placeholder in enumerate(inner) if placeholder in weights]
                single = _made_a_list(part)
                function = compiled_in_parts(part, weight_places, options, lie)
                setattr(self._whole, name, _Part(function, single))

    def __call__(self, args: list[Any]) -> Any:
        inputs = list(args)
        # What `_boxed_call` promises: the caller's list keeps nothing alive that is used no more.
        args.clear()
        return self._whole(*inputs)


class _Part(torch.nn.Module):
    """A compiled part, called as the module that it replaces."""

    def __init__(self, function: Callable[[list[Any]], Any], is_single: bool) -> None:
        super().__init__()
        self._function = function
        self._is_single = is_single

    def forward(self, *args: Any) -> Any:
        results = self._function(list(args))
        return results[0] if self._is_single else results


class _Foreign(torch.nn.Module):
    """A part that PyTorch runs. Its results get the dtypes that the graph says they have: some
    kernels give others, and what is compiled reads memory as the graph says.
    """

    def __init__(self, part: Any) -> None:
        super().__init__()
        self._part = part
        self._is_single = _made_a_list(part)
        self._dtypes = [_dtype(result) for result in _returned(part)]
        part.recompile()

    def forward(self, *args: Any) -> Any:
        results = tuple(
            x if dtype is None else x.to(dtype)
            for x, dtype in zip(self._part(*args), self._dtypes, strict=True)
        )
        return results[0] if self._is_single else results


def _dtype(result: Any) -> torch.dtype | None:
    held = result.meta.get("val") if isinstance(result, Node) else None
    return held.dtype if isinstance(held, torch.Tensor) else None


def _returned(part: Any) -> Any:
    output = next(node for node in part.graph.nodes if node.op == "output")
    return output.args[0]


def _made_a_list(part: Any) -> bool:
    """Makes a graph that returns a bare value return it in a tuple; was it such a graph?"""
    output = next(node for node in part.graph.nodes if node.op == "output")
    if isinstance(output.args[0], tuple | list):
        return False
    output.args = ((output.args[0],),)
    return True


def _levels(module: GraphModule, outside: Collection[Node]) -> dict[Node, int]:
    levels: dict[Node, int] = {}
    for node in module.graph.nodes:
        least = max(
            (levels[source] for source in node.all_input_nodes if source in levels), default=0
        )
        if node.target is operator.getitem:  # one of several results, which are made together
            levels[node] = least
        elif node.op == "call_function" and not _is_write(node):
            levels[node] = least + (least % 2 != (node in outside))
    last = max(levels.values(), default=0)
    for node in module.graph.nodes:
        if _is_write(node):  # behind all that reads the argument
            levels[node] = last + (last % 2 != (node in outside))
        elif node.op == "get_attr":
            levels[node] = min((levels[user] for user in node.users), default=0)
    return levels


def _compute_sizes_where_used(module: GraphModule, levels: dict[Node, int]) -> None:
    """Sizes made of sizes are computed in each part anew: a product, handed on, hides its factors,
    which sizes of other tensors are made of.
    """
    for node in reversed(list(module.graph.nodes)):
        home = levels.get(node)
        if home is None or not _is_size_of_sizes(node):
            continue
        copies: dict[int, Node] = {}
        # Each part computes the size from the sizes that it is given, where guards know the
        # factors.
        for user in [user for user in node.users if levels.get(user, home) != home]:
            level = levels[user]
            if level not in copies:
                with module.graph.inserting_after(node):
                    copies[level] = module.graph.node_copy(node)
                levels[copies[level]] = level
            user.replace_input_with(node, copies[level])
        if not node.users:
            module.graph.erase_node(node)


def _is_size_of_sizes(node: Node) -> bool:
    inputs = node.all_input_nodes
    return bool(inputs) and all(
        isinstance(operand.meta.get("val"), torch.SymInt | torch.SymFloat)
        for operand in (node, *inputs)
    )


def _is_write(node: Node) -> bool:
    return node.target is torch.ops.aten.copy_.default
