"""The strategy: which candidates to build and time next, and which one wins.

A search has two sides, which share its budget from the start. One takes the schedules of the
program's kernels, of slow kernels more: one run of the program prices one schedule of each of them,
in its place.
The other changes the structure (spellings, residences, merges), one move at a time from the best
program so far, the most promising by the cost model first, then pairs of moves. What either gains
the other goes on from. At the end the best program meets the fast one in interleaved pairs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, count

from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.kernel.knobs import Knobs, as_knobs
from luminal.search.cost_model import MOST_FLOPS, MOST_LINES, PREDICTED_SLOW, Cost
from luminal.search.genome import Genome
from luminal.search.log import SCHEDULES, STRUCTURE
from luminal.search.measure import WIN, Choice, Measurements
from luminal.search.options import CompilationMode, SearchOptions
from luminal.search.process import Lost, Refused
from luminal.search.runner import Pairs
from luminal.search.space import Candidate, Move
from luminal.search.words import kernels_in_words, knobs_in_words

MOVES_AT_ONCE = 4
LOOKED_AT_ONCE = 16  # moves that are decoded before the most promising ones are built
TIME_ROUNDS = 7
LEAST_PAIRS, MOST_PAIRS = 7, 41
PAIRS_SECONDS = 0.15  # for one comparison of two programs
SMALL_SHARE = 0.01  # of a run's time: kernels below it are not tuned
CROSSED = 6  # fastest schedules of a kernel that are tried together, two by two
STALE_DRAWS = 40  # random pairs of moves without a gain after which a search has converged
SLOW = 1.5  # times as long: needs no second look
GLANCE = 3  # pairs that show what is slow
END = object()


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate, its number in the runner, and its time."""

    candidate: Candidate
    number: int
    seconds: float


