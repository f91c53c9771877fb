"""Boxes that detectors find: how much they overlap, and which are of a thing already found.

Boxes are corners (left, top, right, bottom).
"""

from __future__ import annotations

from luminal.base.dtypes import bool_
from luminal.base.errors import ShapeError
from luminal.frontend.handle import describe
from luminal.frontend.pointwise.binary import maximum, minimum
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor


def box_area(boxes: Tensor) -> Tensor:
    """The areas of boxes (..., 4): (...)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of each of a (..., n, 4) with each of b (..., m, 4): (..., n, m).

    NaN for two boxes without area. Raises ShapeError for last dims that are not 4.
    """
    for boxes in (a, b):
        _check(boxes)
    first, second = a.unsqueeze(-2), b.unsqueeze(-3)
    corner = maximum(first[..., :2], second[..., :2])
    # Boxes apart have negative sides, whose product would be an area above 0.
    sizes = (minimum(first[..., 2:], second[..., 2:]) - corner).relu()
    shared = sizes[..., 0] * sizes[..., 1]
    return shared / (box_area(first) + box_area(second) - shared)


def nms(
    boxes: Tensor, scores: Tensor, iou_threshold: float, classes: Tensor | None = None
) -> Tensor:
    """Which of boxes (n, 4) with scores (n,) are the best of their places: bools (n,).

    By falling score (the first of equal ones first, NaN before all), a box is kept unless one that
    was kept overlaps it by more than `iou_threshold`: torchvision's. Boxes of different `classes`
    (n,) do not compete. Raises ShapeError.
    """
    _check(boxes)
    if boxes.ndim != 2 or scores.extents != boxes.extents[:1]:
        raise ShapeError(
            f"nms: boxes {describe(boxes)} with scores {describe(scores)}; they are (n, 4) and (n,)"
        )
    graph, count = boxes.graph, boxes.extents[0]
    order = scores.argsort(descending=True)
    ordered = boxes[order]
    places = graph.arange(count)
    # All pairs at once: which later boxes each one covers. Only the choice goes box by box.
    covers = (box_iou(ordered, ordered) > iou_threshold) & (places > places.unsqueeze(-1))
    if classes is not None:
        classes_in_order = classes[order]
        covers = covers & (classes_in_order == classes_in_order.unsqueeze(-1))

    def step(covered: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        place, covered_by_it = row
        kept = ~covered[place]
        return covered | (covered_by_it & kept), kept

    nothing = graph.zeros((count,), dtype=bool_)
    _, kept = scan(step, nothing, (places, covers))
    # Back to the order in which the boxes were given.
    kept_in_order: Tensor = kept[order.argsort()]
    return kept_in_order


def _check(boxes: Tensor) -> None:
    if not boxes.ndim or boxes.shape[-1] != 4:
        raise ShapeError(f"boxes: {describe(boxes)}; the last dim must be 4")
