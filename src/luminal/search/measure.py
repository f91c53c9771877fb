"""What is built and timed: kernels compiled once, schedules of kernels priced in their places.

One run of a program prices one schedule of each of its kernels: operands are as warm as they will
be, and sizes, indices and masks are those of real runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from luminal.backends.backend import Prediction
from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.compiler.assemble import text_key
from luminal.kernel.knobs import Knobs
from luminal.program.launch_list import CollectiveLaunch, Program, kernel_launches, walk
from luminal.search.chip import chip_of
from luminal.search.cost_model import PREDICTED_SLOW, CostModel
from luminal.search.database import Database
from luminal.search.genome import library_of
from luminal.search.learned import Learned
from luminal.search.library_prices import Timed
from luminal.search.log import SCHEDULES, Log
from luminal.search.order import Order
from luminal.search.process import Builders, Lost, Refused
from luminal.search.runner import Runner
from luminal.search.space import Candidate, Space
from luminal.search.words import kernels_in_words, knobs_in_words

ROUNDS_AT_ONCE = 6  # schedules of a kernel that are built before any is timed,
BUILDS_AT_ONCE = 12  # or of several kernels: the other side waits for its turn
RIVALS = 3  # schedules of a kernel that are timed again before one is taken
CONFIRM_ROUNDS = 3
WIN = 0.02  # a challenger must be faster by this share

Choice = dict[str, Knobs]
"""A schedule for some kernels, by their names under the default schedule."""
NO_SHARES: Mapping[str, float] = {}


def batches(
    sizes: Mapping[str, int], shares: Mapping[str, float] = NO_SHARES
) -> Iterator[list[dict[str, int]]]:
    """The numbers of all schedules, so many of each kernel, in rounds of one of each at most and
    batches of rounds that are built together. A kernel of twice the share gets twice as many at a
    time (without shares all get the same), after the first ones of all.
    """
    most = max(len(sizes), min(ROUNDS_AT_ONCE * len(sizes), BUILDS_AT_ONCE))
    due = [
        (k / shares.get(key, 1.0), place, key, k)
        for place, (key, size) in enumerate(sizes.items())
        for k in range(size)
    ]
    due.sort()
    for start in range(0, len(due), most):
        rounds: list[dict[str, int]] = []
        for _, _, key, k in due[start : start + most]:
            free = next((numbers for numbers in rounds if key not in numbers), None)
            if free is None:
                rounds.append(free := {})
            free[key] = k
        yield rounds


# Pricing kernels alone would need a guess of how warm their operands are. In a run of the whole
# program they are as warm as they will be, and forty schedules of twenty kernels cost forty runs,
# not eight hundred.
@dataclass(slots=True)
class Measurements:
    """The means of one search, and what it has built and timed.

    `context` names machine, threads and dims: a part of every price's key. `code` says what makes
    and counts kernels: samples of other code are not learned from. `is_over`, which the strategy
    sets, ends a series of measurements early.
    """

    space: Space
    builders: Builders
    runner: Runner
    database: Database
    log: Log
    dims: Mapping[str, int]
    context: str
    code: str = ""
    is_over: Callable[[], bool] = field(init=False)
    slow: float = math.inf  # seconds of a run: such a program is timed once
    chip: str = field(init=False)
    model: CostModel = field(init=False)
    prices: dict[str, float] = field(init=False)
    timed: Timed = field(default_factory=Timed)
    launches: dict[tuple[str, Knobs], Prediction] = field(default_factory=dict)
    priced: dict[tuple[str, Knobs], float] = field(default_factory=dict)  # seconds of kernels
    built: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)  # kernels without code, and why

    def __post_init__(self) -> None:
        self.chip = chip_of(self.space.backend)
        learned = Learned(self.database.samples(self.chip, self.code))
        self.model = CostModel(self.dims, self.space.backend, learned)
        self.prices = self.database.prices()

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
        requests = [(self.space.backend, kernel, text) for text, kernel in wanted.items()]
        for text, reason in zip(wanted, self.builders.build(requests), strict=True):
            if reason is None:
                self.built.add(text)
                self.log.kernels_built += 1
            else:
                self.failed[text] = reason

    def broken(self, candidate: Candidate) -> str | None:
        """Why a built candidate has no code, if it has none."""
        texts = (origin.text for origin in candidate.stages.origins)
        return next((self.failed[text] for text in texts if text in self.failed), None)

    # --- schedules

    def profile(self, number: int, program: Program) -> dict[int, float]:
        """The seconds of a run by kernel, those of the prologue left out."""
        seconds = self.runner.profile(number, self.slow)
        by_kernel: dict[int, float] = {}
        for launch, taken in zip(walk(program.launches), seconds, strict=True):
            if isinstance(launch, CollectiveLaunch):  # a copy stands for it here
                continue
            by_kernel[launch.kernel] = by_kernel.get(launch.kernel, 0.0) + taken
        return by_kernel

    def ranked(
        self,
        candidate: Candidate,
        spaces: Mapping[str, tuple[Knobs, ...]],
        shares: Mapping[str, float] = NO_SHARES,
    ) -> Iterator[dict[str, list[Knobs]]]:
        """The schedules of each kernel, the fastest first: those timed so far, again and again.

        `spaces`: of at least one kernel; `shares`: of the run's time, which a kernel gets of this
        series too.
        """
        # Kernels are timed inside the whole program, one schedule of each a run: their operands are
        # as warm as they will be, and one run prices as many schedules as there are kernels.
        prices: dict[str, list[tuple[float, int]]] = {key: [] for key in spaces}
        sizes = {key: len(schedules) for key, schedules in spaces.items()}
        orders = {key: Order(size) for key, size in sizes.items()}
        kernels, now = kernels_in_words(candidate.stages), candidate.genome.knobs
        for turns in batches(sizes, shares):
            keys = {key for numbers in turns for key in numbers}
            expected = self.expected(candidate, {key: spaces[key] for key in keys})
            batch = [{key: orders[key].next(expected[key]) for key in numbers} for numbers in turns]
            rounds = [{key: spaces[key][k] for key, k in numbers.items()} for numbers in batch]
            for number, timed in self.price(candidate, rounds):
                for key, seconds in timed.items():
                    k = batch[number][key]
                    prices[key].append((seconds, k))
                    predicted = self.launch(candidate, key, spaces[key][k]).seconds
                    self.log.foreseen(key, predicted, expected[key][k], seconds)
                    self.priced[key, spaces[key][k]] = seconds
                    present = self.priced.get((key, now.get(key, ())))
                    text = f"{kernels.get(key, 'a kernel')}: {knobs_in_words(spaces[key][k])}"
                    self.log.trial(SCHEDULES, text, "priced", "", seconds, present)
            yield {key: [spaces[key][k] for _, k in sorted(timed)] for key, timed in prices.items()}

    def expected(
        self, candidate: Candidate, spaces: Mapping[str, tuple[Knobs, ...]]
    ) -> dict[str, list[float]]:
        """The seconds that the schedules of kernels should take, by what was learned so far."""
        return {
            key: self.model.learned.all_expected(
                [self.launch(candidate, key, knobs) for knobs in schedules], key
            )
            for key, schedules in spaces.items()
        }

    def launch(self, candidate: Candidate, key: str, knobs: Knobs) -> Prediction:
        """What is predicted of a kernel with some knobs; of one that cannot have them that it takes
        for ever.
        """
        if (key, knobs) not in self.launches:
            try:
                variant = self.space.decode(candidate.genome.with_tuned({key: knobs}))
                names = [origin.name for origin in variant.stages.origins]
                prediction = self.model.launch(variant.program, names.index(key))
            except (CompileError, ValueError):
                prediction = Prediction(math.inf, {})
            self.launches[key, knobs] = prediction
        return self.launches[key, knobs]

    def confirmed(self, candidate: Candidate, ranked: Mapping[str, list[Knobs]]) -> Choice:
        """The few fastest schedules and the present one again, in turns: what wins for certain."""
        # The winner of many noisy measurements is mostly the luckiest one, so the few best are
        # timed again beside the present schedule, in turns, and must win by a margin.
        now = candidate.genome.knobs
        rivals: dict[str, list[Knobs]] = {}
        for key, schedules in ranked.items():
            present = now.get(key, ())
            rivals[key] = [present, *(knobs for knobs in schedules[:RIVALS] if knobs != present)]
        most = max(map(len, rivals.values()), default=0)
        samples: dict[str, list[list[float]]] = {key: [[] for _ in r] for key, r in rivals.items()}
        rounds = [{key: r[k % len(r)] for key, r in rivals.items()} for k in range(most)]
        for _ in range(CONFIRM_ROUNDS):
            for number, timed in self.price(candidate, rounds, fresh=True):
                for key, seconds in timed.items():
                    samples[key][number % len(rivals[key])].append(seconds)
        chosen = {}
        for key, schedules in rivals.items():
            times = [statistics.median(s) if s else float("inf") for s in samples[key]]
            best = min(range(len(times)), key=times.__getitem__)
            if times[best] < times[0] * (1 - WIN):
                chosen[key] = schedules[best]
        return chosen

    def price(
        self, candidate: Candidate, rounds: Sequence[Choice], fresh: bool = False
    ) -> Iterator[tuple[int, dict[str, float]]]:
        """The seconds of a run that its kernels take, for each round by its number.

        From the database where it has them, unless they must be `fresh`.
        """
        variants = [self.variant(candidate, choice) for choice in rounds]
        if not fresh:
            rounds, variants = self.promising(candidate, rounds, variants)
        self.build([variant for variant in variants if variant is not None])
        for number, (variant, choice) in enumerate(zip(variants, rounds, strict=True)):
            if variant is None:
                continue
            failed = self.without_code(variant, choice)
            kept = {key: knobs for key, knobs in choice.items() if key not in failed}
            variant = self.variant(candidate, kept) if failed else variant
            prices = None if variant is None else self.prices_of(variant, kept, fresh)
            if prices is not None:
                yield number, prices
            if self.is_over():
                return

    def promising(
        self,
        candidate: Candidate,
        rounds: Sequence[Choice],
        variants: Sequence[Candidate | None],
    ) -> tuple[list[Choice], list[Candidate | None]]:
        """Rounds without the schedules that are predicted to be slow; each of these is a record."""
        present = self.predicted(candidate)
        kept: list[Choice] = []
        kept_variants: list[Candidate | None] = []
        for choice, variant in zip(rounds, variants, strict=True):
            predictions = {} if variant is None else self.predicted(variant)
            slow = {
                key
                for key in choice.keys() & predictions.keys()
                if predictions[key] > PREDICTED_SLOW * present[key] > 0
            }
            for key in sorted(slow):
                self.log.reject("predicted to be slow", f"schedule {choice[key]}")
            rest = {key: knobs for key, knobs in choice.items() if key not in slow}
            kept.append(rest)
            kept_variants.append(
                (self.variant(candidate, rest) if rest else None) if slow else variant
            )
        return kept, kept_variants

    def predicted(self, candidate: Candidate) -> dict[str, float]:
        """Seconds of each kernel in a run."""
        program, origins = candidate.program, candidate.stages.origins
        return {o.name: self.model.kernel(program, k) for k, o in enumerate(origins)}

    def variant(self, candidate: Candidate, choice: Choice) -> Candidate | None:
        """The candidate with other schedules; an illegal one is a record."""
        try:
            return self.space.decode(candidate.genome.with_tuned(choice))
        except CompileError as error:
            self.log.reject("schedule not legal", str(error))
            return None

    def without_code(self, variant: Candidate, choice: Choice) -> set[str]:
        """The kernels of a variant that did not compile; each is a record."""
        reasons = {
            o.name: self.failed[o.text] for o in variant.stages.origins if o.text in self.failed
        }
        for key, reason in reasons.items():
            self.log.reject("does not compile", f"{choice.get(key)}: {reason}")
        return set(reasons)

    def prices_of(self, variant: Candidate, choice: Choice, fresh: bool) -> dict[str, float] | None:
        """The seconds of the chosen kernels in a run of the variant; None where it was lost."""
        keys = {o.name: k for k, o in enumerate(variant.stages.origins) if o.name in choice}
        names = {key: self.price_key(variant, kernel) for key, kernel in keys.items()}
        if not fresh and all(name in self.prices for name in names.values()):
            prices = {key: self.prices[name] for key, name in names.items()}
            return self.noted(prices, choice)
        number = self.runner.add(variant.program)
        try:
            seconds = self.profile(number, variant.program)
            self.runner.drop(number)
        except (Lost, Refused) as error:
            self.log.reject(str(error), f"schedules {choice}")
            return None
        seconds_of = {key: seconds.get(kernel, 0.0) for key, kernel in keys.items()}
        if not fresh:
            self.log.tried(SCHEDULES, len(keys))
            priced = {names[key]: value for key, value in seconds_of.items()}
            self.database.add_prices(priced)
            self.prices = priced | self.prices
            self.learn(variant, keys, names)
        return self.noted(seconds_of, choice)

    def noted(self, seconds_of: dict[str, float], choice: Choice) -> dict[str, float]:
        """Remembers the seconds of kernels for reports, and gives them back."""
        for key, seconds in seconds_of.items():
            self.timed.note(key, choice[key], seconds)
        return seconds_of

    def learn(
        self, variant: Candidate, kernels: Mapping[str, int], names: Mapping[str, str]
    ) -> None:
        """Keeps what was counted of kernels beside their prices, for this search and later ones."""
        samples = {
            names[key]: self.model.sample(variant.program, k, key, self.prices[names[key]])
            for key, k in kernels.items()
            if self.prices[names[key]] > 0
        }
        self.database.add_samples(self.chip, self.code, samples)
        self.model.learned.add(samples.values())

    def price_key(self, candidate: Candidate, kernel: int) -> str:
        """What a kernel's time depends on."""
        return price_key(candidate, kernel, self.dims, self.context)


