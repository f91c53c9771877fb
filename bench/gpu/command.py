"""`python -m bench gpu --minutes 8 --out DIR`: a card's ceilings, tests, checkers and figures.

It needs a GPU, NumPy and what its backend needs; PyTorch is the peer where it is installed. Steps
come in the order of their worth, each has a limit of time and a process that may die, and what is
done is written after each. Called again with the same DIR on the same card and code, it goes on
where it ended.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from bench.gpu.programs import PROGRAMS
from luminal.backends.registry import BACKENDS
from luminal.base import config
from luminal.base.errors import InputError
from luminal.runtime.report_text import table_lines
from luminal.runtime.source_hash import source_hash

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "results.json"
ROW_LIMIT = 90.0  # seconds of a row, compiles of both sides included, before its process is ended
STEP_LIMIT = 240.0  # of the device's tests, and of a checker
SHARE = 0.4  # of the minutes that the tests may take, and of what is left the checkers
CHECKERS = ("memcheck", "racecheck")
Wanted = Callable[[str], Any]
"""Whether a step is to be done, by its name."""


@dataclass(slots=True)
class Worker:
    """The process that measures (`worker.py`), started when it is first asked."""

    command: Sequence[str] = (sys.executable, "-u", "-m", "bench.gpu.worker")
    process: subprocess.Popen[str] | None = field(default=None)

    def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Its answer; "failed" says why there is none, and the next request gets a new process."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=config.child_environment(),
                start_new_session=True,
            )
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self.lost("its process had ended")
        with DefaultSelector() as selector:
            selector.register(process.stdout, EVENT_READ)
            if not selector.select(limit):
                return self.lost(f"took more than {limit:.0f} s and was ended")
        line = process.stdout.readline()
        if not line:
            return self.lost(f"its process ended with status {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:  # after a fault a process has no device any more
            self.close()
        return answer

    def lost(self, reason: str) -> dict[str, Any]:
        """The answer of a process that gave none."""
        self.close()
        return {"failed": reason}

    def close(self) -> None:
        """Ends the process and all that it started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()
            self.process = None


@dataclass(slots=True)
class Session:
    """The steps of one call: `results` by step, `end` of the time that there is."""

    options: argparse.Namespace
    end: float
    results: dict[str, Any]
    worker: Worker = field(default_factory=Worker)

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - time.monotonic()

    def step(self, name: str, request: dict[str, Any], limit: float) -> None:
        """Asks the worker, unless that is done or there is no time left for it."""
        if self.has(name) or not self.has_time(name):
            return
        self.keep(name, self.worker.ask(request, min(limit, max(self.left, 10.0))))

    def has(self, name: str) -> bool:
        """Whether an earlier call measured it; what failed is tried again."""
        return name in self.results and "failed" not in self.results[name]

    def has_time(self, name: str) -> bool:
        """Whether a step can begin."""
        if self.left > 10.0:
            return True
        print(f"{name}: no time left; call again with the same --out", flush=True)
        return False

    def keep(self, name: str, answer: dict[str, Any]) -> None:
        """Writes what is known now, all of it or nothing."""
        self.results[name] = answer
        with _writing(self.options.out):
            place = self.options.out / RESULTS
            beside = place.with_suffix(".part")
            beside.write_text(json.dumps(self.results, indent=1) + "\n", "utf-8")
            beside.replace(place)
        print(f"{name}: {said(answer)}", flush=True)


def main(arguments: list[str]) -> int:
    """Measures what the time allows. The status is 1 where a test, a checker or a row failed."""
    chosen = options(*arguments)
    session = Session(chosen, time.monotonic() + 60 * chosen.minutes, {})
    try:
        with _writing(chosen.out):
            chosen.out.mkdir(parents=True, exist_ok=True)
        return _measured(session)
    except InputError as error:
        print(f"bench gpu: {error}", file=sys.stderr)
        return 2
    finally:
        session.worker.close()


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """What is done in the folder of the results. Raises InputError where that cannot be."""
    try:
        yield
    except OSError as error:
        raise InputError(f"--out {out}: {error}; takes a folder that can be written") from None


