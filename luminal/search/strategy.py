"""The strategy: which candidates to build and time next, and which one wins.

First the schedules of the program's kernels, most expensive kernels first: one run of the program
prices one schedule of every kernel, each in its place. Then changes of the structure (spellings,
residences, merges), one at a time from the best program so far, the most promising by the cost
model first; what they gain is kept and tuned. At the end the best program meets the fast one in
interleaved pairs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from luminal.errors import CompileError
from luminal.search.cost_model import MOST_FLOPS, MOST_LINES, Cost, cost
from luminal.search.genome import Genome
from luminal.search.measure import WIN, Measurements
from luminal.search.options import CompilationMode, SearchOptions
from luminal.search.process import Lost, Refused
from luminal.search.runner import Pairs
from luminal.search.space import Candidate, Move

MOVES_AT_ONCE = 8
TIME_ROUNDS = 7
LEAST_PAIRS, MOST_PAIRS = 7, 41
PAIRS_SECONDS = 0.15  # for one comparison of two programs
SMALL_SHARE = 0.01  # of a run's time: kernels below it are not tuned
STALE_DRAWS = 40  # random pairs of moves without a gain after which a search has converged
SLOW = 1.5  # times as long: needs no second look
GLANCE = 3  # pairs that show what is slow
PREDICTED_SLOW = 2.0  # times the best program's predicted cost: not built


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate, its number in the runner, and its time."""

    candidate: Candidate
    number: int
    seconds: float