def price_key(candidate: Candidate, kernel: int, dims: Mapping[str, int], context: str) -> str:
    """What a kernel's time depends on: its text, its launches' numbers, the machine."""
    numbers = [
        [int(p.evaluate(dims)) for p in (*launch.params, launch.chunks)]
        for launch in kernel_launches(candidate.program.launches)
        if launch.kernel == kernel
    ]
    text = candidate.stages.origins[kernel].text
    return text_key(f"{text}\n{numbers}\n{context}")


def known(
    space: Space,
    candidate: Candidate,
    prices: Mapping[str, float],
    dims: Mapping[str, int],
    context: str,
) -> Timed:
    """What earlier searches have timed of a program's kernels that a library could compute."""
    timed = Timed()
    for kernel, origin in enumerate(candidate.stages.origins):
        spaces = space.knobs(candidate, kernel)
        for knobs in spaces if any(map(library_of, spaces)) else ():
            try:
                variant = space.decode(candidate.genome.with_tuned({origin.name: knobs}))
            except CompileError:
                continue  # no search has timed it
            place = next(k for k, o in enumerate(variant.stages.origins) if o.name == origin.name)
            seconds = prices.get(price_key(variant, place, dims, context))
            if seconds is not None:
                timed.note(origin.name, knobs, seconds)
    return timed
