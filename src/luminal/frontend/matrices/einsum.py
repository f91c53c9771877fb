"""Einstein summation: parse the equation, order the pairs by cost, contract each pair."""

from __future__ import annotations

import string
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from luminal.base.errors import ShapeError
from luminal.base.records import dataclass
from luminal.frontend.handle import along, describe
from luminal.frontend.matrices.matmul import rounds, sum_products
from luminal.frontend.matrices.products import up_together
from luminal.frontend.movement.views import permute, reshape, view_of
from luminal.shape import view as views
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Labels: TypeAlias = tuple[str, ...]
Path: TypeAlias = "int | tuple[Path, Path]"
"""An operand's number, or two paths whose results are multiplied."""

_EXHAUSTIVE = 8
"""The most operands whose orders are all tried: 3**8 pairs of subsets take some milliseconds."""
_SYMBOLIC = 1024
"""What a symbolic extent counts as in costs."""


@rounds("equation", "operands")
def einsum(equation: str | Tensor, *operands: Any) -> Tensor:
    """The sum of products that `equation` describes: `einsum("bij,bjk->bik", x, y)`.

    Or each operand with a list of its labels, and last the result's: `einsum(x, [0, 1], y, [1, 2],
    [0, 2])`, labels below 52 or `...`.

    Repeated labels of one operand take its diagonal, `...` stands for broadcast dims, and without
    `->` the result has the dims of `...` and then the labels that occur once, sorted. Extents of 1
    broadcast. Several operands are multiplied in pairs, in the order of least work.
    Sum(Mul) of Views; raises ShapeError where equation and operands do not fit.
    """
    if not isinstance(equation, str):
        equation, operands = _of_lists((equation, *operands))
    tensors = _flat(operands)
    inputs, output = _parsed(equation, [x.ndim for x in tensors])
    extents = _extents(equation, tensors, inputs)
    ups, dtype = up_together(*tensors)
    parts = [_simple(x, labels) for x, labels in zip(ups, inputs, strict=True)]
    kept = tuple(label for label in output if extents[label] != const(1))
    sizes = {label: n.value if n.is_const else _SYMBOLIC for label, n in extents.items()}
    labels = [frozenset(part.labels) for part in parts]
    path = _path(labels, frozenset(kept), sizes)
    result = _summed(_contracted(parts, path, frozenset(kept)), frozenset(kept))
    missing = [label for label in kept if label not in result.labels]
    assert not missing, missing
    ordered = permute(result.tensor, *(result.labels.index(label) for label in kept))
    return reshape(ordered, tuple(extents[label] for label in output)).cast(dtype)


def _of_lists(operands: Sequence[Any]) -> tuple[str, tuple[Tensor, ...]]:
    """The equation that lists of labels mean, and the operands."""
    pairs = len(operands) // 2 * 2
    parts = [_letters(labels) for labels in operands[1:pairs:2]]
    result = f"->{_letters(operands[-1])}" if len(operands) > pairs else ""
    return ",".join(parts) + result, tuple(operands[:pairs:2])


def _letters(labels: Any) -> str:
    """Labels as a part of an equation. Raises ShapeError for what is no list of them."""
    letters = string.ascii_letters
    if not isinstance(labels, list | tuple):
        raise ShapeError(f"einsum: {labels!r} is no list of labels; give one after each operand")
    for label in labels:
        if label is not Ellipsis and not (isinstance(label, int) and 0 <= label < len(letters)):
            raise ShapeError(f"einsum: label {label!r} is not in 0..{len(letters) - 1} or ...")
    return "".join("..." if label is Ellipsis else letters[label] for label in labels)


def _flat(operands: Sequence[Tensor | Sequence[Tensor]]) -> list[Tensor]:
    """The operands, also if they are given as one list."""
    first = operands[0] if operands else ()
    if isinstance(first, list | tuple):
        operands = first
    if not operands:
        raise ShapeError("einsum: no operands; give one for each part of the equation")
    return list(operands)  # type: ignore[arg-type]  # lists of lists fail at their first use


