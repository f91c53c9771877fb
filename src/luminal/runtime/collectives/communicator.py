"""The ranks along one mesh axis as their devices' library knows them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from luminal.base.dtypes import DType
from luminal.base.errors import CollectiveError
from luminal.base.records import dataclass
from luminal.runtime.collectives.library import Library, name_of, shown
from luminal.runtime.collectives.tickets import REDUCTIONS, Kind, Monoid, Pairs
from luminal.runtime.ranks import Engine

BYTES = "uint8"
LOOKS = 0.02  # seconds between looks for ranks that have failed


@dataclass(frozen=True, slots=True)
class Moved:
    """What a collective moves: `count` elements from one address, to another."""

    kind: Kind
    source: int
    target: int
    count: int
    dtype: DType
    monoid: Monoid = "sum"
    pairs: Pairs = ()


class Communicator:
    """This rank's part of a group, on its device. `engine` is the same group on the host."""

    def __init__(self, library: Library, engine: Engine, handle: Any) -> None:
        self.library, self.engine = library, engine
        self.rank, self.size = engine.rank, engine.size
        self._handle = handle
        self._is_aborted = False

    def queue(
        self, moved: Moved, queue: int, clear: Callable[[int, int, int], None], title: str
    ) -> None:
        """Queues a collective. `clear(address, size, queue)` queues zeros."""
        if moved.count == 0:
            return
        if moved.kind in REDUCTIONS:
            self._reduce(moved, name_of(moved.dtype, title, self.library), queue)
            return
        size = moved.count * moved.dtype.size
        if moved.kind == "all_gather":
            self.library.all_gather(self._handle, moved.source, moved.target, size, BYTES, queue)
        elif moved.kind == "all_to_all":
            self._exchange(moved, size // self.size, queue)
        else:
            self._permute(moved, size, queue, clear)

    def _reduce(self, moved: Moved, dtype: str, queue: int) -> None:
        library, count = self.library, moved.count
        reduce = library.all_reduce
        if moved.kind == "reduce_scatter":
            reduce, count = library.reduce_scatter, count // self.size
        reduce(self._handle, moved.source, moved.target, count, dtype, moved.monoid, queue)

    def _exchange(self, moved: Moved, piece: int, queue: int) -> None:
        library, handle = self.library, self._handle
        with library.together():
            for peer in range(self.size):
                library.send(handle, moved.source + peer * piece, piece, BYTES, peer, queue)
                library.receive(handle, moved.target + peer * piece, piece, BYTES, peer, queue)

    def _permute(
        self, moved: Moved, size: int, queue: int, clear: Callable[[int, int, int], None]
    ) -> None:
        library, handle = self.library, self._handle
        senders = [sender for sender, receiver in moved.pairs if receiver == self.rank]
        receivers = [receiver for sender, receiver in moved.pairs if sender == self.rank]
        if not senders:
            clear(moved.target, size, queue)
        with library.together():
            for peer in receivers:
                library.send(handle, moved.source, size, BYTES, peer, queue)
            for peer in senders:
                library.receive(handle, moved.target, size, BYTES, peer, queue)

    def trouble(self) -> str:
        """What has gone wrong beside the calls: a rank that is gone, a network; nothing: ""."""
        return "" if self._is_aborted else self.library.trouble(self._handle)

    def abort(self) -> None:
        """Ends what is under way on the device, which else waits for ever."""
        if not self._is_aborted:
            self._is_aborted = True
            self.library.abort(self._handle)


def joined(library: Library, engine: Engine, card: str) -> Communicator:
    """A communicator of all ranks of a group, which call this together; `card` names this rank's
    device, wherever it is seen from.

    Raises InputError where two ranks are on one card and may not be, CollectiveError where the
    library is too old, or of another version on another rank, or a rank does not come.
    """
    library.check_version()
    over = f" over mesh axis {engine.axis!r}" if engine.axis else ""
    unique_id = library.unique_id() if engine.rank == 0 else b""
    here = json.dumps([unique_id.hex(), card, library.version()])
    told = [json.loads(text) for text in engine.exchange(here.encode(), f"{library.name} ids")]
    versions = [tuple(version) for _, _, version in told]
    if len(set(versions)) > 1:
        raise CollectiveError(
            f"ranks{over} have different versions of {library.name}: "
            f"{', '.join(map(shown, versions))}; install one"
        )
    library.check_cards([card for _, card, _ in told])
    handle = _waited_for(
        lambda: library.init(engine.size, engine.rank, bytes.fromhex(told[0][0])),
        engine,
        f"{library.name} communicator{over}",
    )
    return Communicator(library, engine, handle)


def _waited_for(start: Callable[[], Any], engine: Engine, title: str) -> Any:
    """What a call gives that waits for other ranks and knows no deadline."""
    done: list[Any] = []
    failed: list[BaseException] = []

    def call() -> None:
        try:
            done.append(start())
        except BaseException as error:
            failed.append(error)

    ticket, begun = engine.announce(title), time.monotonic()
    caller = threading.Thread(target=call, name=title, daemon=True)
    caller.start()
    while caller.is_alive():
        caller.join(LOOKS)
        engine.look(ticket, time.monotonic() - begun, first=True)
    if failed:
        raise failed[0]
    return done[0]