class Strategy:
    """One search. `run` gives the best candidate; it can be interrupted at any point."""

    def __init__(
        self, measurements: Measurements, mode: CompilationMode, options: SearchOptions
    ) -> None:
        self.measurements = measurements
        self.space = measurements.space
        self.runner = measurements.runner
        self.log = measurements.log
        self.options = options
        self.deadline = None if mode.seconds is None else self.log.start + mode.seconds
        self.rng = random.Random(options.seed)
        self.seen: set[str] = set()
        self.tuned: set[str] = set()  # kernels whose schedules were all timed
        self.fast = self.first()
        self.best = self.fast
        self.most_flops = MOST_FLOPS * max(self.cost(self.fast.candidate).flops, 1.0)
        measurements.is_over = self.is_over
        measurements.slow = SLOW * self.fast.seconds

    # --- the course of a search

    def first(self) -> Timed:
        """The fast program, timed. Raises Lost or Refused where even that cannot be run."""
        candidate = self.space.decode(Genome())
        self.measurements.build([candidate])
        reason = self.measurements.broken(candidate)
        if reason is not None:
            raise Refused(reason)
        number = self.runner.add(candidate.program)
        seconds = self.runner.seconds(number, TIME_ROUNDS)
        self.seen.add(candidate.text)
        self.log.best(seconds)
        return Timed(candidate, number, seconds)

    def run(self) -> None:
        """Searches until nothing is left to try or a limit is reached; `best` is always valid."""
        if self.is_over():
            return
        self.tune()
        while not self.is_over() and self.climb():
            self.tune()
        self.wander()

    def is_over(self) -> bool:
        """Whether a limit is reached: time, candidates, or a program fast enough."""
        late = self.deadline is not None and time.monotonic() >= self.deadline
        many = self.log.candidates >= self.options.max_candidates
        return late or many or self.best.seconds * 1e6 < self.options.stop_below_us

    # --- schedules

    def tune(self) -> None:
        """Times the schedules of the best program's kernels and takes the fastest of each."""
        candidate = self.best.candidate
        try:
            seconds = self.measurements.profile(self.best.number, candidate.program)
        except (Lost, Refused) as error:
            self.log.reject(str(error), "profile")
            return
        total = sum(seconds.values())
        now = {
            candidate.stages.origins[kernel].name: (kernel, taken)
            for kernel, taken in seconds.items()
            if taken > SMALL_SHARE * total
        }
        spaces = {
            key: self.space.knobs(candidate, kernel)
            for key, (kernel, _) in now.items()
            if key not in self.tuned
        }
        ranked = self.measurements.ranked(candidate, spaces)
        if not self.is_over():
            self.tuned |= spaces.keys()
        chosen = self.measurements.confirmed(candidate, ranked)
        if not chosen or self.challenge([(candidate.genome.with_tuned(chosen), "schedules")]):
            return
        for key in sorted(chosen, key=lambda key: (-now[key][1], key)):
            genome = self.best.candidate.genome
            self.challenge([(genome.with_tuned({key: chosen[key]}), f"schedule {chosen[key]}")])

    # --- structure

    def climb(self) -> bool:
        """Tries every single move once, each from the best program by then; True for a gain."""
        base = self.best
        moves = self.ordered(self.space.moves(base.candidate))
        for start in range(0, len(moves), MOVES_AT_ONCE):
            if self.is_over():
                break
            batch = moves[start : start + MOVES_AT_ONCE]
            genome = self.best.candidate.genome
            self.challenge([(move.of(genome), move.note) for move in batch])
        return self.best is not base

    def wander(self) -> None:
        """Random pairs of moves, until many have gained nothing."""
        stale = 0
        while stale < STALE_DRAWS and not self.is_over():
            pairs = []
            moves = self.space.moves(self.best.candidate)
            if len(moves) < 2:
                return
            for _ in range(MOVES_AT_ONCE):
                one, other = self.rng.sample(moves, 2)
                genome = other.of(one.of(self.best.candidate.genome))
                pairs.append((genome, f"{one.note} and {other.note}"))
            if self.challenge(pairs):
                self.tune()
                stale = 0
            else:
                stale += len(pairs)

    def ordered(self, moves: list[Move]) -> list[Move]:
        """Moves that make new programs, the cheapest program by the cost model first."""
        known: list[tuple[float, int, Move]] = []
        limit = PREDICTED_SLOW * self.cost(self.best.candidate).seconds
        for number, move in enumerate(moves):
            if self.is_over():
                break
            candidate = self.decode(move.of(self.best.candidate.genome), move.note)
            if candidate is None:
                continue
            seconds = self.cost(candidate).seconds
            if seconds > limit:
                self.log.reject("predicted to be slow", move.note)
            else:
                known.append((seconds, number, move))
        return [move for _, _, move in sorted(known, key=lambda item: item[:2])]

    def cost(self, candidate: Candidate) -> Cost:
        return cost(candidate.program, self.measurements.dims, self.space.target)

    def decode(self, genome: Genome, note: str) -> Candidate | None:
        """The candidate of a genome; None for one seen before, too large or not to be compiled."""
        try:
            candidate = self.space.decode(genome)
        except CompileError as error:
            self.log.reject("does not compile", f"{note}: {error}")
            return None
        if candidate.text in self.seen:
            return None
        if self.cost(candidate).flops > self.most_flops:
            self.log.reject("more than 4 times the work", note)
            return None
        if any(origin.text.count("\n") > MOST_LINES for origin in candidate.stages.origins):
            self.log.reject("a kernel is too long", note)
            return None
        return candidate

    def challenge(self, genomes: Sequence[tuple[Genome, str]]) -> bool:
        """Builds and times some genomes' programs; True if one of them is the new best."""
        candidates = [(self.decode(genome, note), note) for genome, note in genomes]
        fresh = [(c, note) for c, note in candidates if c is not None]
        self.measurements.build([candidate for candidate, _ in fresh])
        before = self.best
        for candidate, note in fresh:
            if self.is_over() and self.best is not before:
                break
            self.seen.add(candidate.text)
            self.measure(candidate, note)
        return self.best is not before

    def measure(self, candidate: Candidate, note: str) -> None:
        """Times a candidate against the best; it becomes the best if it wins."""
        broken = self.measurements.broken(candidate)
        if broken is not None:
            self.log.reject("does not compile", f"{note}: {broken}")
            return
        number = self.runner.add(candidate.program)
        self.log.tried()
        try:
            glance = self.runner.pairs(number, self.best.number, GLANCE)
            if min(glance.first) > SLOW * max(glance.second):
                self.log.reject("slow", note)
                self.runner.drop(number)
                return
            for reason in ("not faster than the best", "not faster when timed again"):
                pairs = self.pairs(number, self.best)
                if not pairs.wins(WIN):
                    self.log.reject(reason, note)
                    self.runner.drop(number)
                    return
        except (Lost, Refused) as error:
            self.log.reject(str(error), note)
            return
        if self.best is not self.fast:
            self.runner.drop(self.best.number)
        self.best = Timed(candidate, number, statistics.median(pairs.first))
        self.log.best(self.best.seconds)

    def pairs(self, number: int, rival: Timed) -> Pairs:
        """Times of a program and its rival in turns, the more the shorter they are."""
        rounds = int(PAIRS_SECONDS / (2 * max(rival.seconds, 1e-9)))
        return self.runner.pairs(number, rival.number, max(LEAST_PAIRS, min(MOST_PAIRS, rounds)))

    # --- the end

    def duel(self) -> tuple[bool, float, float]:
        """Whether the best program beats the fast one for certain; seconds of both."""
        pairs = self.pairs(self.best.number, self.fast)
        first, second = map(statistics.median, pairs)
        return pairs.wins(WIN), first, second