@dataclass(slots=True)
class Side:
    """One side of a search: how its steps begin from the best program, and what it has used.

    `ended`: the structure for which it has nothing left to try.
    """

    name: str
    start: Callable[[], Iterator[None]]
    steps: Iterator[None] | None = None
    ended: Genome | None = None
    used: float = 0.0


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
        self.crosses: dict[str, tuple[Knobs, ...]] = {}  # of their fastest schedules, to be timed
        self.shares: dict[str, float] = {}  # of the kernels to be tuned, of a run's time
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
        sides = (Side(SCHEDULES, self.tune), Side(STRUCTURE, self.explore))
        while not self.is_over():
            waiting = [side for side in sides if side.ended != self.structure]
            if not waiting:
                return
            self.step(min(waiting, key=lambda side: side.used))

    def step(self, side: Side) -> None:
        """Takes one step of a side; what it used is time, or candidates where time has no limit."""
        tried, start = self.log.candidates, time.monotonic()
        side.steps = side.steps or side.start()
        if next(side.steps, END) is END:
            side.steps, side.ended = None, self.structure
        taken = time.monotonic() - start
        self.log.seconds_of[side.name] += taken
        side.used += max(1, self.log.candidates - tried) if self.deadline is None else taken

    @property
    def structure(self) -> Genome:
        """The best program's genome but for its schedules."""
        return replace(self.best.candidate.genome, tuned=())

    def is_over(self) -> bool:
        """Is a limit reached: time, candidates, or a program fast enough?"""
        many = self.log.candidates >= self.options.max_candidates
        return self.is_late or many or self.best.seconds * 1e6 < self.options.stop_below_us

    @property
    def is_late(self) -> bool:
        """Is the time of the search up?"""
        return self.deadline is not None and time.monotonic() >= self.deadline

    # --- schedules

    def tune(self) -> Iterator[None]:
        """Times the schedules of the best program's kernels, then what pairs of the fastest make
        together, and takes the fastest of each.
        """
        while spaces := self.untuned():
            structure, candidate = self.structure, self.best.candidate
            leading: Choice = {}
            ranked: dict[str, list[Knobs]] = {}
            for ranked in self.measurements.ranked(candidate, spaces, self.shares):
                yield
                self.take_leading(ranked, leading)
                yield
                if self.structure != structure:
                    break  # what was priced so far is known for the kernels that are still there
            else:
                for key in spaces:
                    first = key not in self.tuned
                    self.crosses[key] = self.crossed(candidate, key, ranked[key]) if first else ()
                self.tuned |= spaces.keys()

    # Choices that do not hide each other's gain add up, so pairs of the six fastest are tried, not
    # all combinations. That comes within 10% of the best of 300 combinations on a machine whose
    # clock is the cost model (a test).
    def crossed(self, candidate: Candidate, key: str, ranked: Sequence[Knobs]) -> tuple[Knobs, ...]:
        """What each two of a kernel's fastest schedules choose, together: gains of two choices add
        up where neither hides the other's, and the fastest are few.
        """
        # Fifteen pairs of the six fastest, in place of the product of all choices.
        texts: dict[str, Knobs] = {}
        pairs = combinations(ranked[:CROSSED], 2)
        for knobs in (*ranked, *(as_knobs(dict(other) | dict(one)) for one, other in pairs)):
            try:
                decoded = self.space.decode(candidate.genome.with_tuned({key: knobs}))
            except CompileError:  # what one chooses is not there with the other's choice
                continue
            text = next((o.text for o in decoded.stages.origins if o.name == key), "")
            texts.setdefault(text, knobs)
        return tuple(knobs for knobs in texts.values() if knobs not in ranked)

    def untuned(self) -> dict[str, tuple[Knobs, ...]]:
        """The schedules of those of the best program's kernels that matter, once for each, then
        their crosses.
        """
        candidate = self.best.candidate
        try:
            seconds = self.measurements.profile(self.best.number, candidate.program)
        except (Lost, Refused) as error:
            self.log.reject(str(error), "profile")
            return {}
        total = sum(seconds.values())
        origins = candidate.stages.origins
        slow = sorted((-taken, k) for k, taken in seconds.items() if taken > SMALL_SHARE * total)
        spaces: dict[str, tuple[Knobs, ...]] = {}
        for taken, kernel in slow:
            name = origins[kernel].name
            is_new = name not in self.tuned
            schedules = (
                self.space.knobs(candidate, kernel) if is_new else self.crosses.get(name, ())
            )
            if schedules:
                spaces[name], self.shares[name] = schedules, -taken / total
        return spaces

    def take_leading(self, ranked: Mapping[str, list[Knobs]], leading: Choice) -> None:
        """Lets the fastest schedules that are new in `leading` meet the present ones."""
        now = self.best.candidate.genome.knobs
        fresh = {
            key: fastest
            for key, fastest in ranked.items()
            if fastest and fastest[0] not in (leading.get(key), now.get(key, ()))
        }
        leading.update({key: fastest[0] for key, fastest in fresh.items()})
        chosen = self.measurements.confirmed(self.best.candidate, fresh)
        if not chosen:
            return
        kernels = kernels_in_words(self.best.candidate.stages)
        notes = {
            key: f"{kernels.get(key, 'a kernel')}: {knobs_in_words(knobs)}"
            for key, knobs in chosen.items()
        }
        genome = self.best.candidate.genome.with_tuned(chosen)
        if self.challenge([(genome, " and ".join(notes.values()))], SCHEDULES):
            return
        for key, knobs in chosen.items():
            genome = self.best.candidate.genome.with_tuned({key: knobs})
            self.challenge([(genome, notes[key])], SCHEDULES)

    # --- structure

    def explore(self) -> Iterator[None]:
        """Single moves as long as they gain, then pairs of moves; a gain of these begins anew."""
        while True:
            before = self.structure
            yield from self.climb()
            if self.structure == before:
                yield from self.wander()
                if self.structure == before:
                    return

    def climb(self) -> Iterator[None]:
        """Tries every single move once, each from the best program by then."""
        moves = in_turns(self.space.moves(self.best.candidate))
        waiting: list[tuple[float, int, Move]] = []
        for start in range(0, len(moves), LOOKED_AT_ONCE):
            numbers = range(start, min(start + LOOKED_AT_ONCE, len(moves)))
            yield
            waiting = sorted([*waiting, *self.judged(moves, numbers)])  # no two numbers are equal
            yield
            waiting = self.try_first(waiting)
        while waiting:
            yield
            waiting = self.try_first(waiting)

    def try_first(self, waiting: list[tuple[float, int, Move]]) -> list[tuple[float, int, Move]]:
        """Tries the first of some moves; those that are left."""
        genome = self.best.candidate.genome
        batch = [(move.of(genome), move.note) for _, _, move in waiting[:MOVES_AT_ONCE]]
        self.challenge(batch, STRUCTURE)
        return waiting[MOVES_AT_ONCE:]

    def wander(self) -> Iterator[None]:
        """Random pairs of moves, until one gains or many have gained nothing."""
        best, stale = self.best, 0
        moves = self.space.moves(best.candidate)
        while len(moves) > 1 and stale < STALE_DRAWS:
            pairs = []
            for _ in range(MOVES_AT_ONCE):
                one, other = self.rng.sample(moves, 2)
                genome = other.of(one.of(self.best.candidate.genome))
                pairs.append((genome, f"{one.note} and {other.note}"))
            if self.challenge(pairs, STRUCTURE):
                return
            stale += len(pairs)
            yield

    def judged(
        self, moves: Sequence[Move], numbers: Iterable[int]
    ) -> list[tuple[float, int, Move]]:
        """The moves that make new programs, with their expected seconds."""
        judgements: list[tuple[float, int, Move]] = []
        limit = PREDICTED_SLOW * self.cost(self.best.candidate).seconds
        for number in numbers:
            if self.is_over():
                break
            move = moves[number]
            candidate = self.decode(move.of(self.best.candidate.genome), move.note)
            if candidate is None:
                continue
            cost = self.cost(candidate)
            if cost.seconds > limit:
                self.log.reject("predicted to be slow", move.note)
            else:
                judgements.append((cost.expected, number, move))
        return judgements

    def cost(self, candidate: Candidate) -> Cost:
        return self.measurements.model.cost(candidate.program)

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

    def challenge(self, genomes: Sequence[tuple[Genome, str]], side: str) -> bool:
        """Builds and times some genomes' programs; True if one of them is the new best."""
        programs: dict[str, tuple[Candidate, str]] = {}  # two genomes may make one program
        for genome, note in genomes:
            candidate = self.decode(genome, note)
            if candidate is not None:
                programs.setdefault(candidate.text, (candidate, note))
        fresh = [*programs.values()]
        self.measurements.build([candidate for candidate, _ in fresh])
        before = self.best
        for candidate, note in fresh:
            if self.is_over():
                break
            self.seen.add(candidate.text)
            with self.log.trying(note):
                self.measure(candidate, note, side)
        return self.best is not before

    def measure(self, candidate: Candidate, note: str, side: str) -> None:
        """Times a candidate against the best; it becomes the best if it wins."""
        broken = self.measurements.broken(candidate)
        if broken is not None:
            self.log.reject("does not compile", f"{note}: {broken}")
            self.log.trial(side, note, "rejected", f"does not compile: {broken}")
            return
        number = self.runner.add(candidate.program)
        self.log.tried(side)
        try:
            # Three stages of growing cost: a glance throws out what is far slower, a series finds a
            # winner, and a second series throws out the lucky ones, of which a search of hundreds
            # has many.
            glance = self.runner.pairs(number, self.best.number, GLANCE)
            if min(glance.first) > SLOW * max(glance.second):
                self.log.reject("slow", note)
                times = min(glance.first), min(glance.second)
                self.log.trial(side, note, "slower", "slow at a glance", *times)
                self.runner.drop(number)
                return
            for reason in ("not faster than the best", "not faster when timed again"):
                pairs = self.pairs(number, self.best)
                if not pairs.wins(WIN):
                    self.log.reject(reason, note)
                    self.log.trial(side, note, "slower", reason, *map(statistics.median, pairs))
                    self.runner.drop(number)
                    return
        except (Lost, Refused) as error:
            self.log.reject(str(error), note)
            self.log.trial(side, note, "rejected", str(error))
            return
        self.log.trial(side, note, "kept", "", *map(statistics.median, pairs))
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
        """A yes where the best program beats the fast one for certain, and the seconds of both."""
        pairs = self.pairs(self.best.number, self.fast)
        first, second = map(statistics.median, pairs)
        return pairs.wins(WIN), first, second


def in_turns(moves: Iterable[Move]) -> list[Move]:
    """The first move of each kind of choice, then the second: whatever ends a search early has
    seen something of every kind.
    """
    turns: defaultdict[str, Iterator[int]] = defaultdict(count)
    places = [(next(turns[move.choices[0][0]]), move) for move in moves]
    return [move for _, move in sorted(places, key=lambda place: place[0])]
