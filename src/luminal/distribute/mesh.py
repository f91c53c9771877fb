"""Meshes: how many ranks there are, and along which axes they work together."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from luminal.base.errors import ShapeError
from luminal.base.near_names import suggestion
from luminal.base.number_kinds import is_count
from luminal.base.records import dataclass
from luminal.hlir.sharding import coordinate
from luminal.shape.expression import Symbol

EXPERT = "expert"
"""The mesh axis over which experts are cut: rows go to them along it."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks as an array: `Mesh((4, 2), ("data", "tensor"))` has 8, numbered in row-major order.

    `shape`: ints >= 1, how many ranks there are along each axis. `names`: the names of the axes,
    by which specs refer to them. Of one axis both may be given alone: `Mesh(4, "data")`.
    `devices`: the device of each rank, where all ranks are in this process, which then is given and
    gives whole arrays: `Mesh(devices=["opencl:0", "cpu"])`, along "data" where no axes are given.
    Raises ShapeError where they do not fit each other.
    """

    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        devices = _listed(self.devices, "list of devices", str)
        if devices and self.shape == () and self.names == ():
            object.__setattr__(self, "shape", (len(devices),))
            object.__setattr__(self, "names", ("data",))
        shape = _listed(self.shape, "shape", Integral)
        names = _listed(self.names, "tuple of names", str)
        for size in shape:
            if not is_count(size):
                raise ShapeError(f"Mesh: an axis has {size!r} ranks; give an int of at least 1")
        for name in names:
            if not is_axis_name(name):
                raise ShapeError(f"Mesh: the name {name!r} of an axis is no word; give 'data', ...")
            if names.count(name) > 1:
                raise ShapeError(f"Mesh: two axes are named {name!r}; give each a name of its own")
        if len(shape) != len(names) or not shape:
            raise ShapeError(
                f"Mesh: the shape {shape} has {len(shape)} axes, and there are {len(names)} names "
                f"{names}; give one name for each axis, and one axis at least"
            )
        object.__setattr__(self, "shape", tuple(map(int, shape)))
        object.__setattr__(self, "names", tuple(map(str, names)))
        object.__setattr__(self, "devices", tuple(map(str, devices)))
        if devices and len(devices) != self.size:
            raise ShapeError(
                f"Mesh: the shape {self.shape} has {self.size} ranks, and there are {len(devices)} "
                f"devices {self.devices}; give one for each rank, in row-major order"
            )

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """The dims that a rank's coordinates are, along axes of several ranks."""
        axes = zip(self.names, self.shape, strict=True)
        return tuple(coordinate(name, ranks) for name, ranks in axes if ranks > 1)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return math.prod(self.shape)

    def ranks(self, axis: str, what: str = "") -> int:
        """The number of ranks along an axis. Raises ShapeError for a name that the mesh lacks,
        which names `what` asks for it.
        """
        if not isinstance(axis, str) or axis not in self.names:
            asked = f"{what}: " if what else ""
            raise ShapeError(
                f"{asked}the mesh has the axes {', '.join(self.names)}, and no {axis!r}"
                f"{suggestion(axis, self.names) or '; give one of them'}"
            )
        return self.shape[self.names.index(axis)]

    def coordinates(self, rank: int) -> dict[str, int]:
        """The place of a rank along each axis; ShapeError for a number that no rank has."""
        if not _is_place(rank, self.size):
            raise ShapeError(
                f"the mesh has the ranks 0..{self.size - 1}, and no {rank!r}; give one of them"
            )
        out = {}
        for name, size in zip(reversed(self.names), reversed(self.shape), strict=True):
            rank, out[name] = divmod(rank, size)
        return {name: out[name] for name in self.names}

    def rank(self, coordinates: dict[str, int]) -> int:
        """The number of the rank at these coordinates; ShapeError where none is there."""
        places = coordinates if isinstance(coordinates, dict) else {}
        if places.keys() != {*self.names} or any(
            not _is_place(k, self.ranks(name)) for name, k in places.items()
        ):
            raise ShapeError(
                f"the mesh has no rank at {coordinates!r}; give the place along each of its axes, "
                f"as in {self.coordinates(0)}"
            )
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
"""For each dimension of a value the mesh axes that cut it, the outermost first; the last one may be
dealt out in blocks: "sequence/1".
"""


