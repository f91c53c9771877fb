"""Many random programs, and what they find: `python -m tests.fuzz.campaign --programs 3000`.

`--kind torch` compares with PyTorch, `--kind dag` wide graphs with the reference. Each failure is
printed with its seed and, shrunk, as a script. Ends with the numbers of programs, elements and
masked ones; status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from luminal.base import config
from tests.fuzz.programs.check import Compared, How, check
from tests.fuzz.programs.form import Program, literal, to_text
from tests.fuzz.programs.grown import torch_program
from tests.fuzz.programs.shrink import failure_of, same_failure, shrink
from tests.fuzz.programs.wide import dag

MOST_SHRUNK = 4  # failures that say the same


@dataclass
class Tally:
    """What a campaign found: failures by what they say, each with the first seed's program."""

    programs: int = 0
    steps: int = 0
    compared: Compared = field(default_factory=Compared)
    failures: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        share = self.compared.masked / max(1, self.compared.elements)
        return (
            f"{self.programs} programs, {self.steps} steps, {self.compared.elements} elements, "
            f"{share:.3%} masked; {sum(self.failures.values())} failures, "
            f"{sum(self.refused.values())} steps refused"
        )


def programs(
    kind: str, seeds: range, largest: int, tally: Tally, finite: bool = False
) -> Iterator[tuple[int, Program]]:
    """The programs of the seeds; what Luminal refuses is printed and counted."""
    for seed in seeds:
        if kind == "dag":
            yield seed, dag(seed, largest=largest)
            continue
        program, grown = torch_program(seed, finite)
        for refused, why in grown.refused:
            tally.refused[why] += 1
            if tally.refused[why] == 1:
                print(f"seed {seed}: refused: {why}\n{to_text(refused)}\n", flush=True)
        yield seed, program


def how_of(kind: str, seed: int, numerics: str, seconds: float) -> How:
    oracle = "torch" if kind == "torch" else ("bits", "reference")[seed % 2]
    return How(oracle, numerics, seconds)


def campaign(
    kind: str,
    seeds: range,
    numerics: str = "standard",
    seconds: float = 0.0,
    largest: int = 1000,
    limit: float = float("inf"),
) -> Tally:
    """Checks the programs of the seeds, for at most `limit` seconds of CPU time."""
    torch.set_num_threads(1)  # values are small, and other processes need the other cores
    tally, start = Tally(), time.process_time()
    for seed, program in programs(kind, seeds, largest, tally, numerics == "relaxed"):
        tally.programs += 1
        tally.steps += program.steps()
        how = how_of(kind, seed, numerics, seconds)
        try:
            tally.compared += check(program, how)
        except Exception as error:
            _tell(tally, seed, program, how, error)
        if time.process_time() - start > limit:
            break
    return tally


def _tell(tally: Tally, seed: int, program: Program, how: How, error: Exception) -> None:
    def checked(candidate: Program) -> object:
        return check(candidate, how)

    what = failure_of(checked, program) or "a failure that did not come again"
    tally.failures[what] += 1
    print(f"seed {seed} ({program.steps()} steps): {type(error).__name__}: {error}", flush=True)
    if tally.failures[what] <= MOST_SHRUNK:
        small = shrink(program, same_failure(checked, program))
        print(f"\n{to_text(small)}\n\n{literal(small)}\n", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign", description=__doc__)
    parser.add_argument("--kind", choices=("torch", "dag"), default="torch")
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--numerics", default="standard")
    parser.add_argument("--seconds", type=float, default=0.0, help="of search, each program")
    parser.add_argument("--largest", type=int, default=1000, help="operations of a DAG")
    parser.add_argument("--limit", type=float, default=float("inf"), help="CPU seconds in all")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.programs)
    with config.override(LUMINAL_VERIFY=True, LUMINAL_POISON=True):
        tally = campaign(
            given.kind, seeds, given.numerics, given.seconds, given.largest, given.limit
        )
    for what, count in (tally.failures + tally.refused).most_common():
        print(f"{count} times: {what}")
    print(tally.summary())
    return 1 if tally.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
