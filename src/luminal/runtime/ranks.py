"""What a program that several ranks run asks of the engines that carry values between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from luminal.base.errors import CollectiveError
from luminal.base.records import dataclass
from luminal.hlir.attributes import CollectiveAttrs
from luminal.hlir.sharding import dims_at

if TYPE_CHECKING:
    from luminal.runtime.common_dims import CommonDims


class Engine(Protocol):
    """The ranks along one mesh axis, seen by one of them: `rank` of `size`;
    `axis` names it where it is one of several.

    `unlike`: their devices are of several kinds. `start` begins a collective of all of them on
    contiguous arrays and gives what `wait` takes.
    What is announced was started elsewhere, on the ranks' devices; who waits for it looks here,
    again and again, whether it may go on to wait. A failure ends all ranks.
    """

    rank: int
    size: int
    axis: str
    unlike: bool

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


def _nothing_cut() -> str:
    return "1 rank: compiled without mesh=, nothing is cut"


@dataclass(frozen=True, slots=True)
class OnRanks:
    """How several ranks run one program: the engines of their mesh axes, what explains how it is
    cut, into how many parts each dim is, which dims the ranks may have each its own, and whether
    it has collectives. `lies`: how what goes in and out lies on them.
    """

    engines: Engines = field(default_factory=dict)
    explain: Callable[[], str] = _nothing_cut
    parts: Mapping[str, int] = field(default_factory=dict)
    own_dims: frozenset[str] = frozenset()
    has_collectives: bool = False
    lies: Any = None

    def compared(self, dims: Sequence[str]) -> CommonDims | None:
        """What compares those of a program's dims that all ranks must have alike, before each run;
        None where there are none, and no collectives.
        """
        places = dims_at(dict.fromkeys(self.engines, 0))
        names = tuple(n for n in dims if n not in places and n not in self.own_dims)
        if not self.engines or not (names or self.has_collectives):
            return None
        from luminal.runtime.common_dims import CommonDims  # late: most programs have one rank

        return CommonDims(names, self.engines, self.parts)


ALONE = OnRanks()


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
