"""A vendor's library that moves values between devices, as one table of functions: a communicator
is all ranks of a group, and what it is asked to do is queued on a device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from luminal.base import config
from luminal.base.dtypes import DType
from luminal.base.errors import CollectiveError, InputError
from luminal.runtime.collectives.tickets import Monoid

SHARES_CARDS = (2, 30)
"""The version from which several ranks may be on one card."""
SWITCH = "NCCL_MULTI_RANK_GPU_ENABLE"
"""The environment variable, of all these libraries, that lets them."""
DTYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "bfloat16",
)  # fmt: skip
"""What can be reduced; all else is moved as bytes."""
OPERATIONS = ("sum", "prod", "max", "min")
"""By what."""


class Library(ABC):
    """NCCL, or what has its functions. Places are addresses, `queue` is the number of a device's
    queue, `count` counts elements. Each function raises CollectiveError with the library's words.

    Bindings differ in how they spell functions and tell of errors, which is all that a subclass
    says; `_dtypes` and `_operations` are the library's numbers for DTYPES and OPERATIONS.
    """

    name: str
    _dtypes: Mapping[str, Any]
    _operations: Mapping[str, Any]
    oldest: tuple[int, int] = (2, 18)

    @abstractmethod
    def _call(self, name: str, *arguments: Any) -> Any:
        """What the library's function gives that NCCL calls so, but for a prefix: "all_reduce"."""

    @abstractmethod
    def version(self) -> tuple[int, int, int]:
        """The version of the library itself."""

    @abstractmethod
    def unique_id(self) -> bytes:
        """What the ranks of a new communicator know one another by."""

    @abstractmethod
    def init(self, size: int, rank: int, unique_id: bytes) -> Any:
        """A communicator, once all its ranks have come, on the device that is current."""

    def all_reduce(
        self, comm: Any, source: int, target: int, count: int, dtype: str, by: Monoid, queue: int
    ) -> None:
        """`count` elements, reduced over all ranks."""
        kind, operation = self._dtypes[dtype], self._operations[by]
        self._call("all_reduce", source, target, count, kind, operation, comm, queue)

    def reduce_scatter(
        self, comm: Any, source: int, target: int, count: int, dtype: str, by: Monoid, queue: int
    ) -> None:
        """The `count` elements of this rank, of what is reduced over all ranks."""
        kind, operation = self._dtypes[dtype], self._operations[by]
        self._call("reduce_scatter", source, target, count, kind, operation, comm, queue)

    def all_gather(
        self, comm: Any, source: int, target: int, count: int, dtype: str, queue: int
    ) -> None:
        """The `count` elements of each rank, in their order."""
        self._call("all_gather", source, target, count, self._dtypes[dtype], comm, queue)

    def send(self, comm: Any, source: int, count: int, dtype: str, peer: int, queue: int) -> None:
        """Elements for another rank, or for this one."""
        self._call("send", source, count, self._dtypes[dtype], peer, comm, queue)

    def receive(
        self, comm: Any, target: int, count: int, dtype: str, peer: int, queue: int
    ) -> None:
        """Elements of another rank."""
        self._call("recv", target, count, self._dtypes[dtype], peer, comm, queue)

    @contextmanager
    def together(self) -> Iterator[None]:
        """A `with` whose calls are one: none waits for another."""
        self._call("group_start")
        try:
            yield
        finally:
            self._call("group_end")

    def abort(self, comm: Any) -> None:
        """Ends what a communicator does on its device, and the communicator."""
        self._call("comm_abort", comm)

    @abstractmethod
    def trouble(self, comm: Any) -> str:
        """What has gone wrong since a communicator was made; nothing: ""."""

    def check_version(self) -> None:
        """Raises CollectiveError for a library that is too old."""
        if self.version()[:2] < self.oldest:
            raise CollectiveError(
                f"{self.name} {shown(self.version())} is too old; programs of several ranks need "
                f"{shown(self.oldest)} or newer"
            )

    def check_cards(self, cards: list[str]) -> None:
        """Raises InputError where ranks, whose cards these are, share one that they may not."""
        for rank, card in enumerate(cards):
            first = cards.index(card)
            if first < rank:
                self._check_shared(first, rank, card)

    def _check_shared(self, first: int, rank: int, card: str) -> None:
        words = f"ranks {first} and {rank} are both on {card}"
        if self.version()[:2] < SHARES_CARDS:
            self._refuse(
                f"{words}, and {self.name} {shown(self.version())} takes one rank of each card "
                f"(from {shown(SHARES_CARDS)} on several)"
            )
        if config.variable(SWITCH) != "1":
            self._refuse(f"{words}; to test on one card, set {SWITCH}=1 for all ranks")

    def _refuse(self, words: str) -> NoReturn:
        raise InputError(
            f"{words}. Launch no more ranks of a node than it has cards, and let each have its "
            f"own: lm.distributed.{self.name.capitalize()}Backend(), or compile for the backend "
            "without a number"
        )


def shown(version: tuple[int, ...]) -> str:
    """A version as one reads it."""
    return ".".join(map(str, version))


def name_of(dtype: DType, title: str, library: Library) -> str:
    """What the library calls a dtype that it reduces. Raises CollectiveError for another."""
    name = "uint8" if dtype.name == "bool" else dtype.name
    if name not in DTYPES:
        raise CollectiveError(
            f"{title}: {library.name} reduces no {dtype.name}; cast to int32 or float32 before, "
            "or compile with collectives='tree'"
        )
    return name
