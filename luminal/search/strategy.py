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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from luminal import compiler
from luminal.errors import CompileError
from luminal.kernel.knobs import Knobs
from luminal.program.launch_list import Program, walk
from luminal.search.cost_model import MOST_FLOPS, MOST_LINES, cost
from luminal.search.database import Database
from luminal.search.genome import Genome
from luminal.search.log import Log
from luminal.search.options import CompilationMode, SearchOptions
from luminal.search.process import Builders, Lost, Refused
from luminal.search.runner import Runner, Timing
from luminal.search.space import Candidate, Move, Space

ROUNDS_AT_ONCE = 6  # schedules of each kernel that are built before any is timed
MOVES_AT_ONCE = 8
TIME_ROUNDS = 7
WIN = 0.02  # a challenger must be faster by this share
PAIRS = 7
RIVALS = 3  # schedules of a kernel that are timed again before one is taken
CONFIRM_ROUNDS = 3
SMALL_SHARE = 0.01  # of a run's time: kernels below it are not tuned
STALE_DRAWS = 40  # random pairs of moves without a gain after which a search has converged
PREDICTED_SLOW = 2.0  # times the best program's predicted cost: not built


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate, its number in the runner, and its time."""

    candidate: Candidate
    number: int
    timing: Timing


class Strategy:
    """One search. `run` gives the best candidate; it can be interrupted at any point."""

    def __init__(
        self,
        space: Space,
        builders: Builders,
        runner: Runner,
        database: Database,
        log: Log,
        mode: CompilationMode,
        options: SearchOptions,
        dims: dict[str, int],
        context: str,
    ) -> None:
        self.space = space
        self.builders = builders
        self.runner = runner
        self.database = database
        self.log = log
        self.options = options
        self.dims = dims
        self.context = context  # names machine, threads and dims: part of every price's key
        self.deadline = None if mode.seconds is None else log.start + mode.seconds
        self.rng = random.Random(options.seed)
        self.prices = database.prices()
        self.built: set[str] = set()
        self.failed: dict[str, str] = {}  # kernels without code, and why
        self.seen: set[str] = set()
        self.knobs: dict[str, Knobs] = {}  # the best schedule found of each kernel
        self.tuned: set[str] = set()  # kernels whose schedules were all timed
        self.fast = self.first()
        self.best = self.fast

    # --- the course of a search

    def first(self) -> Timed:
        """The fast program, timed. Raises Lost or Refused where even that cannot be run."""
        candidate = self.space.decode(Genome())
        self.build([candidate])
        for origin in candidate.stages.origins:
            if origin.text in self.failed:
                raise Refused(self.failed[origin.text])
        number = self.runner.add(candidate.program)
        (timing,) = self.runner.time((number,), TIME_ROUNDS)
        self.seen.add(candidate.text)
        self.log.best(timing.seconds)
        return Timed(candidate, number, timing)

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
        return late or many or self.best.timing.seconds * 1e6 < self.options.stop_below_us

    # --- schedules

    def tune(self) -> None:
        """Times the schedules of the best program's kernels and takes the fastest of each."""
        best = self.best
        sites = self.sites(best.candidate.program)
        try:
            seconds = self.per_kernel(self.runner.profile(best.number), sites)
        except (Lost, Refused) as error:
            self.log.reject(str(error), "profile")
            return
        total = sum(seconds)
        spaces: dict[str, tuple[Knobs, ...]] = {}
        now: dict[str, float] = {}
        for kernel, (key, _, _) in enumerate(best.candidate.stages.origins):
            if kernel in sites and key not in self.tuned and seconds[kernel] > SMALL_SHARE * total:
                spaces[key] = self.space.knobs(best.candidate, kernel)
                now[key] = seconds[kernel]
        ranked = self.price(best.candidate, spaces)
        chosen = self.confirm(best.candidate, ranked)
        genome = best.candidate.genome
        if not chosen or self.challenge([(genome.with_tuned(chosen), "schedules")]):
            return
        for key in sorted(chosen, key=lambda key: (-now[key], key)):
            genome = self.best.candidate.genome
            self.challenge([(genome.with_tuned({key: chosen[key]}), f"schedule {chosen[key]}")])

    def price(
        self, candidate: Candidate, spaces: dict[str, tuple[Knobs, ...]]
    ) -> dict[str, list[Knobs]]:
        """The schedules of each kernel by default key, fastest first, as far as time allows."""
        prices: dict[str, list[tuple[float, int]]] = {key: [] for key in spaces}
        longest = max((len(space) for space in spaces.values()), default=0)
        for start in range(0, longest, ROUNDS_AT_ONCE):
            if self.is_over():
                break
            numbers = range(start, min(start + ROUNDS_AT_ONCE, longest))
            rounds = [{key: s[k] for key, s in spaces.items() if k < len(s)} for k in numbers]
            for number, found in self.price_rounds(candidate, rounds):
                for key, seconds in found.items():
                    prices[key].append((seconds, start + number))
        else:
            self.tuned |= spaces.keys()
        return {key: [spaces[key][k] for _, k in sorted(found)] for key, found in prices.items()}

    def confirm(self, candidate: Candidate, ranked: dict[str, list[Knobs]]) -> dict[str, Knobs]:
        """The few fastest schedules and the present one again, in turns: what wins for certain."""
        now = candidate.genome.knobs
        rivals: dict[str, list[Knobs]] = {}
        for key, schedules in ranked.items():
            present = now.get(key, ())
            first = [knobs for knobs in schedules[:RIVALS] if knobs != present]
            rivals[key] = [present, *first]
        samples: dict[str, list[list[float]]] = {key: [[] for _ in r] for key, r in rivals.items()}
        most = max(map(len, rivals.values()), default=0)
        if most < 2:
            return {}
        rounds = [{key: r[k % len(r)] for key, r in rivals.items()} for k in range(most)]
        for _ in range(CONFIRM_ROUNDS):
            for number, found in self.price_rounds(candidate, rounds, fresh=True):
                for key, seconds in found.items():
                    samples[key][number % len(rivals[key])].append(seconds)
        chosen = {}
        for key, schedules in rivals.items():
            times = [statistics.median(s) if s else float("inf") for s in samples[key]]
            best = min(range(len(times)), key=times.__getitem__)
            if times[best] < times[0] * (1 - WIN):
                chosen[key] = schedules[best]
        return chosen

    def price_rounds(
        self, candidate: Candidate, rounds: Sequence[dict[str, Knobs]], fresh: bool = False
    ) -> Iterable[tuple[int, dict[str, float]]]:
        """For each round, which has a schedule for some kernels, the seconds these take."""
        variants = [self.variant(candidate, choice) for choice in rounds]
        self.build([variant for variant in variants if variant is not None])
        for number, (variant, choice) in enumerate(zip(variants, rounds, strict=True)):
            if variant is None:
                continue
            origins = variant.stages.origins
            failed = {o.name: self.failed[o.text] for o in origins if o.text in self.failed}
            for key, reason in failed.items():
                self.log.reject("does not compile", f"{choice.get(key)}: {reason}")
            kept = {key: knobs for key, knobs in choice.items() if key not in failed}
            variant = self.variant(candidate, kept) if failed else variant
            prices = None if variant is None else self.prices_of(variant, kept, fresh)
            if prices is not None:
                yield number, prices
            if self.is_over():
                return

    def variant(self, candidate: Candidate, choice: dict[str, Knobs]) -> Candidate | None:
        """The candidate with other schedules; an illegal one is a record."""
        try:
            return self.space.decode(candidate.genome.with_tuned(choice))
        except CompileError as error:
            self.log.reject("schedule not legal", str(error))
            return None

    def prices_of(
        self, variant: Candidate, choice: dict[str, Knobs], fresh: bool
    ) -> dict[str, float] | None:
        """Seconds of the chosen kernels in a run; from the database unless they must be fresh."""
        sites = self.sites(variant.program)
        keys = {o.name: k for k, o in enumerate(variant.stages.origins) if o.name in choice}
        names = {key: self.price_key(variant, kernel) for key, kernel in keys.items()}
        if fresh or any(name not in self.prices for name in names.values()):
            number = self.runner.add(variant.program)
            try:
                seconds = self.per_kernel(self.runner.profile(number), sites)
                self.runner.drop(number)
            except (Lost, Refused) as error:
                self.log.reject(str(error), f"schedules {choice}")
                return None
            found = {key: seconds[kernel] for key, kernel in keys.items()}
            if fresh:
                return found
            self.log.tried(len(keys))
            priced = {names[key]: value for key, value in found.items()}
            self.database.add_prices(priced)
            self.prices = priced | self.prices
        return {key: self.prices[name] for key, name in names.items()}

    def price_key(self, candidate: Candidate, kernel: int) -> str:
        """What a kernel's time depends on: its text, its launches' numbers, the machine."""
        numbers = [
            [int(p.evaluate(self.dims)) for p in (*launch.params, launch.chunks)]
            for launch in walk(candidate.program.launches)
            if launch.kernel == kernel
        ]
        text = candidate.stages.origins[kernel].text
        return compiler.text_key(f"{text}\n{numbers}\n{self.context}")

    @staticmethod
    def sites(program: Program) -> dict[int, list[int]]:
        """The launch sites of each kernel of a run (not those of the prologue)."""
        found: dict[int, list[int]] = {}
        for site, launch in enumerate(walk(program.launches)):
            found.setdefault(launch.kernel, []).append(site)
        return found

    @staticmethod
    def per_kernel(seconds: Sequence[float], sites: dict[int, list[int]]) -> list[float]:
        """Seconds of a run by kernel."""
        found = [0.0] * (max(sites, default=-1) + 1)
        for kernel, places in sites.items():
            found[kernel] = sum(seconds[site] for site in places)
        return found

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
            for _ in range(MOVES_AT_ONCE):
                first = self.space.moves(self.best.candidate)
                if len(first) < 2:
                    return
                one, other = self.rng.sample(first, 2)
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
        limit = PREDICTED_SLOW * self.predicted(self.best.candidate)
        for number, move in enumerate(moves):
            if self.is_over():
                break
            candidate = self.decode(move.of(self.best.candidate.genome), move.note)
            if candidate is None:
                continue
            seconds = self.predicted(candidate)
            if seconds > limit:
                self.log.reject("predicted to be slow", move.note)
            else:
                known.append((seconds, number, move))
        return [move for _, _, move in sorted(known, key=lambda item: item[:2])]

    def predicted(self, candidate: Candidate) -> float:
        return cost(candidate.program, self.dims, self.space.target).seconds

    def decode(self, genome: Genome, note: str) -> Candidate | None:
        """The candidate of a genome; None for one seen before, too large or not to be compiled."""
        try:
            candidate = self.space.decode(genome)
        except CompileError as error:
            self.log.reject("does not compile", f"{note}: {error}")
            return None
        if candidate.text in self.seen:
            return None
        flops = cost(candidate.program, self.dims, self.space.target).flops
        first = cost(self.fast.candidate.program, self.dims, self.space.target).flops
        if flops > MOST_FLOPS * max(first, 1.0):
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
        self.build([candidate for candidate, _ in fresh])
        before = self.best
        for candidate, note in fresh:
            if self.is_over() and self.best is not before:
                break
            self.seen.add(candidate.text)
            self.measure(candidate, note)
        return self.best is not before

    def measure(self, candidate: Candidate, note: str) -> None:
        """Times a candidate against the best; it becomes the best if it wins."""
        texts = (origin.text for origin in candidate.stages.origins)
        broken = next((self.failed[text] for text in texts if text in self.failed), None)
        if broken is not None:
            self.log.reject("does not compile", f"{note}: {broken}")
            return
        number = self.runner.add(candidate.program)
        self.log.tried()
        try:
            mine, other = self.runner.time((number, self.best.number), TIME_ROUNDS)
            if not mine.beats(other, WIN):
                self.log.reject("not faster than the best", note)
                self.runner.drop(number)
                return
            again, other = self.runner.time((number, self.best.number), 2 * TIME_ROUNDS)
            if not again.beats(other, WIN):
                self.log.reject("not faster when timed again", note)
                self.runner.drop(number)
                return
        except (Lost, Refused) as error:
            self.log.reject(str(error), note)
            return
        if self.best is not self.fast:
            self.runner.drop(self.best.number)
        self.best = Timed(candidate, number, again)
        self.log.best(again.seconds)

    # --- building

    def build(self, candidates: Sequence[Candidate]) -> None:
        """Compiles the kernels that are new; those that cannot be are noted in `failed`."""
        wanted = {}
        for candidate in candidates:
            for origin, kernel in zip(
                candidate.stages.origins, candidate.program.kernels, strict=True
            ):
                if origin.text not in self.built and origin.text not in self.failed:
                    wanted[origin.text] = kernel
        requests = [(kernel, text, self.space.target) for text, kernel in wanted.items()]
        for text, reason in zip(wanted, self.builders.build(requests), strict=True):
            if reason is None:
                self.built.add(text)
                self.log.kernels_built += 1
            else:
                self.failed[text] = reason

    # --- the end

    def duel(self) -> tuple[bool, float, float]:
        """Whether the best program beats the fast one for certain; seconds of both."""
        a, b = self.runner.duel(self.best.number, self.fast.number, PAIRS)
        best, fast = Timing.of(a), Timing.of(b)
        ahead = sum(mine < other for mine, other in zip(a, b, strict=True))
        quiet = min(a) < min(b) * (1 - WIN)  # also where other processes disturbed least
        wins = best.beats(fast, WIN) and quiet and ahead > len(a) // 2
        return wins, statistics.median(a), statistics.median(b)
