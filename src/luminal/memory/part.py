"""What a Parameter or State that is cut over a mesh holds: the part of one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.errors import GraphError
from luminal.base.records import dataclass

if TYPE_CHECKING:
    from luminal.memory.state import Assignable

Array = np.ndarray[Any, Any]
any_cut = False
"""Was anything cut in this process? Only then programs of one rank ask whether they use it."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """`holder` has the rank's own part, which programs read and write; `cut` takes it out of a
    whole array, `join` is the whole of all ranks' parts, for which all of them must call it.
    `layout` and `words` say how the whole is cut, `start` where the part begins,
    `real` what of the holder's value is no pad; of ranks with the same part one `writes` it to
    files. `is_here`: all parts are in this process, so whoever asks for the value is given it.
    """

    holder: Assignable
    layout: Any
    cut: Callable[[Array], Array]
    join: Callable[[Array], Array]
    words: str
    start: tuple[int, ...]
    real: tuple[slice, ...]
    writes: bool
    is_here: bool = False

    def __post_init__(self) -> None:
        global any_cut
        any_cut = True

    def refuse(self, name: str) -> GraphError:
        """The error of asking for the value of what is cut."""
        return GraphError(
            f"{name} is cut {self.words}: this rank has a part of it. {name}.local() is that part, "
            f"{name}.whole() the value, for which all ranks must ask; programs that use it are "
            "compiled with lm.compile(cx, mesh=mesh)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A rank's part of an array of `shape`: `array` lies there from `start` on. Of ranks with the
    same one `writes` it to files.
    """

    array: Array
    shape: tuple[int, ...]
    start: tuple[int, ...]
    writes: bool


def value_or_piece(held: Assignable) -> Array | Piece:
    """The value of a Parameter or State, or this rank's part where it is cut over a mesh."""
    if (part := held.part) is None or part.is_here:
        return held.numpy()
    return Piece(held.local(), held.shape, part.start, part.writes)
