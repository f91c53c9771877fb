"""The thread that runs steps: takes jobs from other threads, gives out characters as they come.

It waits for nobody. Texts that follow a schema take part in no step while their matcher is asked,
and what it gives out goes to a function that only notes it. A job's events are no
more than its new tokens, so what a slow reader leaves lying has a bound.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from luminal.base.dtypes import float32
from luminal.base.errors import InputError, LuminalError
from luminal.base.records import dataclass
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.constraints import ConstraintError
from luminal.models.decoder import Decoder
from luminal.models.sampling import Draw
from luminal.models.seeing.sight import Sight
from luminal.models.speculative import PromptLookup
from luminal.models.text import Text
from luminal.serve import scheduler
from luminal.serve.blocks import BlockPool
from luminal.serve.drafts import Drafts, LookupDrafts, ModelDrafts
from luminal.serve.jobs import Event, Job, New, new_of
from luminal.serve.program import StepProgram
from luminal.serve.ranks import ALONE, Ranks
from luminal.serve.scheduler import PIECE, Scheduler, Step

LOG = logging.getLogger("luminal.serve")
NO_ROOM = (
    "the model could not be run",
    "there is no memory for a step; start the server with fewer --rows, or a smaller --cache",
)
"""What is told of an error that is none of Luminal's own, and of one of memory."""
PATIENCE = 0.25  # of a step's time, that it waits for texts whose matchers are asked


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`rows`: texts at a time; `chunk`: tokens of a prompt a step; `size`: tokens of a block.

    `cache`: tokens whose keys and values are kept, of all texts together, as values of `dtype`.
    `ranks`: who runs the model; a draft is run by the first of them alone.
    """

    rows: int = 64
    chunk: int = 128
    size: int = 16
    cache: int = 65536
    backend: str | None = None
    dtype: Any = float32
    ranks: Ranks = ALONE


class Load(NamedTuple):
    """What an engine does at the moment, and has done."""

    running: int
    waiting: int
    blocks: int
    free_blocks: int
    preemptions: int
    steps: int
    seconds: float
    """Spent in steps."""
    computed: int
    """Tokens that ran."""
    proposed: int
    """Of these, that a draft proposed."""
    accepted: int
    """Of these, that were right."""


Deliver = Callable[[list[Event]], None]
Ahead = dict[scheduler.Text, list[Draw]]
"""How is chosen after each of the tokens that are proposed to follow a text."""


# One thread owns the model and the blocks, so nothing here needs a lock; others leave jobs in a
# queue and get events. It waits for no client: one that does not read fills its own queue only.
class Engine:
    """A model that writes many texts at a time, in a thread of its own once it is started."""

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        context: int,
        options: EngineOptions,
        draft: Decoder | PromptLookup | None = None,
        sight: Sight | None = None,
    ) -> None:
        if options.cache < context:
            raise InputError(
                f"cache: {options.cache} tokens, but a text may have {context}; make it larger, or "
                "the context smaller"
            )
        self.model, self.tokenizer, self.context = model, tokenizer, context
        self.options = options
        self._pool = BlockPool(options.cache // options.size, options.size)
        # What sees all of its image is read with it.
        least = 1 if sight is None else sight.together
        pieces = max(options.chunk // PIECE, -(-least // PIECE))
        self._scheduler = Scheduler(self._pool, options.rows, pieces)
        names = () if sight is None else sight.names
        # A draft sees no images: what it proposes for them is checked like all else.
        programs = [
            StepProgram(
                decoder, self._pool, options.rows, pieces, context, options.backend,
                options.dtype, ranks, seen,
            )
            for decoder, ranks, seen in ((model, options.ranks, names), (draft, ALONE, ()))
            if isinstance(decoder, Decoder)
        ]  # fmt: skip
        self._program = programs[0]
        self._drafts: Drafts | None = None
        if isinstance(draft, Decoder):
            self._drafts = ModelDrafts(programs[1])
        elif draft is not None:
            self._drafts = LookupDrafts(draft)
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._jobs: dict[int, Job] = {}  # by the number of their place
        self._steps = self._computed = self._proposed = self._accepted = 0
        self._seconds = self._last = 0.0
        self._deliver: Deliver = lambda events: None
        self._thread: threading.Thread | None = None
        self._calls: deque[Callable[[], None]] = deque()
        self._held: set[int] = set()  # numbers of places whose matchers are asked
        self._asked: Executor = ThreadPoolExecutor(self._scheduler.followers, "luminal-follower")
        self._ready: list[Event] = []  # of texts that were held

    # --- called by other threads

    def start(self, deliver: Deliver) -> None:
        """Begins to work. `deliver` is called in the engine's thread and must return at once."""
        self._deliver = deliver
        # A daemon: were the event loop to fail without calling `stop`, the process must still be
        # able to end.
        self._thread = threading.Thread(target=self._work, name="luminal-engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step that runs; jobs that are left end as cancelled."""
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()
            self._thread = None
            self._asked.shutdown(wait=False, cancel_futures=True)

    @property
    def works(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None and self._thread.is_alive()

    def job(
        self,
        text: Text,
        prompt: Sequence[int],
        logprobs: int | None = None,
        further: bool = False,
        adapter: int = 0,
    ) -> Job:
        """A job for a text that begins with `prompt`; `further`: not the first of its request;
        `adapter`: the number of the one that it is written with.

        Raises InputError if there is no room.
        """
        limit = len(prompt) + max(1, text.room)
        place = scheduler.Text(
            [*prompt],
            limit,
            follows=text.follows,
            further=further,
            images=text.images,
            adapter=adapter,
        )
        self._scheduler.check(place.limit)
        return Job(text, place, logprobs)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Puts jobs at the end of the queue; those of one prompt share what is computed of it."""
        for job in jobs[1:]:
            # Texts of one prompt wait for the first to read it, and begin with its blocks.
            job.place.sibling = jobs[0].place
        self._orders.put(lambda: self._add(jobs))

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Ends jobs: nothing more is delivered of them, and their blocks are free."""
        self._orders.put(lambda: self._cancel(jobs))

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Calls a function between two steps, in the engine's thread."""
        future: Future[Any] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except Exception as error:
                    future.set_exception(error)

        self._orders.put(lambda: self._calls.append(run))
        return future

    @property
    def load(self) -> Load:
        """Figures of this moment; a step may be about to change them."""
        of = self._scheduler
        return Load(
            of.running, of.waiting, self._pool.count, self._pool.free, of.preemptions,
            self._steps, self._seconds, self._computed, self._proposed, self._accepted,
        )  # fmt: skip

    # --- in the engine's thread

    def _work(self) -> None:
        idle = True
        while self._obey(idle):
            if self._calls:
                # Only one: a request for 256 vectors would otherwise hold up every text that is
                # being written.
                self._calls.popleft()()
            step = self._scheduler.step()
            idle = step is None and not self._calls
            if step is None:
                continue
            try:
                events = self._run(step)
            except Exception as error:
                LOG.exception("a step failed")
                # Only errors of Luminal's own are told: other texts may name files of the server or
                # hold what another client sent.
                is_told = isinstance(error, LuminalError)
                events = self._fail(
                    str(error) if is_told else NO_ROOM[isinstance(error, MemoryError)]
                )
            self._deliver(events)
        self._cancel(list(self._jobs.values()))

    def _obey(self, idle: bool) -> bool:
        """Does what other threads asked for; waits for them where there is nothing else to do, and
        a moment for texts that are held, so that they take part in each step.
        """
        end = time.perf_counter() + PATIENCE * self._last
        while True:
            left = max(0.0, end - time.perf_counter()) if self._held else 0.0
            try:
                order = self._orders.get(timeout=None if idle else left)
            except Empty:
                break
            if order is None:
                return False
            order()
            idle = False
        if self._ready:
            events, self._ready = self._ready, []
            self._deliver(events)
        return True

    def _add(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._scheduler.add(job.place)
            self._jobs[job.place.number] = job

    def _cancel(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if self._jobs.pop(job.place.number, None) is not None:
                self._held.discard(job.place.number)
                self._scheduler.cancel(job.place)

    def _run(self, step: Step) -> list[Event]:
        start = time.perf_counter()
        ahead: Ahead = {}
        if self._drafts is not None:
            step, ahead = self._drafted(step, self._drafts)
        jobs = [self._jobs[row.text.number] for row in step.rows]
        needed = set().union(*(job.features for job in jobs))
        chosen = self._program.run(step, _draws(step, jobs, ahead), needed)
        if self._drafts is not None:
            self._drafts.follow(step)
        tokens = chosen.tokens.tolist()
        writes = self._scheduler.done(step, tokens)
        self._steps += 1
        self._computed += sum(row.count for row in step.rows)
        self._accepted += sum(
            row.proposed is not None and row.holds and write
            for row, write in zip(step.rows, writes, strict=True)
        )
        self._last = time.perf_counter() - start
        self._seconds += self._last
        written: dict[Job, list[New]] = {}
        for number, (job, writes_text) in enumerate(zip(jobs, writes, strict=True)):
            if writes_text:
                written.setdefault(job, []).append(new_of(job, tokens[number], chosen, number))
        return [event for job, new in written.items() for event in self._goes_on(job, new)]

    def _drafted(self, step: Step, drafts: Drafts) -> tuple[Step, Ahead]:
        """The step with what is proposed to follow its texts, and how is chosen after that."""
        room = self._scheduler.room(step, drafts.count)
        texts = {place: self._jobs[place.number].text for place in room}
        draws = {place: text.draw for place, text in texts.items()}
        proposals = drafts.propose(step, room, draws)
        asked = {
            place: self._asked.submit(texts[place].ahead, proposed)
            for place, proposed in proposals.items()
            if proposed and place.follows
        }
        # What a matcher allows is asked of other processes. A step waits a moment for them; a text
        # whose answer is late has one token in it.
        wait(asked.values(), PATIENCE * self._last)
        ahead: Ahead = {}
        for place, proposed in proposals.items():
            if not place.follows:
                ahead[place] = texts[place].ahead(proposed)
            elif place in asked and asked[place].done() and asked[place].exception() is None:
                ahead[place] = asked[place].result()
        taken = {place: proposals[place][: len(choices)] for place, choices in ahead.items()}
        self._proposed += sum(map(len, taken.values()))
        return self._scheduler.proposed(step, taken), ahead

    def _goes_on(self, job: Job, new: Sequence[New]) -> list[Event]:
        """The text goes on with tokens; what they give, nothing yet where its matcher is asked."""
        if not job.text.follows:
            return [self._noted(event) for event in self._pushed(job, new)]
        # A matcher may take any time for its answer. The text sits out the steps until then, and
        # nobody else waits for it.
        job.place.held = True
        self._held.add(job.place.number)

        def ask() -> None:
            events = self._pushed(job, new)
            self._orders.put(lambda: self._returned(job, events))

        self._asked.submit(ask)
        return []

    def _pushed(self, job: Job, new: Sequence[New]) -> list[Event]:
        """What tokens add to a text, up to the one that ends it; for a text that follows a matcher
        in another thread, as that may take any time.
        """
        events: list[Event] = []
        for token, logprob, top in new:
            try:
                piece = job.text.push(token, logprob, top)
            except LuminalError as error:
                is_fault = isinstance(error, ConstraintError)
                return [*events, Event(job, error=str(error), is_fault=is_fault)]
            told = None if token in self.tokenizer.eos_ids else token
            events.append(Event(job, piece, told, logprob, top, job.text.reason))
            # A token that was proposed may be behind one that has ended the text.
            if job.text.reason is not None:
                break
        return events

    def _returned(self, job: Job, events: Sequence[Event]) -> None:
        """A text is held no longer, if it was not cancelled."""
        number = job.place.number
        if number in self._held:
            # It may have been cancelled while its matcher was asked, and its number is then no
            # longer held.
            self._held.discard(number)
            job.place.held = False
            self._ready += [self._noted(event) for event in events]

    def _noted(self, event: Event) -> Event:
        """Gives the event on; a text that has ended gives its blocks back."""
        if event.reason is not None or event.error is not None:
            self._cancel([event.job])
        return event

    def _fail(self, why: str) -> list[Event]:
        """Ends all jobs: after a step that failed, nothing is known of what it left."""
        jobs = list(self._jobs.values())
        self._cancel(jobs)
        return [Event(job, error=why) for job in jobs]


def _draws(step: Step, jobs: Sequence[Job], ahead: Ahead) -> list[Draw]:
    """How the rows of a step choose; those of proposed tokens as the text will with them."""
    return [
        # A text's own row is at its last token, and that of its first proposed one behind it.
        job.text.draw if row.proposed is None else ahead[row.text][row.start - len(row.text.tokens)]
        for row, job in zip(step.rows, jobs, strict=True)
    ]