def dealt(entry: str) -> tuple[str, int | None]:
    """The mesh axis of a name in a spec, and the positions of the blocks that it deals out, if any:
    position i of "sequence/2" lies on rank i // 2 % ranks.
    """
    axis, slash, block = entry.partition("/")
    return axis, int(block) if slash else None


_FORM = (
    "give for each dimension None, the name of a mesh axis or a tuple of names: ('data', None), or "
    "x.shard('data', None)"
)


def spec_of(entries: Any, rank: int, what: str, mesh: Mesh | None = None) -> Spec:
    """A spec as users write it: None, a name, or a tuple of names for each dimension; a name alone
    is that of the first.

    Dimensions at the end that are not named stay whole. Raises ShapeError that names `what`, also
    for axes that `mesh` lacks; without one that is seen when a program is compiled for a mesh.
    """
    listed = (entries,) if isinstance(entries, str) else entries
    if not isinstance(listed, tuple | list):
        raise ShapeError(f"{what}: {entries!r} is no spec; {_FORM}")
    spec = tuple(_names_of(entry, entries, what) for entry in listed)
    if len(spec) > rank:
        raise ShapeError(
            f"{what}: the spec {entries!r} has {len(spec)} entries for {rank} dimensions; give one "
            "for each at most"
        )
    flat = [dealt(name)[0] for names in spec for name in names]
    for name in flat:
        if mesh is not None:
            mesh.ranks(name, what)
        if flat.count(name) > 1:
            raise ShapeError(
                f"{what}: the mesh axis {name!r} stands twice in {entries!r}; it can cut one "
                "dimension"
            )
    return spec + ((),) * (rank - len(spec))


def _names_of(entry: Any, entries: Any, what: str) -> tuple[str, ...]:
    """The mesh axes of one dimension's entry in a spec."""
    names = () if entry is None else (entry,) if isinstance(entry, str) else entry
    if not isinstance(names, tuple | list) or not all(map(_is_entry, names)):
        raise ShapeError(f"{what}: {entry!r} in the spec {entries!r}; {_FORM}")
    for name in names[:-1]:
        if dealt(name)[1] is not None:
            raise ShapeError(
                f"{what}: {name!r} in {entries!r} deals out what {names[-1]!r} cuts further; let "
                "it be the last of its dimension"
            )
    return tuple(map(str, names))


def _is_place(value: Any, ranks: int) -> bool:
    return isinstance(value, Integral) and 0 <= int(value) < ranks


def is_axis_name(name: object) -> bool:
    """Can it be the name of a mesh axis? A word, as names in Python are."""
    return isinstance(name, str) and name.isidentifier()


def _is_entry(name: object) -> bool:
    """Can it stand in a spec? An axis, alone or with the positions of a block: `sequence/1`."""
    if not isinstance(name, str):
        return False
    axis, slash, block = name.partition("/")
    is_block = block.isascii() and block.isdigit() and int(block) > 0
    return is_axis_name(axis) and (is_block if slash else True)


def _listed(value: Any, what: str, alone: type) -> tuple[Any, ...]:
    """What a user lists for the axes of a mesh, or names alone where there is one axis."""
    if isinstance(value, alone):
        return (value,)
    if not isinstance(value, tuple | list):
        raise ShapeError(
            f"Mesh: {value!r} is no {what}; give one entry for each axis, as in "
            "lm.Mesh((4, 2), ('data', 'tensor'))"
        )
    return tuple(value)
