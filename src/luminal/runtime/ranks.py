"""What a program that several ranks run asks of the engines that carry values between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from luminal.base.errors import CollectiveError
from luminal.hlir.attributes import CollectiveAttrs


class Engine(Protocol):
    """The ranks along one mesh axis, seen by one of them: `rank` of `size`;
    `axis` names it where it is one of several.

    `start` begins a collective of all of them on contiguous arrays and gives what `wait` takes.
    What is announced was started elsewhere, on the ranks' devices; who waits for it looks here,
    again and again, whether it may go on to wait. A failure ends all ranks.
    """

    rank: int
    size: int
    axis: str

    def start(
        self,
        kind: Any,
        source: Any,
        target: Any,
        /,
        *,
        label: Any,
        monoid: Any = ...,
        pairs: Any = ...,
        root: int = ...,
    ) -> Any: ...
    def wait(self, ticket: Any, /, *, first: bool = False) -> None: ...
    def check_same(self, text: str, label: str, /) -> None: ...
    def exchange(self, data: bytes, label: str, /) -> list[bytes]: ...
    def announce(self, title: str, /) -> Any: ...
    def look(self, ticket: Any, waited: float, /, *, first: bool = False) -> None: ...
    def fail(self, error: CollectiveError, /) -> CollectiveError: ...


Engines: TypeAlias = Mapping[str, Engine]
"""By mesh axis."""


def request(attrs: CollectiveAttrs, label: str) -> dict[str, Any]:
    """What `Engine.start` takes beside the kind and the arrays, for a collective of a graph.

    Only sums and maxima are more than bytes to an engine.
    """
    asked: dict[str, Any] = {"label": label or attrs.kind, "pairs": attrs.pairs}
    return asked | {"monoid": attrs.reduction.lower()} if attrs.reduction else asked


@runtime_checkable
class Ranked(Protocol):
    """A runner whose program may have collectives."""

    def join(self, engines: Engines) -> None:
        """Takes the engines that runs use. Raises InputError where they do not fit the program."""

    def stand_alone(self) -> None:
        """Lets runs copy operands where ranks would do something together: to be timed."""
