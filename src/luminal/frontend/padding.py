"""`pad` with all its modes: constant, reflect, replicate, circular, symmetric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from luminal.errors import ShapeError
from luminal.frontend.handle import Extent, along, describe
from luminal.frontend.movement import mapped, narrow
from luminal.frontend.movement import pad as filled
from luminal.shape.expression import Expression, const, maximum, minimum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Pair = tuple[Expression, Expression]
Amounts = Sequence[Extent] | Sequence[Sequence[Extent]]

NUMPYS = {"edge": "replicate", "wrap": "circular"}


def pad(x: Tensor, pad: Amounts, mode: str = "constant", value: float | None = None) -> Tensor:
    """More elements around `x`. `pad` holds pairs (before, after) for each dim from the first on,
    or a flat list before, after, before, after ... from the *last* dim on, as PyTorch's F.pad.

    Modes: "constant" (`value`, 0 by default), "replicate" or "edge" (the nearest element),
    "reflect" (mirrored at the edge element), "symmetric" (mirrored with it), "circular" or "wrap"
    (from the other end). Negative amounts crop. Amounts may exceed the extent; the pattern goes on.
    Each is one view, with a Select for values but 0. ShapeError for other modes and pairs.
    """
    pairs = _pairs(x, pad)
    mode = NUMPYS.get(mode, mode)
    if mode in ("constant", "circular"):
        x, pairs = _cropped(x, pairs)
    if mode == "constant":
        return filled(x, pairs, 0 if value is None else value)
    if mode not in _SOURCE:
        raise ShapeError(
            f'pad: mode {mode!r} is not known; use "constant", "replicate", "reflect", '
            '"symmetric" or "circular"'
        )
    entries, shape = [], []
    for k, (n, (before, after)) in enumerate(zip(x.extents, pairs, strict=True)):
        shape.append(n + before + after)
        at = along(k, shape[k])
        moved = before != const(0) or after != const(0)
        if moved:
            x.graph.require(n >= 1, f"pad: mode {mode} of dim {k}, which needs an element")
        entries.append(_SOURCE[mode](at - before, n) if moved else at)
    return mapped(x, tuple(shape), entries)


def _pairs(x: Tensor, pad: Amounts) -> list[Pair]:
    """(before, after) for each dim, as Expressions."""
    given: list[Any] = list(pad)
    if all(isinstance(entry, tuple | list) for entry in given) and (given or x.ndim == 0):
        listed = [tuple(entry) for entry in given]
    else:
        if len(given) % 2 or len(given) > 2 * x.ndim:
            raise ShapeError(
                f"pad: {given} is not a (before, after) pair for each of the last dims of "
                f"{describe(x)}"
            )
        listed = [(given[k], given[k + 1]) for k in range(len(given) - 2, -1, -2)]
        listed = [(0, 0)] * (x.ndim - len(listed)) + listed
    if len(listed) != x.ndim or any(len(pair) != 2 for pair in listed):
        raise ShapeError(f"pad: {pad} is not a (before, after) pair for each dim of {describe(x)}")
    return [(x.graph.extent(before), x.graph.extent(after)) for before, after in listed]


def _cropped(x: Tensor, pairs: list[Pair]) -> tuple[Tensor, list[Pair]]:
    """`x` without what literal negative amounts cut off, and the amounts that are left."""
    left = []
    for k, pair in enumerate(pairs):
        cut = [-n if n.is_const and n.value < 0 else const(0) for n in pair]
        if any(n != const(0) for n in cut):
            x = narrow(x, k, cut[0], x.extents[k] - cut[0] - cut[1])
        left.append((pair[0] + cut[0], pair[1] + cut[1]))
    return x, left


# --- which element stands at a position before 0, or past the last one ----------------------------


def _replicated(at: Expression, n: Expression) -> Expression:
    return minimum(maximum(at, 0), n - 1)


def _circular(at: Expression, n: Expression) -> Expression:
    return at % n


def _reflected(at: Expression, n: Expression) -> Expression:
    period = maximum(2 * n - 2, 1)
    phase = at % period
    return minimum(phase, period - phase) if n != const(1) else const(0)


def _symmetric(at: Expression, n: Expression) -> Expression:
    phase = at % (2 * n)
    return minimum(phase, 2 * n - 1 - phase)


_SOURCE = {
    "replicate": _replicated,
    "circular": _circular,
    "reflect": _reflected,
    "symmetric": _symmetric,
}
