"""Dims rearranged by a pattern of names: splits, moves and joins in one line that can be read.

    rearrange(x, "b (h d) t -> b h t d", h=8)

The notation is that of einops (Rogozhnikov, ICLR 2022). Both sides name the same axes; names in
parentheses are one dim of the tensor, the last of them the fastest.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from luminal.base.errors import ShapeError
from luminal.frontend.handle import Extent, describe
from luminal.frontend.movement.views import permute, reshape
from luminal.shape.expression import Expression, product_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

REST = "..."
JOINED = "(...)"
"""The rest within parentheses, which the result has as one dim."""
_TOKENS = re.compile(r"\s*(\.\.\.|[A-Za-z_]\w*|1|[()])")
Groups = list[list[str]]
"""The names that each dim of a tensor is made of; an extent of 1 has none."""


def rearrange(x: Tensor, pattern: str, /, **sizes: Extent) -> Tensor:
    """`x` with its dims split, moved and joined as `pattern` says: "b (h d) -> h b d".

    Left of the arrow stand the dims of x, right of it those of the result. `sizes` are the extents
    of names; of each pair of parentheses one may be left out. `...` stands for any dims, which the
    result can join with others, as in "(b ... c)"; `1` for an extent of 1. Raises ShapeError for a
    pattern that does not fit, naming the part of it.
    """
    left, right = _sides(pattern)
    left, right = _with_rest(x, pattern, left, right)
    extents = _extents(x, pattern, left, sizes)
    names = [name for group in left for name in group]
    apart = reshape(x, *(extents[name] for name in names))
    order = [names.index(name) for group in right for name in group]
    moved = permute(apart, *order) if order else apart
    return reshape(moved, *(product_of([extents[name] for name in group]) for group in right))


def _sides(pattern: str) -> tuple[Groups, Groups]:
    """Both sides of a pattern; ShapeError unless they have the same names, each once."""
    halves = pattern.split("->") if isinstance(pattern, str) else []
    if len(halves) != 2:
        raise ShapeError(f'rearrange: {pattern!r} has not one arrow; write "b c -> c b"')
    left, right = (_groups(pattern, half) for half in halves)
    if any(JOINED in group for group in left):
        raise ShapeError(
            f"rearrange: {pattern!r} has ... in parentheses on the left, where nothing tells how "
            "many dims they hold; name them"
        )
    counts = [
        Counter(REST if name == JOINED else name for group in side for name in group)
        for side in (left, right)
    ]
    for count, side in zip(counts, ("left", "right"), strict=True):
        for name, times in count.items():
            if times > 1:
                raise ShapeError(f"rearrange: {pattern!r} has {name!r} twice on the {side}")
    for name in {**counts[0], **counts[1]}:
        if name not in counts[0] or name not in counts[1]:
            side = "right" if name in counts[0] else "left"
            raise ShapeError(
                f"rearrange: {pattern!r} has no {name!r} on the {side}; both sides have the same "
                "names (sums and repetitions are methods of their own: sum, expand)"
            )
    return left, right


def _groups(pattern: str, text: str) -> Groups:
    """The dims of one side."""
    groups: Groups = []
    joined: list[str] | None = None
    at, text = 0, text.rstrip()
    while at < len(text):
        token = _TOKENS.match(text, at)
        if token is None:
            raise ShapeError(
                f"rearrange: {pattern!r}: {text[at:].strip()!r} is no name, 1, ... or parenthesis"
            )
        at, word = token.end(), token[1]
        if word in "()":
            if (word == "(") == (joined is not None):
                raise ShapeError(f"rearrange: {pattern!r} has parentheses that do not pair")
            joined = [] if word == "(" else None
            if joined is not None:
                groups.append(joined)
        elif joined is not None:
            joined += [] if word == "1" else [JOINED if word == REST else word]
        else:
            groups.append([] if word == "1" else [word])
    if joined is not None:
        raise ShapeError(f"rearrange: {pattern!r} has parentheses that do not pair")
    return groups


def _with_rest(x: Tensor, pattern: str, left: Groups, right: Groups) -> tuple[Groups, Groups]:
    """Both sides with names of their own for the dims that `...` stands for."""
    count = x.ndim - len(left) + ([REST] in left)
    if count < 0 or (count and [REST] not in left):
        dims = len(left) - ([REST] in left)
        raise ShapeError(
            f"rearrange: {pattern!r} has {dims} dims on the left, {describe(x)} has {x.ndim}"
        )
    rest = [[f"...{k}"] for k in range(count)]
    return _replaced(left, rest), _replaced(right, rest)


def _replaced(groups: Groups, rest: Groups) -> Groups:
    names = [name for group in rest for name in group]
    replaced: Groups = []
    for group in groups:
        joined = [new for name in group for new in (names if name == JOINED else [name])]
        replaced += rest if group == [REST] else [joined]
    return replaced


def _extents(
    x: Tensor, pattern: str, left: Groups, sizes: dict[str, Extent]
) -> dict[str, Expression]:
    """The extent of each name; ShapeError where one does not follow, or contradicts x."""
    extents = {name: x.graph.extent(size) for name, size in sizes.items()}
    for name in sizes:
        if not any(name in group for group in left):
            raise ShapeError(f"rearrange: {pattern!r} has no {name!r}, whose size is given")
        if extents[name].is_const and extents[name].value < 0:
            raise ShapeError(f"rearrange: {name} is {extents[name]}; a size is at least 0")
    for extent, group in zip(x.extents, left, strict=True):
        unknown = [name for name in group if name not in extents]
        shown = f"({' '.join(group)})" if len(group) > 1 else (*group, "1")[0]
        if len(unknown) > 1:
            raise ShapeError(
                f"rearrange: {pattern!r}: of {shown} the sizes of {' and '.join(unknown)} are not "
                "known; give all but one"
            )
        divisor = product_of([extents[name] for name in group if name in extents])
        if unknown:
            rest = extent.exact_div(divisor)
            if rest is None and not (extent.is_const and divisor.is_const):
                rest = extent // divisor
            if rest is None:
                raise ShapeError(
                    f"rearrange: {pattern!r}: {extent} of {describe(x)} does not divide by "
                    f"{divisor}, of {shown}"
                )
            extents[unknown[0]] = rest
        elif divisor != extent and (divisor.is_const and extent.is_const):
            raise ShapeError(
                f"rearrange: {pattern!r}: {shown} is {divisor}, and {describe(x)} has {extent}"
            )
    return extents
