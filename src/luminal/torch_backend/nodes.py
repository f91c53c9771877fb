"""What is known of the nodes of an aten graph: tensors, views, checks, numbers."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from luminal.torch_backend.types import as_real

# Views of which PyTorch makes a tensor without touching an element; `getitem` is of a list of them.
VIEWS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in "permute view t unsqueeze alias detach expand squeeze diagonal unfold".split()
) | {
    torch.ops.aten.transpose.int, torch.ops.aten.select.int, torch.ops.aten.slice.Tensor,
    torch.ops.aten.squeeze.dim, torch.ops.aten.squeeze.dims, torch.ops.aten.split.Tensor,
    torch.ops.aten.split_with_sizes.default, torch.ops.aten.unbind.int, operator.getitem,
    torch.ops.aten.view.dtype, torch.ops.aten.as_strided.default,
}  # fmt: skip

OPERATORS = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
WITH_EFFECTS = torch.ops.higher_order.with_effects
ASSERTIONS = frozenset(
    [
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch.ops.aten._assert_tensor_metadata.default,
    ]
)


def given_sizes(module: GraphModule) -> list[torch.SymInt]:
    """The open sizes that arguments are, or have."""
    held = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    parts = [x.shape if isinstance(x, torch.Tensor) else (x,) for x in held]
    return [size for part in parts for size in part if isinstance(size, torch.SymInt)]


def viewed_by(node: Node) -> Node:
    """What `node` is a view of in the end: itself, if it is none."""
    below: Any = node.args[0] if node.args else None
    if not isinstance(below, Node) or node.target not in VIEWS:
        return node
    if node.target is operator.getitem and below.target not in VIEWS:
        return node
    return viewed_by(below)


def is_object(node: Node) -> bool:
    """Is it an argument that is neither a tensor nor a number, such as a mesh of DTensor's?"""
    held = node.meta.get("val")
    return node.op == "placeholder" and not isinstance(
        held, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | None
    )


def is_token_of(node: Node, user: Node) -> bool:
    """Does the user take the node as what orders effects?"""
    return user.target is WITH_EFFECTS and user.args[0] is node


def name_of(target: Any) -> str:
    """What errors call what a node calls."""
    return str(target if isinstance(target, OPERATORS) else getattr(target, "__name__", target))


def is_asserted(node: Node) -> bool:
    """Does nothing but checks, which PyTorch adds to what it knows of numbers, read it?"""
    return all(
        user.target in ASSERTIONS
        or (isinstance(user.meta.get("val"), torch.SymBool) and is_asserted(user))
        for user in node.users
    )


def meta_of(x: Any) -> Any:
    """What is known of an argument: of a node that of its result, of anything else itself."""
    return x.meta.get("val") if isinstance(x, Node) else x


def tensor_of(node: Any) -> torch.Tensor:
    """What is known of a node's result, which is a tensor."""
    held: torch.Tensor = node.meta["val"]
    return held


def memory_of(node: Any) -> torch.Tensor:
    """What is known of a tensor as it lies in memory: complex numbers are pairs."""
    return as_real(tensor_of(node))


def has_complex(node: Node) -> bool:
    """Is an operand complex, or a result?"""
    held = [node.meta.get("val"), *(source.meta.get("val") for source in node.all_input_nodes)]
    parts = [x for whole in held for x in (whole if isinstance(whole, list | tuple) else [whole])]
    return any(isinstance(x, torch.Tensor) and x.is_complex() for x in parts)