def options(*arguments: str) -> argparse.Namespace:
    """What a call is asked to do; the process ends with status 2 where that is malformed."""
    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument("--minutes", type=_amount, default=8.0, help="the time that it may take")
    parser.add_argument("--out", type=Path, required=True, help="the folder of results.json")
    parser.add_argument("--device", default="cuda", help="a backend's name")
    parser.add_argument(
        "--only",
        type=_steps,
        default=".",
        help="a pattern for the steps' names, as Python's re has it",
    )
    parser.add_argument("--again", action="store_true", help="measures what is measured already")
    parser.add_argument("--small", action="store_true", help="small sizes: that all runs, no more")
    parser.add_argument("--seconds", type=_amount, default=1.5, help="of each side of a row")
    return parser.parse_args(arguments)


def _amount(text: str) -> float:
    """A time. Raises ArgumentTypeError for what is none."""
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; takes a number from 0 on")
    return amount


def _steps(text: str) -> Wanted:
    """Says of a step whether the pattern has it. Raises ArgumentTypeError for a pattern that is
    malformed, or that no step matches.
    """
    try:
        wanted = re.compile(text).search
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no pattern: {error}; a character like '(' is written '\\('"
        ) from None
    names = ("ceilings", *PROGRAMS, "decode", "tests", *CHECKERS)
    if not any(map(wanted, names)):
        raise argparse.ArgumentTypeError(f"no step matches {text!r}; there are {', '.join(names)}")
    return wanted


def _measured(session: Session) -> int:
    options = session.options
    facts = session.worker.ask({"what": "facts", "device": options.device}, STEP_LIMIT)
    if "failed" in facts:
        print(f"bench gpu: {facts['failed']}", file=sys.stderr)
        return 2
    device = options.device = facts["device"]  # "auto" is one of them
    module = BACKENDS[device.partition(":")[0]].module
    facts |= {"sources": source_hash("luminal", module), "small": options.small}
    session.results = earlier(options, facts)
    session.keep("facts", facts | {"clocks before": _clocks()})
    small, seconds = options.small, options.seconds
    wanted: Wanted = options.only
    if wanted("ceilings"):
        request = {"what": "ceilings", "device": device, "seconds": seconds / 3}
        session.step("ceilings", request, ROW_LIMIT)
    request = {"device": device, "seconds": seconds, "small": small}
    names = [name for name in PROGRAMS if wanted(name)]
    for name in names:
        session.step(name, {"what": "row", "name": name, "beside": True, **request}, ROW_LIMIT)
    if wanted("decode"):
        session.step("decode", {"what": "decode", **request}, 2 * ROW_LIMIT)
    session.worker.close()  # tests and checkers want the device's memory
    if wanted("tests"):
        _tests(session)
    for checker in CHECKERS:
        if wanted(checker):
            _check(session, checker)
    session.keep("facts", session.results["facts"] | {"clocks after": _clocks()})
    print("\n" + "\n".join(table_lines(list(table(session.results)))))
    return int(any("failed" in answer for answer in session.results.values()))


