"""What a program takes and gives, for those who run it without its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Protocol, TypeAlias, runtime_checkable

from luminal.base.records import dataclass
from luminal.hlir.index_inputs import IndexInput
from luminal.runtime.binding import InputSpec, Interval
from luminal.shape.expression import Expression, Symbol

Intervals: TypeAlias = Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Interface:
    """What a run takes and gives. `dims` have their least and greatest values, `requirements` the
    words of who breaks them; `checks` say which inputs (by number) are indices, and `weights` the
    file of weights, as seen from the library's folder.
    """

    title: str
    dims: Mapping[Symbol, Interval]
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    requirements: Mapping[Expression, str]
    checks: tuple[tuple[int, IndexInput], ...]
    weights: str | None = None


@runtime_checkable
class Exporting(Protocol):
    """A runner whose program can be written as a library."""

    def export(
        self,
        file: BinaryIO,
        interface: Interface,
        variants: Sequence[tuple[Intervals, Any]],
        weights: BinaryIO | None,
    ) -> None:
        """Writes the programs of one graph's variants, this runner's among them, each with the dims
        that it takes; the weights into a file of their own if there is one. Raises CompileError
        for what cannot be in a library.
        """
