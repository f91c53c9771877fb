"""Functional collectives, as DDP, FSDP2 and DTensor write them into graphs, by process group.

Each rank's program has its own part of all tensors, so a collective is the library's, over a mesh
axis that is called as the group. It has sums and maxima; averages and minima are made of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import luminal as lm
from luminal.hlir.attributes import CollectiveAttrs
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.registry import row

Tensor = lm.Tensor


def _ranks(group: str) -> int:
    # late: some builds of PyTorch have no ranks
    from luminal.torch_backend.process_groups import group_of

    return int(group_of(group).size())


def _together(x: Tensor, kind: str, group: str, reduction: str = "") -> Tensor:
    ranks = _ranks(group)
    if ranks == 1:
        return x
    attrs = CollectiveAttrs(kind, group, ranks, reduction, label=f"{kind} of group {group}")
    return x.graph.wrap(x.graph.builder.make("Collective", [x.value], attrs).value)


def _reduced(x: Tensor, kind: str, op: str, group: str) -> Tensor:
    match op:
        case "sum":
            return _together(x, kind, group, "Sum")
        case "avg" if x.dtype.is_float:
            return _together(x, kind, group, "Sum") / _ranks(group)
        case "max":
            return _together(x, kind, group, "Max")
        case "min" if x.dtype.is_float:
            return -_together(-x, kind, group, "Max")
    raise UnsupportedError(f"{kind}: {op!r} of {x.dtype}")


@row("_c10d_functional::all_reduce")
def all_reduce(x: Tensor, op: str, group: str) -> Tensor:
    return _reduced(x, "all_reduce", op, group)


@row("_c10d_functional::all_reduce_coalesced")
def all_reduce_coalesced(xs: Sequence[Tensor], op: str, group: str) -> list[Tensor]:
    return [_reduced(x, "all_reduce", op, group) for x in xs]


@row("_c10d_functional::all_gather_into_tensor")
def all_gather_into_tensor(x: Tensor, size: int, group: str) -> Tensor:
    return _together(x, "all_gather", group)


@row("_c10d_functional::all_gather_into_tensor_coalesced")
def all_gather_into_tensor_coalesced(xs: Sequence[Tensor], size: int, group: str) -> list[Tensor]:
    return [_together(x, "all_gather", group) for x in xs]


@row("_c10d_functional::reduce_scatter_tensor")
def reduce_scatter_tensor(x: Tensor, op: str, size: int, group: str) -> Tensor:
    return _reduced(x, "reduce_scatter", op, group)


@row("_c10d_functional::reduce_scatter_tensor_coalesced")
def reduce_scatter_tensor_coalesced(
    xs: Sequence[Tensor], op: str, size: int, group: str
) -> list[Tensor]:
    return [_reduced(x, "reduce_scatter", op, group) for x in xs]


@row("_c10d_functional::all_to_all_single")
def all_to_all_single(
    x: Tensor, received: Sequence[int], sent: Sequence[int], group: str
) -> Tensor:
    if len({*received, *sent}) > 1:
        raise UnsupportedError(
            f"all_to_all_single: parts of {[*sent]} rows to, of {[*received]} rows from the ranks; "
            "the library's are equal"
        )
    return _together(x, "all_to_all", group)


@row("_c10d_functional::wait_tensor")
def wait_tensor(x: Tensor) -> Tensor:
    """The tensor: a program waits where it is first read."""
    return x
