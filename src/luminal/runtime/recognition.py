"""Calls that are as the last one was, which a backend recognizes quicker than Python could.

Recognizing is all: a call that is not recognized is checked from the start, with every error that
there is to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.runtime.arrays import Array

Recognized: TypeAlias = list[Array] | Literal[False]


class Familiar(NamedTuple):
    """What an array of a call was. `indexes`: the extent its elements all index, or 0."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    indexes: int = 0


@dataclass(frozen=True, slots=True)
class Recognizer:
    """`inputs` gives the arrays of a call's dict in order where they are all it has, each row-major
    and familiar, else False. `outputs` those of `out`, for a run that takes these inputs: which
    can be written, and share no memory with these or each other. `again` is `inputs`, and then the
    run, which writes arrays that are known to be right.
    """

    inputs: Callable[[Mapping[Any, Any]], Recognized]
    outputs: Callable[[Mapping[Any, Any], list[Array]], Recognized]
    again: Callable[[Mapping[Any, Any], Sequence[Array]], Recognized]


def _never(*given: Any) -> Literal[False]:
    return False


STRANGER = Recognizer(_never, _never, _never)
"""Recognizes no call."""


@runtime_checkable
class Recognizing(Protocol):
    """A bound program whose backend recognizes calls."""

    def can_check(self, dtype: DType) -> bool:
        """Can elements of this dtype be compared with the extent that they index?"""

    def recognizer(self, inputs: Sequence[Familiar], outputs: Sequence[Familiar]) -> Recognizer:
        """The Recognizer of calls with such arrays."""
