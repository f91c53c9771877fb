"""Programs that are written rank by rank: `lm.spmd`, and what ranks do together in them.

Where a graph on a mesh says what is computed in all, and the compiler finds what crosses the mesh,
here each rank's own part is written, and so is every collective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import index
from typing import Any

from luminal.base.dtypes import int64
from luminal.base.errors import GraphError, InputError
from luminal.distribute.mesh import Mesh
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import is_tensor
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import CollectiveAttrs
from luminal.hlir.sharding import coordinate
from luminal.shape.expression import const

_mesh: ContextVar[Mesh | None] = ContextVar("luminal_spmd", default=None)
_REDUCTIONS = {"sum": "Sum", "max": "Max"}


@contextmanager
def spmd(mesh: Mesh) -> Iterator[Mesh]:
    """Makes graphs that are recorded inside of the block programs of one rank of a mesh, in which
    collectives may stand; `lm.compile` then compiles them for that mesh as they are.
    """
    if not isinstance(mesh, Mesh):
        raise InputError(f"spmd: got a {type(mesh).__name__}; give lm.Mesh((4,), ('data',))")
    token = _mesh.set(mesh)
    try:
        yield mesh
    finally:
        _mesh.reset(token)


def all_reduce(x: Tensor, axis: str, op: str = "sum") -> Tensor:
    """The sum ("max": the maximum) of the ranks' tensors along a mesh axis, on each of them."""
    return _together(x, "all_reduce", axis, _reduction("all_reduce", op))


def reduce_scatter(x: Tensor, axis: str, op: str = "sum") -> Tensor:
    """A rank's part, along the first dimension, of what `all_reduce` gives."""
    return _together(x, "reduce_scatter", axis, _reduction("reduce_scatter", op))


def all_gather(x: Tensor, axis: str) -> Tensor:
    """The ranks' tensors one after the other along the first dimension, on each of them."""
    return _together(x, "all_gather", axis)


def all_to_all(x: Tensor, axis: str) -> Tensor:
    """Rank k's part for this rank as part k, of equal parts along the first dimension."""
    return _together(x, "all_to_all", axis)


def permute_ranks(x: Tensor, axis: str, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """What the rank sends that `pairs` of (source, target) name for this one; zeros if none does.

    Raises InputError where a rank sends or receives twice, or is not on the axis.
    """
    mesh = _current(f"permute_ranks over {axis!r}")
    ranks = mesh.ranks(axis)
    try:
        listed = tuple((index(source), index(target)) for source, target in pairs)
    except (TypeError, ValueError):
        raise InputError(
            f"permute_ranks: pairs is {pairs!r}; give (source, target) of ranks, as [(0, 1)]"
        ) from None
    for side in (0, 1):
        ends = [pair[side] for pair in listed]
        if len(set(ends)) < len(ends) or not all(0 <= end < ranks for end in ends):
            raise InputError(
                f"permute_ranks: the pairs {listed} of the {ranks} ranks along {axis!r}; each "
                f"{('sends', 'receives')[side]} at most once"
            )
    return _together(x, "permute", axis, pairs=listed)


def rank_along(graph: object, axis: str) -> Tensor:
    """This rank's place along a mesh axis, from 0, as a 0-d int64 Tensor of a graph."""
    mesh = _current(f"rank_along {axis!r}")
    recorder = graph.graph if is_tensor(graph) else graph
    if not isinstance(recorder, Recorder):
        got = type(graph).__name__
        raise InputError(f"rank_along: got a {got}; give a Graph or a Tensor of it")
    _belongs(recorder, mesh)
    ranks = mesh.ranks(axis)
    place = coordinate(axis, ranks) if ranks > 1 else const(0)
    return recorder.wrap(recorder.builder.iota(place, (), int64))


def _reduction(kind: str, op: str) -> str:
    if not isinstance(op, str) or op not in _REDUCTIONS:
        raise InputError(f"{kind}: op={op!r}; it is 'sum' or 'max'")
    return _REDUCTIONS[op]


def _together(
    x: Tensor, kind: str, axis: str, reduction: str = "", pairs: tuple[tuple[int, int], ...] = ()
) -> Tensor:
    mesh = _current(f"{kind} over {axis!r}")
    if not is_tensor(x):
        raise InputError(f"{kind}: takes a Tensor, got a {type(x).__name__}")
    _belongs(x.graph, mesh)
    if mesh.ranks(axis) == 1:
        return x * 0 if kind == "permute" and not pairs else x
    attrs = CollectiveAttrs(kind, axis, mesh.ranks(axis), reduction, pairs, label=f"{kind} {axis}")
    return x.graph.wrap(x.graph.builder.make("Collective", [x.value], attrs).value)


def _belongs(graph: Any, mesh: Mesh) -> None:
    """Makes a graph the program of one rank of the mesh."""
    graph.root.mesh, graph.root.is_by_rank = mesh, True


def _current(what: str) -> Mesh:
    mesh = _mesh.get()
    if mesh is None:
        raise GraphError(
            f"{what}: it stands in a program that is written rank by rank; record it inside of "
            "`with lm.spmd(mesh):`, or mark a tensor with x.shard(...) and compile with mesh="
        )
    return mesh
