"""`python -m bench fuzz`: drawn cases against PyTorch; exit status 1 where a value is wrong.

Case after case of a seed is compiled, checked against PyTorch in float64 and timed against eager
PyTorch, until the time is over or Ctrl-C; then the tables. With `--json FILE` each outcome is
appended as a line, and the next run with that file goes on behind them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.fuzz.case import Case, parsed
from bench.fuzz.draw import drawn
from bench.fuzz.kinds import report, summary, times
from bench.fuzz.measure import Outcome, run
from luminal.base import config

MEASURED = ("wrong", "refused", "seconds", "elements", "disturbed")  # of an Outcome's fields


def main(arguments: list[str]) -> int:
    """Runs the cases that the arguments ask for; 1 if one is wrong."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    with config.override(LUMINAL_THREADS=options.threads):
        if options.case:
            return _one(options.case, options.inductor > 0)
        outcomes = _read(options.json, options.seed)
        try:
            for outcome in _run(options, len(outcomes)):
                outcomes.append(outcome)
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
    print(report(outcomes))
    return int(any(each.wrong for each in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60, help="when to stop (default 60)")
    parser.add_argument("--cases", type=int, default=10**9, help="of the seed, at most")
    parser.add_argument("--case", help="only this one: SEED:NUMBER, or its text")
    parser.add_argument("--json", type=Path, help="lines of outcomes; goes on behind them")
    parser.add_argument("--untimed", action="store_true", help="values only")
    parser.add_argument("--inductor", type=float, default=0, help="share that inductor runs too")
    parser.add_argument("--threads", type=int, default=2, help="for both sides")
    return parser


def _one(text: str, inductor: bool) -> int:
    seed, colon, number = text.partition(":")
    is_drawn = colon and seed.isdecimal() and number.isdecimal()
    case = drawn(int(seed), int(number)) if is_drawn else parsed(text)
    outcome = run(case, inductor=inductor)
    print(case)
    if outcome.wrong or outcome.refused:
        print(f"WRONG: {outcome.wrong}" if outcome.wrong else f"PyTorch: {outcome.refused}")
    elif outcome.disturbed:
        print("not timed: other processes keep the machine busy")
    else:
        print(times(outcome))
    if "inductor" in outcome.seconds:
        print(f"inductor {outcome.seconds['inductor'] * 1e6:.1f} us")
    return int(bool(outcome.wrong))


def _run(options: argparse.Namespace, first: int) -> Iterator[Outcome]:
    """The outcomes of the seed's cases from `first` on, each written as it comes."""
    end, progress = time.monotonic() + options.seconds, Progress()
    for number in range(first, options.cases):
        if time.monotonic() > end:
            return
        case = drawn(options.seed, number)
        progress.begin(case)
        inductor = (number * 0.618034) % 1 < options.inductor
        outcome = run(case, timed=not options.untimed, inductor=inductor)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_record(outcome)) + "\n")
        progress.end(outcome)
        yield outcome


@dataclass(slots=True)
class Progress:
    """A line that is written over, on terminals; wrong values stay."""

    done: int = 0

    def begin(self, case: Case) -> None:
        """Says what runs: what was last said tells what a crash was of."""
        if sys.stderr.isatty():
            text = f"{self.done} done; {case.id} {case.family}"
            print(f"\r\x1b[K{text[:78]}", end="", file=sys.stderr, flush=True)

    def end(self, outcome: Outcome) -> None:
        """Counts, and says at once what is wrong."""
        self.done += 1
        if outcome.wrong:
            print(f"\rWRONG {outcome.case.id}: {outcome.case}: {outcome.wrong}", file=sys.stderr)


def _record(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    return {
        "id": case.id,
        "family": case.family,
        "layout": case.layout,
        "way": case.way,
        "case": str(case),
        **{name: getattr(outcome, name) for name in MEASURED},
    }


def _read(path: Path | None, seed: int) -> list[Outcome]:
    """What the file holds; raises ValueError if it is of another seed."""
    if path is None or not path.exists():
        return []
    outcomes = []
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        if not record["id"].startswith(f"{seed}:"):
            raise ValueError(f"--json {path}: holds cases of seed {record['id']}, not of {seed}")
        given = parsed(record["case"])
        kind = (record["id"], record["family"], record["layout"], record["way"])
        case = Case(given.inputs, given.expression, given.gradients, *kind)
        outcomes.append(Outcome(case, *(record[name] for name in MEASURED)))
    print(f"{path}: {summary(outcomes)}", file=sys.stderr)
    return outcomes