# --- the equation ---------------------------------------------------------------------------------


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of every operand and of the result; dims of `...` are `.1`, `.2` from the end."""
    left, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(
            f"einsum: {equation!r} has {len(terms)} parts for {len(ranks)} operands; "
            "separate one part for each by commas"
        )
    inputs = [_labels(equation, term, rank) for term, rank in zip(terms, ranks, strict=True)]
    dots = max((len([x for x in labels if x[0] == "."]) for labels in inputs), default=0)
    broadcast = [f".{k}" for k in range(dots, 0, -1)]
    if not arrow:
        letters = [x for labels in inputs for x in labels if x[0] != "."]
        return inputs, (*broadcast, *sorted(x for x in set(letters) if letters.count(x) == 1))
    shown = dots if "..." in wanted else 0  # dims of ... that the result lacks are summed
    output = _labels(equation, wanted, len(wanted.replace("...", "")) + shown)
    unknown = [x for x in output if x not in {y for labels in inputs for y in labels}]
    if unknown or len(set(output)) != len(output):
        raise ShapeError(
            f"einsum: the result of {equation!r} has labels that no operand has, or one twice"
        )
    return inputs, output


def _labels(equation: str, term: str, rank: int) -> Labels:
    """The labels of one part for an operand of `rank`."""
    before, dots, after = term.partition("...")
    if not all(letter in string.ascii_letters for letter in before + after):
        raise ShapeError(f"einsum: {term!r} of {equation!r}; labels are letters, and '...' once")
    free = rank - len(before) - len(after)
    if free < 0 or (free and not dots):
        raise ShapeError(
            f"einsum: {term!r} of {equation!r} has {len(before + after)} labels for {rank} dims; "
            "label each dim, or write ..."
        )
    return (*before, *(f".{k}" for k in range(free, 0, -1)), *after)


def _extents(
    equation: str, tensors: Sequence[Tensor], inputs: Sequence[Labels]
) -> dict[str, Expression]:
    """The extent of every label; 1 gives way to another."""
    extents: dict[str, Expression] = {}
    for x, labels in zip(tensors, inputs, strict=True):
        for label, n in zip(labels, x.extents, strict=True):
            extent = extents.get(label, const(1))
            if const(1) not in (extent, n) and extent != n:
                raise ShapeError(
                    f"einsum: {label!r} of {equation!r} is {extent} and, in {describe(x)}, {n}; "
                    "a label has one extent"
                )
            extents[label] = n if extent == const(1) else extent
    return extents


# --- the order ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """The cheapest known way to multiply a set of operands."""

    cost: int
    labels: frozenset[str]
    path: Path


def _path(labels: Sequence[frozenset[str]], kept: frozenset[str], sizes: dict[str, int]) -> Path:
    """The order in which the operands are multiplied: the best, or greedy for many."""
    plans = [_Plan(0, names, k) for k, names in enumerate(labels)]
    if len(plans) > _EXHAUSTIVE:
        return _greedy(plans, kept, sizes)
    best = {1 << k: plan for k, plan in enumerate(plans)}
    whole = (1 << len(plans)) - 1
    # Dynamic programming over subsets: 3**n joins, which _EXHAUSTIVE keeps in the thousands.
    for members in range(1, whole + 1):
        outside = [plan.labels for k, plan in enumerate(plans) if not members >> k & 1]
        part = (members - 1) & members
        while part > members ^ part:
            joined = _joined(best[part], best[members ^ part], kept.union(*outside), sizes)
            if members not in best or joined.cost < best[members].cost:
                best[members] = joined
            part = (part - 1) & members
    return best[whole].path


def _joined(a: _Plan, b: _Plan, needed: frozenset[str], sizes: dict[str, int]) -> _Plan:
    # A product walks all labels of both sides; those that nobody needs later are summed at once.
    union = a.labels | b.labels
    work = 1
    for label in union:
        work *= sizes[label]
    return _Plan(a.cost + b.cost + work, union & needed, (a.path, b.path))


def _greedy(plans: list[_Plan], kept: frozenset[str], sizes: dict[str, int]) -> Path:
    """The cheapest pair first, again and again."""
    while len(plans) > 1:
        options = []
        for i, j in combinations(range(len(plans)), 2):
            rest = [plan.labels for k, plan in enumerate(plans) if k not in (i, j)]
            joined = _joined(plans[i], plans[j], kept.union(*rest), sizes)
            options.append((joined.cost, i, j, joined))
        _, i, j, joined = min(options, key=lambda option: option[:3])
        plans = [plan for k, plan in enumerate(plans) if k not in (i, j)] + [joined]
    return plans[0].path


# --- the work -------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A Tensor with a label for each dim, all different, none of extent 1."""

    tensor: Tensor
    labels: Labels


def _simple(x: Tensor, labels: Labels) -> _Part:
    """An operand's diagonal over labels that repeat, without its dims of extent 1."""
    wanted = {label: n for label, n in zip(labels, x.extents, strict=True) if n != const(1)}
    shape = tuple(wanted.values())
    place = {label: along(k, n) for k, (label, n) in enumerate(wanted.items())}
    # A label twice reads at the same position twice: the diagonal is a view.
    entries = [
        const(0) if n == const(1) else place[label]
        for label, n in zip(labels, x.extents, strict=True)
    ]
    return _Part(view_of(x, views.made(x.extents, shape, entries)), tuple(wanted))


def _summed(part: _Part, needed: frozenset[str]) -> _Part:
    """The part summed over the labels that nothing else needs."""
    gone = [k for k, label in enumerate(part.labels) if label not in needed]
    if not gone:
        return part
    total = part.tensor.sum(gone, dtype=part.tensor.dtype)
    return _Part(total, tuple(label for label in part.labels if label in needed))


def _contracted(parts: Sequence[_Part], path: Path, needed: frozenset[str]) -> _Part:
    """The product along `path`, summed over the labels that are not needed outside of it."""
    if isinstance(path, int):
        return _summed(parts[path], needed)
    sides = [
        _contracted(parts, half, needed | _used(parts, other)) for half, other in (path, path[::-1])
    ]
    union = list(dict.fromkeys((*sides[0].labels, *sides[1].labels)))
    kept = tuple(label for label in union if label in needed)
    order = (*kept, *(label for label in union if label not in needed))
    a, b = (_aligned(side, order) for side in sides)
    return _Part(sum_products(a, b, *range(len(kept) - len(order), 0)), kept)


def _used(parts: Sequence[_Part], path: Path) -> frozenset[str]:
    if isinstance(path, int):
        return frozenset(parts[path].labels)
    return _used(parts, path[0]) | _used(parts, path[1])


def _aligned(part: _Part, order: Sequence[str]) -> Tensor:
    """The dims in `order`, with extent 1 for labels that the part lacks."""
    present = [label for label in order if label in part.labels]
    x = permute(part.tensor, *(part.labels.index(label) for label in present))
    extents = iter(x.extents)
    return reshape(x, tuple(next(extents) if k in present else const(1) for k in order))