def earlier(options: argparse.Namespace, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier call wrote, if card, versions and sources are those of now."""
    place = options.out / RESULTS
    if options.again or not place.is_file():
        return {}
    try:
        results = _read(place)
    except ValueError as error:
        reason = f"{RESULTS} is damaged ({error})"
    else:
        before = results["facts"]
        changed = [key for key, value in facts.items() if before.get(key) != value]
        if not changed:
            return results
        reason = f"{', '.join(changed)} changed"
    with _writing(options.out):
        aside = place.with_name(f"results-{int(place.stat().st_mtime)}.json")
        shutil.move(place, aside)
    print(f"{reason}: what was there is now {aside.name}", flush=True)
    return {}


def _read(place: Path) -> dict[str, dict[str, Any]]:
    """What a file of results has. Raises ValueError for one of which no table can be made."""
    results = json.loads(place.read_text("utf-8"))  # either fails with a kind of ValueError
    try:
        if results["facts"]["small"] in (True, False):
            [*map(said, results.values()), *table(results)]
            return results  # type: ignore[no-any-return]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        pass
    raise ValueError("it is JSON, but has no results")


# --- tests and checkers ---------------------------------------------------------------------------


def _tests(session: Session) -> None:
    """The device's own tests, as many as the time allows."""
    name, options = "tests", session.options
    if session.has(name) or not session.has_time(name):
        return
    folders = ["tests/backends/c_devices", "tests/backends/c_family/test_kernels.py"]
    folders.append("tests/distributed/test_on_a_card.py")
    own = f"tests/backends/{options.device.partition(':')[0]}"
    command = [sys.executable, "-m", "pytest", *folders, *([own] if Path(own).is_dir() else [])]
    command += ["-q", "-k", options.device.partition(":")[0], "-p", "no:cacheprovider"]
    if options.small:
        command.append("--collect-only")
    limit = min(STEP_LIMIT, max(20.0, SHARE * 60 * options.minutes), max(session.left, 10.0))
    session.keep(name, _ended(command, limit))


def _check(session: Session, checker: str) -> None:
    """compute-sanitizer over a small program of each kind; elsewhere there is no such tool."""
    if session.has(checker) or not session.has_time(checker):
        return
    if shutil.which("compute-sanitizer") is None:
        session.keep(checker, {"skipped": "compute-sanitizer is not installed"})
        return
    options = session.options
    inner = ["-m", "bench", "gpu", "--device", options.device, "--small", "--seconds", "0"]
    place = options.out / checker
    inner += ["--only", "f32|bf16", "--out", str(place)]
    command = ["compute-sanitizer", "--tool", checker, "--target-processes", "all"]
    command += ["--error-exitcode", "9", sys.executable, *inner]
    session.keep(checker, _ended(command, min(STEP_LIMIT, max(session.left, 10.0))))


def _ended(command: list[str], limit: float) -> dict[str, Any]:
    """How a command ended, with the end of what it printed; at the limit all of it is ended."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=config.child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return {"failed": f"took more than {limit:.0f} s and was ended", "tail": output[-2000:]}
    lines = output.strip().splitlines() or [""]
    answer = {"ended": lines[-1], "status": process.returncode}
    return (
        answer if not process.returncode else answer | {"failed": lines[-1], "tail": output[-4000:]}
    )


def _clocks() -> str | None:
    """The card's clocks, power and heat, where NVIDIA's tool says them."""
    if shutil.which("nvidia-smi") is None:
        return None
    fields = "clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


# --- what is shown --------------------------------------------------------------------------------


def said(answer: Mapping[str, Any]) -> str:
    """What a step gave, in a line."""
    for key in ("failed", "skipped", "ended"):
        if key in answer:
            return f"{key}: {answer[key]}"
    if "us" in answer:
        sides = (f"{side} {statistics.median(us):.1f} us" for side, us in answer["us"].items())
        return "; ".join(sides)
    if "ms" in answer:
        return f"{statistics.median(answer['ms']):.3g} ms, {answer['launches']} launches"
    numbers = {key: value for key, value in answer.items() if isinstance(value, float | str | int)}
    return ", ".join(f"{key} {value}" for key, value in numbers.items())


def table(results: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The figures: ours, the vendor's library's in our program (and how near we come to it),
    PyTorch's, and what was to be reached.
    """
    heads = "library", "of it", "eager", "torch.compile", "of copy", "of peer", "bound"
    yield "program", "us", "launches", *heads
    copy = results.get("ceilings", {}).get("copy")
    for name, answer in results.items():
        if "us" not in answer:
            continue
        us = {side: statistics.median(times) for side, times in answer["us"].items()}
        others = [value for side, value in us.items() if side not in ("ours", "library")]
        library = us.get("library")
        near = _figure(library), _figure(library and library / us["ours"])
        of_peer = min(others) / us["ours"] if others else None
        of_copy = answer["bytes"] / us["ours"] * 1e6 / copy if copy and answer["bytes"] else None
        reached = {"peer": of_peer, "copy": of_copy}
        bounds = {} if results["facts"]["small"] else answer["bound"]
        verdicts = (
            f"{kind} {least:g} {_verdict(reached[kind], least)}" for kind, least in bounds.items()
        )
        cells = (us["ours"], us.get("eager"), us.get("torch.compile"))
        mine, eager, compiled = (_figure(value) for value in cells)
        shares = _figure(of_copy), _figure(of_peer)
        mine_and_near = name, mine, str(answer["launches"]), *near
        yield *mine_and_near, eager, compiled, *shares, "; ".join(verdicts)
    if "ms" in results.get("decode", {}):
        answer = results["decode"]
        took = f"{1e3 * statistics.median(answer['ms']):.0f}"
        yield "decode, Llama 1B", took, str(answer["launches"]), *[""] * 6, "1500 us"


def _verdict(value: float | None, least: float) -> str:
    if value is None:
        return "open"
    return "met" if value >= least else "missed"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
