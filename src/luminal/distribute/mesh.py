"""Meshes: how many ranks there are, and along which axes they work together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from luminal.base.errors import ShapeError
from luminal.base.records import dataclass
from luminal.hlir.sharding import coordinate
from luminal.shape.expression import Symbol


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks as an array: `Mesh((4, 2), ("data", "tensor"))` has 8, numbered in row-major order.

    `shape`: ints >= 1, how many ranks there are along each axis. `names`: the names of the axes,
    by which specs refer to them. Raises ShapeError where they do not fit each other.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        shape: Any = self.shape
        names: Any = self.names
        object.__setattr__(self, "shape", (shape,) if isinstance(shape, int) else tuple(shape))
        object.__setattr__(self, "names", (names,) if isinstance(names, str) else tuple(names))
        if len(self.shape) != len(self.names):
            raise ShapeError(
                f"Mesh: the shape {self.shape} has {len(self.shape)} axes, and there are "
                f"{len(self.names)} names {self.names}; give one name for each axis"
            )
        for name in self.names:
            if not isinstance(name, str) or not name.isidentifier():
                raise ShapeError(f"Mesh: the name {name!r} of an axis is no word; give 'data', ...")
            if self.names.count(name) > 1:
                raise ShapeError(f"Mesh: two axes are named {name!r}; give each a name of its own")
        for size in self.shape:
            if not isinstance(size, int) or size < 1:
                raise ShapeError(f"Mesh: an axis has {size!r} ranks; give an int of at least 1")

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """The dims that a rank's coordinates are, along axes of several ranks."""
        axes = zip(self.names, self.shape, strict=True)
        return tuple(coordinate(name, ranks) for name, ranks in axes if ranks > 1)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return math.prod(self.shape)

    def ranks(self, axis: str) -> int:
        """The number of ranks along an axis; ShapeError for a name that the mesh lacks."""
        if axis not in self.names:
            raise ShapeError(f"the mesh has the axes {', '.join(self.names)}, and no {axis!r}")
        return self.shape[self.names.index(axis)]

    def coordinates(self, rank: int) -> dict[str, int]:
        """The place of a rank along each axis."""
        out = {}
        for name, size in zip(reversed(self.names), reversed(self.shape), strict=True):
            rank, out[name] = divmod(rank, size)
        return {name: out[name] for name in self.names}

    def rank(self, coordinates: dict[str, int]) -> int:
        """The number of the rank at these coordinates."""
        rank = 0
        for name, size in zip(self.names, self.shape, strict=True):
            rank = rank * size + coordinates[name]
        return rank

    def group(self, axis: str, rank: int) -> list[int]:
        """The ranks that differ from `rank` at most along `axis`, in the order along it."""
        at = self.coordinates(rank)
        return [self.rank({**at, axis: k}) for k in range(self.ranks(axis))]

    def groups(self, axis: str) -> list[list[int]]:
        """All groups along an axis; each rank is in one of them."""
        seen = {tuple(self.group(axis, rank)): None for rank in range(self.size)}
        return [list(group) for group in seen]


Spec = tuple[tuple[str, ...], ...]
"""For each dimension of a value the mesh axes that cut it, the outermost first."""


def spec_of(entries: Sequence[str | Sequence[str] | None], rank: int, what: str) -> Spec:
    """A spec as users write it: None, a name, or a tuple of names for each dimension.

    Dimensions at the end that are not named stay whole. Raises ShapeError that names `what`.
    """
    if len(entries) > rank:
        raise ShapeError(
            f"{what}: the spec {tuple(entries)} has {len(entries)} entries for {rank} dimensions"
        )
    spec: list[tuple[str, ...]] = []
    for entry in entries:
        names = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
        if not all(isinstance(name, str) for name in names):
            raise ShapeError(
                f"{what}: {entry!r} in a spec; give None, the name of a mesh axis, or a tuple of "
                "names"
            )
        spec.append(names)
    flat = [name for names in spec for name in names]
    for name in flat:
        if flat.count(name) > 1:
            raise ShapeError(
                f"{what}: the mesh axis {name!r} stands twice in {tuple(entries)}; "
                "it can cut one dimension"
            )
    return tuple(spec) + ((),) * (rank - len(spec))
