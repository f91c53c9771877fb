"""This process as one rank of a program: `lm.distributed.init()` and what it sets up."""

from __future__ import annotations

import atexit
import json
import socket

from luminal.base import config, host, installation, trace_file
from luminal.base.errors import CollectiveError
from luminal.base.records import dataclass
from luminal.runtime.collectives import hooks
from luminal.runtime.collectives.engine import Deadlines, Engine
from luminal.runtime.collectives.launched import forget_launch, launched_ranks
from luminal.runtime.collectives.local import World, thread_engine


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs: `local_rank` of `local_size` on its node, with `threads` for its runs."""

    local_rank: int
    local_size: int
    threads: int


class _Process:
    """The engine of this process once there is one, and its place."""

    engine: Engine | None = None
    place: Place | None = None


def init(timeout: float | None = None) -> Engine:
    """Makes this process a rank of the program that `luminal launch`, mpiexec or srun has started.

    One rank where nobody launched more; that needs no MPI. Afterwards an exception that nobody
    catches ends all ranks, and a run has the cores of the node divided by the ranks on it, unless
    LUMINAL_THREADS says otherwise. A second call returns the same engine, with its timeout.

    timeout: seconds that a rank waits for others in one collective, ten times as long in the first;
        without, what LUMINAL_COLLECTIVE_TIMEOUT says, else 60.
    """
    if (engine := thread_engine.get() or _Process.engine) is not None:
        if timeout is not None:
            engine.set_timeout(timeout)
        return engine
    size = launched_ranks()
    if size == 1:
        engine = World(1, Deadlines.of(timeout)).engine(0)
        _Process.place = Place(0, 1, len(host.core_ids()))
    else:
        engine = _start_mpi(timeout, size)
        _Process.place = _placed(engine)
        config.provide(LUMINAL_THREADS=_Process.place.threads)
        trace_file.about["rank"] = f"rank {engine.rank} of {engine.size}"
    _Process.engine = engine
    return engine


def _start_mpi(timeout: float | None, size: int | None) -> Engine:
    host.require_posix("several ranks: MPI")
    try:
        from luminal.runtime.collectives.mpi.engine import world  # late: an extra
    except (ImportError, RuntimeError) as error:  # the second where there is no library
        raise CollectiveError(
            f"{size or 'several'} ranks were launched, but MPI cannot be used ({error}); "
            f"{installation.hint('mpi')}"
        ) from None
    engine = world(timeout, size)
    forget_launch()
    hooks.install(engine)
    atexit.register(engine.farewell)
    return engine


def _placed(engine: Engine) -> Place:
    """This rank's place, from what all say of theirs: host, and the cores that each may use."""
    here = json.dumps([socket.gethostname(), host.core_ids()])
    places = [json.loads(data) for data in engine.exchange(here.encode(), "places of ranks")]
    name, cores = places[engine.rank]
    neighbours = [rank for rank, place in enumerate(places) if place[0] == name]
    # A core that several ranks may use counts for each of them in part: mpiexec binds ranks to
    # cores, or does not.
    share = sum(1 / sum(core in places[rank][1] for rank in neighbours) for core in cores)
    return Place(neighbours.index(engine.rank), len(neighbours), max(1, int(share + 1e-6)))


def engine() -> Engine:
    """What carries values between this rank and the others; `init` is called where it was not."""
    return init()


def rank() -> int:
    """This rank's number, from 0; 0 where nobody launched more than one."""
    return init().rank


def size() -> int:
    """How many ranks the program has; 1 where nobody launched more."""
    return init().size


def local_rank() -> int:
    """This rank's number among those of its node, from 0: which of its devices to use."""
    return _place().local_rank


def local_size() -> int:
    """How many ranks run on this rank's node."""
    return _place().local_size


def _place() -> Place:
    engine = init()
    if thread_engine.get() is not None:
        return Place(engine.rank, engine.size, 1)
    assert _Process.place is not None  # since init
    return _Process.place
