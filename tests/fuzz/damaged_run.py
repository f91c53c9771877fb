"""Reads damaged files in a process of its own, and says what came of each.

`python -m tests.fuzz.damaged_run FIRST LAST MEGABYTES [planted]` says "ready", then prints a JSON
line a file; the process that started it watches the clock and notices its death. By hand, for one
file: `python -m tests.fuzz.damaged_run 4711 4712 500`. With `planted` each reading is a fault.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import luminal as lm
from luminal.base.errors import LoadError, LuminalError
from luminal.models.checkpoint import read_tokenizer
from luminal.models.loading import load
from luminal.search.operands import MEMORY
from tests.fuzz.damaged_models import Damaged, damaged

MEGABYTE = 1 << 20
HANG_SECONDS = 60.0  # of the clock on the wall, on a machine that others use too
READY = "ready"  # a reader's first line: all is imported
MOST_TEXT = 700  # characters of a message, beside the path


@dataclass(frozen=True, slots=True)
class Limits:
    """What reading one file may take."""

    seconds: float = 2.0
    megabytes: int = 500
    hang_seconds: float = HANG_SECONDS


@dataclass(frozen=True, slots=True)
class Outcome:
    """`result`: "loaded", "refused", or what else came; `text` is the error's."""

    number: int
    damage: str
    result: str
    text: str
    seconds: float
    megabytes: float

    def fault(self, limits: Limits) -> str | None:
        """What is wrong with it."""
        if self.result not in ("loaded", "refused"):
            return f"{self.result}: {self.text}"
        if self.seconds > limits.seconds:
            return f"took {self.seconds:.2f} s"
        if self.megabytes > limits.megabytes:
            return f"took {self.megabytes:.0f} MB"
        if self.result == "refused" and ("\n" in self.text or len(self.text) > MOST_TEXT):
            return f"a message of {len(self.text)} characters: {self.text[:300]!r}"
        return None


# --- the process that reads -----------------------------------------------------------------------


def read(file: Damaged) -> None:
    """Loads a file and touches all that it gave. Raises LoadError."""
    if file.reader == "tokenizer":
        _use(read_tokenizer(file.path))
    elif file.reader == "arrays":
        for array in lm.load(file.path).values():
            array.tobytes()
    else:
        model = load(file.path, file.tokenizer)
        for parameter in model.model.parameters():
            parameter.memory.tobytes()
        _use(model.tokenizer)


def _use(tokenizer: Any) -> None:
    ids = tokenizer.encode("ab abc 12 z")
    assert all(0 <= number < tokenizer.vocab_size for number in ids), ids
    assert type(tokenizer.decode(ids)) is str
    assert all(type(number) is int for number in tokenizer.eos_ids)


def _burn(folder: Path) -> None:
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass


def _hoard(folder: Path) -> None:
    assert bytearray(100 * MEGABYTE)[-1] == 0


def _hang(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "fifo").read_bytes()


def _raise(folder: Path) -> None:
    raise KeyError("planted")


def _several_lines(folder: Path) -> None:
    raise LoadError("planted\nplanted")


def _die(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGBUS)


PLANTED = (_burn, _hoard, _raise, _several_lines, _hang, _die)
"""Faults that a check must find."""


def _outcome(number: int, planted: bool) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = damaged(number, folder)
        found = measured(
            number, file.damage, lambda: PLANTED[number](folder) if planted else read(file)
        )
        return replace(found, text=found.text.replace(name, ""))


def measured(
    number: int,
    damage: str,
    action: Callable[[], Any],
    refusal: type[LuminalError] = LoadError,
) -> Outcome:
    """What comes of an action, which may raise a refusal, in which time and memory."""
    _forget_peak()
    before = _peak_megabytes()
    start = time.process_time()
    result, text = "loaded", ""
    try:
        action()
    except refusal as error:
        result, text = "refused", str(error)
    except BaseException as error:
        result, text = type(error).__name__, str(error)[:1000]
    seconds = time.process_time() - start
    return Outcome(number, damage, result, text, seconds, _peak_megabytes() - before)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on


def _peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    first, last, megabytes = map(int, sys.argv[1:4])
    planted = "planted" in sys.argv
    damaged(0, Path(tempfile.mkdtemp(dir=os.environ.get("DAMAGED_FOLDER"))))  # imports are no cost
    answer(first, last, megabytes, lambda number: _outcome(number, planted))


def answer(first: int, last: int, megabytes: int, of: Callable[[int], Outcome]) -> None:
    """Prints what comes of each number."""
    # Twice the limit is an error here, before the machine is short of memory.
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    most = used + 2 * megabytes * MEGABYTE
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    print(READY, flush=True)
    for number in range(first, last):
        print(json.dumps(_fields(of(number))), flush=True)


def _fields(outcome: Outcome) -> list[Any]:
    return [getattr(outcome, name) for name in Outcome.__slots__]


# --- the process that watches ---------------------------------------------------------------------


def outcomes(
    first: int,
    last: int,
    limits: Limits,
    planted: bool = False,
    reader: str = "tests.fuzz.damaged_run",
) -> Iterator[Outcome]:
    """What came of the files of these numbers; one whose reader died or hung is an outcome too."""
    while first < last:
        for outcome in _until_death(first, last, limits, planted, reader):
            first = outcome.number + 1
            yield outcome


def _until_death(
    first: int, last: int, limits: Limits, planted: bool, reader: str
) -> Iterator[Outcome]:
    arguments = [str(first), str(last), str(limits.megabytes), *(["planted"] if planted else [])]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", reader, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": folder, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        try:
            number = first
            lines = _lines(process.stdout, limits.hang_seconds)
            assert next(lines, b"").decode() in (READY, "")  # or it is dead already
            for line in lines:
                yield Outcome(*json.loads(line))
                number += 1
            if number < last:
                try:  # its output ends a moment before it does
                    result, text = "died", f"status {process.wait(timeout=2)}"
                except subprocess.TimeoutExpired:
                    result, text = "hung", "no answer"
                yield Outcome(number, "", result, text, 0.0, 0.0)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _lines(stream: IO[bytes], seconds: float) -> Iterator[bytes]:
    """The lines, up to the stream's end or until none comes for so long, the first in any time."""
    rest, patience = b"", HANG_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while selector.select(patience):
            patience = seconds
            data = os.read(stream.fileno(), 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
            if not data:
                return


if __name__ == "__main__":
    main()
