"""`dims=` of a compile: which values of dims it is for, and the graph for them alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias

from luminal.base.errors import DimError
from luminal.base.near_names import suggestion
from luminal.base.number_kinds import is_number
from luminal.base.records import dataclass
from luminal.hlir import graph as hlir
from luminal.hlir.substitute import substitute_dims
from luminal.runtime.binding import Interval
from luminal.shape.expression import Expression, Symbol, const, symbol

DimChoice: TypeAlias = "int | Interval | Sequence[Interval]"
"""An int or one interval narrows a dim; a list of intervals compiles a program for each as well."""


@dataclass(frozen=True, slots=True)
class DimChoices:
    """`dims=` of a compile: intervals that hold for all runs, and buckets by dim."""

    narrow: dict[str, Interval]
    buckets: dict[str, list[Interval]]

    @classmethod
    def of(cls, graph: hlir.Graph, dims: Mapping[Any, DimChoice]) -> DimChoices:
        """The choices of a user's `dims`; DimError for an unknown dim or an interval outside the
        declared one.
        """
        if not isinstance(dims, Mapping):
            raise DimError(f'dims: takes a dict, as {{"s": (1, 64)}}; got a {type(dims).__name__}')
        declared = {dim.name: dim for dim in graph.dims}
        choices = cls({}, {})
        for key, choice in dims.items():
            name = key.name if isinstance(key, Symbol) else key
            if name not in declared:
                names = ", ".join(declared) or "none"
                fix = suggestion(name, declared)
                raise DimError(f"{name}: no such dim; the dims are {names}{fix}")
            if isinstance(choice, list):
                if not choice:
                    raise DimError(f"dims: {name}: [] has no interval; give one, or leave it out")
                choices.buckets[name] = [_interval(declared[name], bucket) for bucket in choice]
            else:
                choices.narrow[name] = _interval(declared[name], choice)
        return choices

    def on_ranks(self, parts: Mapping[str, int]) -> DimChoices:
        """The choices for what a rank has of dims that are cut into `parts`."""
        narrow = {name: _own(name, i, parts.get(name, 1)) for name, i in self.narrow.items()}
        buckets = {
            name: [_own(name, interval, parts.get(name, 1)) for interval in intervals]
            for name, intervals in self.buckets.items()
        }
        return DimChoices(narrow, buckets)

    def variants(self) -> Iterable[dict[str, Interval]]:
        """Every combination of buckets, then the general program."""
        if self.buckets:
            for combination in itertools.product(*self.buckets.values()):
                yield dict(zip(self.buckets, combination, strict=True))
        yield {}


def _interval(dim: Symbol, choice: Any) -> Interval:
    ends = choice if isinstance(choice, tuple | list) else (choice, choice)
    if len(ends) != 2 or not all(is_number(end, Integral) for end in ends):
        raise DimError(
            f"dims: {dim.name}: {choice!r} is not an interval (lo, hi); give an int, two of them, "
            "or a list of such intervals"
        )
    lo, hi = int(ends[0]), int(ends[1])
    if not (dim.lo or 0) <= lo <= hi <= (hi if dim.hi is None else dim.hi):
        raise DimError(
            f"dims: {dim.name}: {choice} is not within its {dim.lo}..{dim.hi}; give lo <= hi there"
        )
    return lo, hi


def _own(name: str, interval: Interval, parts: int) -> Interval:
    """The interval of a part of a dim, for the interval of the whole."""
    lo, hi = -(-interval[0] // parts), interval[1] // parts
    if lo > hi:
        what = interval[0] if interval[0] == interval[1] else f"{interval[0]}..{interval[1]}"
        raise DimError(
            f"dims: {name}: {what} has no multiple of the {parts} parts that {name} is cut into; "
            f"give a multiple of {parts}"
        )
    return lo, hi


def narrowed_to(graph: hlir.Graph, intervals: Mapping[str, Interval]) -> hlir.Graph:
    """The graph with dims of smaller intervals; a dim with one value left becomes that literal."""
    replaced: dict[Symbol, Expression] = {}
    for dim in graph.dims:
        if dim.name in intervals:
            lo, hi = intervals[dim.name]
            replaced[dim] = const(lo) if lo == hi else symbol(dim.name, lo, hi)
    return substitute_dims(graph, replaced) if replaced else graph
