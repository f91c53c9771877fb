"""Records of one collective: what it is called in errors, and what was asked of an engine."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from luminal.base.errors import InputError
from luminal.base.records import dataclass

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute", "broadcast"]
Monoid = Literal["sum", "prod", "max", "min"]
Array = npt.NDArray[Any]
Buffer = Array | memoryview
Pairs = tuple[tuple[int, int], ...]

REDUCTIONS = ("all_reduce", "reduce_scatter")
MONOIDS = ("sum", "prod", "max", "min")


@dataclass(frozen=True, slots=True)
class Label:
    """What a collective is called in errors: the value it moves and the layer that value is of."""

    value: str
    layer: str = ""

    def of(self, kind: str, axis: str) -> str:
        """The collective in words: kind, value, layer, mesh axis."""
        layer = f" of layer {self.layer!r}" if self.layer else ""
        over = f" over mesh axis {axis!r}" if axis else ""
        return f"{kind} of {self.value!r}{layer}{over}"


@dataclass(frozen=True, slots=True)
class Request:
    """One collective as it was asked for, checked against the size of its group; flat buffers."""

    kind: Kind
    source: Array
    target: Array
    monoid: Monoid
    pairs: Pairs
    root: int

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be the same on all ranks."""
        dtype = self.source.dtype.name if self.kind in REDUCTIONS else "bytes"
        return (
            self.kind, self.source.nbytes, self.target.nbytes, dtype, self.monoid, self.pairs,
            self.root,
        )  # fmt: skip


class Ticket:
    """A collective that was started: `number` counts those of its group, `title` names it, `done`
    says whether the target is written, and after `asks` seconds its rank asks where others are.
    """

    __slots__ = ("asks", "done", "number", "request", "state", "title")

    def __init__(self, number: int, title: str, request: Request) -> None:
        self.number = number
        self.title = title
        self.request = request
        self.done = False
        self.asks = 0.0
        self.state: Any = None  # the engine's

    def __repr__(self) -> str:
        return f"<Ticket {self.number}: {self.title}>"


def checked(
    title: str, kind: Kind, source: Buffer, target: Buffer, size: int,
    monoid: Monoid = "sum", pairs: Pairs = (), root: int = 0,
) -> Request:  # fmt: skip
    """The request, or InputError that says which of its rules a buffer or an option breaks."""
    if kind not in get_args(Kind):
        raise InputError(f"{title}: it is one of {', '.join(get_args(Kind))}")
    source, target = _contiguous(title, "source", source), _contiguous(title, "target", target)
    if not target.flags.writeable:
        raise InputError(f"{title}: the target cannot be written; give an array of your own")
    _check_sizes(title, kind, source, target, size)
    if kind in REDUCTIONS:
        if monoid not in MONOIDS:
            raise InputError(f"{title}: monoid is {monoid!r}; it is one of {', '.join(MONOIDS)}")
        if source.dtype != target.dtype:
            raise InputError(
                f"{title}: the source is {source.dtype}, the target {target.dtype}; "
                "a reduction keeps the dtype"
            )
        if source.dtype == np.bool_ and monoid == "sum":
            raise InputError(f"{title}: bools have no sum; cast them to int32 before")
    if kind == "permute":
        _check_pairs(title, pairs, size)
    if not isinstance(root, int) or not 0 <= root < size:
        raise InputError(f"{title}: root is {root!r}; the group has ranks 0 to {size - 1}")
    return Request(kind, source, target, monoid, pairs, root)


def _contiguous(title: str, what: str, buffer: Buffer) -> Array:
    array = np.asarray(buffer)
    if array.dtype.hasobject or (array is not buffer and array.base is None):  # a copy of a list
        raise InputError(
            f"{title}: the {what} is a {type(buffer).__name__}; give an array of numbers"
        )
    if not array.flags.c_contiguous:
        raise InputError(f"{title}: the {what} is not contiguous; give np.ascontiguousarray of it")
    return array.reshape(-1)


def _check_sizes(title: str, kind: Kind, source: Array, target: Array, size: int) -> None:
    take, give = source.nbytes, target.nbytes
    if kind == "all_gather":
        fits, rule = give == take * size, f"{size} times the source"
    elif kind == "reduce_scatter":
        fits, rule = take == give * size, f"1/{size} of the source"
    else:
        fits, rule = take == give, "as large as the source"
    if fits and kind == "all_to_all":
        fits, rule = take % size == 0, f"{size} equal pieces"
    if not fits:
        raise InputError(f"{title}: {take} bytes to {give}; the target of {kind} must be {rule}")


def _check_pairs(title: str, pairs: Pairs, size: int) -> None:
    ends = [[pair[end] for pair in pairs] for end in (0, 1)]
    for ranks, what in zip(ends, ("sends", "receives"), strict=True):
        if len(set(ranks)) != len(ranks) or not all(0 <= rank < size for rank in ranks):
            raise InputError(
                f"{title}: pairs are {pairs}; each rank from 0 to {size - 1} {what} at most once"
            )
