"""The VJP of what ranks do together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal.base.errors import GraphError
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import CollectiveAttrs

if TYPE_CHECKING:
    from luminal.autograd.rules import Applied

_TRANSPOSED = {
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_reduce": "all_reduce",
    "all_to_all": "all_to_all",
    "permute": "permute",
}


def collective(at: Applied, gradients: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """A collective is linear, so its gradient goes the other way; all but one of maxima, which
    raises GraphError.
    """
    (x,), (g,) = at.args, gradients
    attrs: CollectiveAttrs = at.node.attrs
    assert g is not None
    if attrs.reduction == "Max":
        raise GraphError(
            f"the {attrs.kind} of {x.shape} by Max has no derivative; take it of x.detach(), as "
            "softmax does"
        )
    reduction = "Sum" if attrs.kind in ("all_gather", "all_reduce") else ""
    pairs = tuple((target, source) for source, target in attrs.pairs)
    back = CollectiveAttrs(
        _TRANSPOSED[attrs.kind], attrs.axis, attrs.ranks, reduction, pairs, attrs.turn, attrs.label
    )
    return (at.graph.wrap(at.graph.builder.make("Collective", [g.value], back).value),)
