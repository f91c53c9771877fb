"""A small training whose ranks die, join and leave, as told: `elastic_run.py SETTINGS FOLDER`.

SETTINGS is JSON: options of `fit`; `events`, by the number of a step so far: ranks that are killed
before it, as ["kill", 0, 1], a rank that raises, as ["raise", 0], or how many ranks there are to be
from now on, as ["ranks", 3]; `kill_in_snapshot`: in which one the last rank is killed. FOLDER holds
which events have been, and the file of wishes. The first rank prints the losses of all steps and
the digest of what was trained.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import luminal as lm
from luminal.runtime.collectives.membership import current
from luminal.training import Batches, checkpoint_parts
from tests.distributed.training_run import digest, examples, network, run, trained


class Eventful(Batches):
    """Batches before which things happen, each once."""

    def __init__(self, size: int, events: dict[str, list[list[Any]]], folder: Path) -> None:
        super().__init__(examples(), size, seed=5, drop_last=True, prefetch=0)
        self._events, self._folder = events, folder

    def part(self, place: int, parts: int) -> Iterator[Any]:
        """The batches; what is told for a step happens before its batch is handed out."""
        for batch in super().part(place, parts):
            step = self.epoch * len(self) + self.taken
            for k, event in enumerate(self._events.get(str(step), [])):
                self._happen(event, self._folder / f"event-{step}-{k}")
            yield batch

    def _happen(self, event: list[Any], done: Path) -> None:
        kind, *told = event
        engine = lm.distributed.engine()
        # All ranks see the same: nobody notes it before all have looked.
        has_been = any(engine.exchange(b"1" if done.exists() else b"", "has it happened"))
        engine.barrier()
        if has_been:
            return
        done.touch()
        engine.barrier()
        if kind == "ranks":
            if engine.rank == 0:
                (self._folder / "ranks").write_text(str(told[0]))
                _wait_for_word(told[0])
            engine.barrier()
        elif engine.rank in told:
            if kind == "raise":
                raise ZeroDivisionError("of a step")
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            time.sleep(0.1)  # several that are told so die together


def _wait_for_word(count: int) -> None:
    """Until the launcher has seen the wish, if it is another number: where events are dense, it
    would see the last of several only.
    """
    member, end = current(), time.monotonic() + 3
    assert member is not None
    while count != lm.distributed.size() and time.monotonic() < end:
        if member.is_change_wanted:
            return
        time.sleep(0.01)


def _killed_while_writing(at: int, done: Path) -> Callable[..., Any]:
    """Writing of a snapshot's files, during which the last rank is killed the `at`-th time."""
    write, times = checkpoint_parts.write, [0]

    def killed(folder: Path, stem: str, arrays: Any, engine: Any) -> Any:
        times[0] += 1
        if times[0] == at and not done.exists() and engine.rank == engine.size - 1:
            done.touch()
            (folder / f"{stem}-{engine.rank}-of-{engine.size}.safetensors").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
        return write(folder, stem, arrays, engine)

    return killed


def main(settings: dict[str, Any], folder: Path) -> None:
    """Trains, and tells how it went."""
    if (at := settings.pop("kill_in_snapshot", None)) is not None:
        checkpoint_parts.write = _killed_while_writing(at, folder / "killed")
    data = Eventful(settings.pop("batch", 16), settings.pop("events", {}), folder)
    model = network()
    mesh = lm.Mesh((lm.distributed.size(),), ("data",))
    record = run(model, mesh, data=data, **settings)
    whole = digest(trained(model))
    if lm.distributed.rank() == 0:
        print("losses", json.dumps(record.losses))
        print(f"digest {whole} resumed {record.resumed} ranks {lm.distributed.size()}", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
