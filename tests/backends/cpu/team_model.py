"""The team's protocol as a small machine, of which all interleavings are tried.

Threads take one atomic action at a time, in every order: what `team_waits`, `launch_walk`,
`team_workers` and `team_runs` say, with the same words, but waits that sleep at once (no
spinning: nothing hides a lost wake) and pieces of one chunk. After each action no rule may be
broken; where nobody can act, all callers must have returned and all workers be idle.

`absent`: a worker that is not IN may also be taken off its CPU for ever, and nobody waits for it
(but between stepping OUT and the wake that it owes: a delay of no consequence).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.backends.cpu.weak_memory import BrokenRuleError

IDLE, LEASED, OFFERED, IN, OUT = range(5)


class Launch(NamedTuple):
    """A launch of the list that every run walks."""

    grid: int
    barrier: bool = True
    serial: bool = False


@dataclass(frozen=True)
class Setting:
    """Callers that run the list `runs` times each, workers, and a bug that is planted."""

    launches: tuple[Launch, ...]
    callers: int = 1
    workers: int = 1
    runs: int = 1
    absent: bool = False
    bug: str = ""


@dataclass
class Thread:
    """Where a thread is, and what it knows. `block`: the team's; `me`: a worker's number, or -1."""

    me: int
    at: str
    then: str = ""  # where to go after a wait
    asleep: bool = False
    seen: int = 0
    run: tuple[int, int] = (-1, -1)  # caller and number of its run
    block: int = -1
    members: tuple[int, ...] = ()  # the workers leased
    step: int = 0
    base: int = 0
    target: int = 0
    turn: int = 0
    piece: int = -1
    tally: int = 0
    member: int = 0
    k: int = 0
    left: int = 0  # runs still to make

    def key(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())

    def copy(self) -> Thread:
        return Thread(**vars(self))


@dataclass
class State:
    """All words, and what only the checks know: `done_chunks` of open runs."""

    threads: list[Thread]
    words: dict[tuple[str, int], int] = field(default_factory=dict)
    teams: dict[int, tuple[tuple[int, int], tuple[int, ...], int]] = field(default_factory=dict)
    mail: dict[int, tuple[int, int]] = field(default_factory=dict)
    ran: frozenset[tuple[tuple[int, int], int]] = frozenset()
    ended: frozenset[tuple[tuple[int, int], int]] = frozenset()
    open_runs: frozenset[tuple[int, int]] = frozenset()

    def key(self) -> Any:
        return (
            tuple([thread.key() for thread in self.threads]),
            tuple(sorted((key, value) for key, value in self.words.items() if value)),
            tuple(sorted(self.teams.items())),
            tuple(sorted(self.mail.items())),
            self.ran,
            self.ended,
            self.open_runs,
        )

    def copy(self) -> State:
        threads = [thread.copy() for thread in self.threads]
        copied = State(threads, dict(self.words), dict(self.teams), dict(self.mail))
        copied.ran, copied.ended, copied.open_runs = self.ran, self.ended, self.open_runs
        return copied

    def get(self, name: str, index: int) -> int:
        return self.words.get((name, index), 0)

    def set(self, name: str, index: int, value: int) -> None:
        self.words[name, index] = value


def explore(setting: Setting) -> int:
    """All that can happen; how many states there are. Raises BrokenRuleError."""
    machine = Machine(setting)
    first = machine.first()
    seen, open_states = {first.key()}, [first]
    while open_states:
        state = open_states.pop()
        acted = False
        for following in machine.successors(state):
            acted = True
            key = following.key()
            if key not in seen:
                seen.add(key)
                open_states.append(following)
        if not acted:
            machine.check_end(state)
    return len(seen)


class Machine:
    """One method for each action, named as the places where threads are."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.launches = setting.launches
        self.total = sum(launch.grid for launch in self.launches)

    def first(self) -> State:
        workers = [Thread(me, "idle") for me in range(self.setting.workers)]
        callers = [Thread(-1, "lease", left=self.setting.runs) for _ in range(self.setting.callers)]
        return State(workers + callers)

    def successors(self, state: State) -> Iterator[State]:
        for number, thread in enumerate(state.threads):
            if not thread.asleep and thread.at != "home":
                following = state.copy()
                mover = following.threads[number]
                action: Callable[[State, Thread], None] = getattr(self, mover.at)
                action(following, mover)
                yield following
                if self.may_go(state, thread):
                    yield self.without(state, number)

    def may_go(self, state: State, thread: Thread) -> bool:
        is_free = thread.me >= 0 and state.get("STATE", thread.me) != IN
        return self.setting.absent and is_free and thread.at != "wake_joiner"

    def without(self, state: State, number: int) -> State:
        """The worker is gone."""
        following = state.copy()
        worker = following.threads[number]
        worker.asleep, worker.at = True, "gone"
        return following

    def check_end(self, state: State) -> None:
        for thread in state.threads:
            wanted = "home" if thread.me < 0 else "idle_slept"
            if thread.at not in (wanted, "gone"):
                raise BrokenRuleError(f"nobody can act, and a thread is at {thread.at}")

    def rule(self, holds: bool, text: str) -> None:
        if not holds:
            raise BrokenRuleError(text)

    # Waiting: `name`, `index`: the word; `sleepers`: who sleeps on it.

    def sleep(self, s: State, t: Thread, name: str, index: int, slept: str) -> None:
        if s.get(name, index) == t.seen:
            t.asleep = True
        t.at = slept

    def wake(self, s: State, name: str, index: int, sleepers: str) -> None:
        if s.get(sleepers, index) == 0 or self.setting.bug == f"no wake of {sleepers}":
            return
        places = {"STATE": ("idle_slept", "release_slept"), "DONE": ("meet_slept",)}[name]
        for thread in s.threads:
            if thread.asleep and thread.at in places and self.word_of(thread) == index:
                thread.asleep = False

    def word_of(self, thread: Thread) -> int:
        if thread.at == "idle_slept":
            return thread.me
        return thread.members[thread.k] if thread.at == "release_slept" else thread.block

    # A worker.

    def idle(self, s: State, t: Thread) -> None:
        t.seen = s.get("STATE", t.me)
        t.at = "accept" if t.seen == OFFERED else "idle_count"

    def idle_count(self, s: State, t: Thread) -> None:
        s.set("IDLE_SLEEPERS", t.me, s.get("IDLE_SLEEPERS", t.me) + 1)
        t.at = "idle_sleep"

    def idle_sleep(self, s: State, t: Thread) -> None:
        self.sleep(s, t, "STATE", t.me, "idle_slept")

    def idle_slept(self, s: State, t: Thread) -> None:
        s.set("IDLE_SLEEPERS", t.me, s.get("IDLE_SLEEPERS", t.me) - 1)
        t.at = "idle"

    def accept(self, s: State, t: Thread) -> None:
        if s.get("STATE", t.me) != OFFERED:
            t.at = "idle"
            return
        s.set("STATE", t.me, IN)
        t.block, t.member = s.mail[t.me]
        t.run, t.members, t.base = s.teams[t.block]
        t.step, t.at = 0, "launch"

    def step_out(self, s: State, t: Thread) -> None:
        s.set("STATE", t.me, OUT)
        t.at = "wake_joiner"

    def wake_joiner(self, s: State, t: Thread) -> None:
        self.wake(s, "STATE", t.me, "JOIN_SLEEPERS")
        if t.then:
            t.at = "meet_load"
        else:
            self.forget(t)

    def forget(self, t: Thread) -> None:
        """Back to idle: what a thread no longer looks at makes no states of its own."""
        vars(t).update(vars(Thread(t.me, "idle")))

    # The walk of any member.

    def touch(self, s: State, t: Thread) -> None:
        self.rule(t.run in s.open_runs, "a member looks at a run that is over")

    def launch(self, s: State, t: Thread) -> None:
        self.touch(s, t)
        if t.step == len(self.launches):
            t.then = ""
            if t.me < 0:
                t.target, t.then, t.at = t.base, "joined", "meet"
            else:
                t.at = "step_out"
        elif self.launches[t.step].barrier and self.setting.bug != "no barrier":
            t.target, t.then, t.at = t.base, "kernel", "meet"
        else:
            t.at = "kernel"

    def kernel(self, s: State, t: Thread) -> None:
        self.touch(s, t)
        launch = self.launches[t.step]
        t.turn = t.tally = 0
        t.piece = 0 if launch.serial else -1
        peeks = not launch.serial or self.setting.bug == "serial launches are peeked at"
        if peeks and s.get("DONE", t.block) >= t.base + launch.grid:
            t.at = "passed"
        elif launch.serial:
            t.at = "run" if t.me < 0 else "passed"
        else:
            t.at = "claim"

    def passed(self, s: State, t: Thread) -> None:
        t.base += self.launches[t.step].grid
        t.step, t.at, t.seen = t.step + 1, "launch", 0

    def word(self, t: Thread) -> tuple[str, int, int, int]:
        """The word of the share that is its turn, where the share begins and ends."""
        size, grid = len(t.members) + 1, self.launches[t.step].grid
        owner = (t.member + t.turn) % size
        name, index = ("CLAIMED", t.members[owner - 1]) if owner else ("CALLER_CLAIMED", t.block)
        return name, index, t.base + grid * owner // size, t.base + grid * (owner + 1) // size

    def claim(self, s: State, t: Thread) -> None:
        name, index, begin, end = self.word(t)
        t.seen = s.get(name, index)
        if max(t.seen, begin) < end:
            t.at = "swap"
            return
        t.turn += 1
        only_own = self.setting.bug == "only its own share"
        if t.turn > len(t.members) or only_own:
            t.at = "report" if t.tally else "passed"

    def swap(self, s: State, t: Thread) -> None:
        name, index, begin, _ = self.word(t)
        self.touch(s, t)
        t.at = "claim"
        if s.get(name, index) == t.seen or self.setting.bug == "claims without comparing":
            chunk = max(t.seen, begin)
            s.set(name, index, chunk + 1)
            t.piece, t.at = chunk - t.base, "run"

    def run(self, s: State, t: Thread) -> None:
        self.touch(s, t)
        grids = [launch.grid for launch in self.launches]
        launch, first = self.launches[t.step], sum(grids[: t.step])
        pieces = range(launch.grid) if launch.serial else [t.piece]
        if launch.barrier:
            before = {(t.run, chunk) for chunk in range(first)}
            self.rule(before <= s.ended, "a chunk runs before those that it waits for")
        for piece in pieces:
            chunk = (t.run, first + piece)
            self.rule(chunk not in s.ran, "a chunk runs twice")
            s.ran |= {chunk}
        t.tally += len(pieces)
        t.at = "ran"

    def ran(self, s: State, t: Thread) -> None:
        grids = [launch.grid for launch in self.launches]
        launch, first = self.launches[t.step], sum(grids[: t.step])
        pieces = range(launch.grid) if launch.serial else [t.piece]
        self.touch(s, t)
        s.ended |= {(t.run, first + piece) for piece in pieces}
        t.piece, t.at = -1, "report" if launch.serial else "claim"

    def report(self, s: State, t: Thread) -> None:
        self.touch(s, t)
        s.set("DONE", t.block, s.get("DONE", t.block) + t.tally)
        ended = s.get("DONE", t.block) >= t.base + self.launches[t.step].grid
        t.at = "wake_waiting" if ended else "passed"

    def wake_waiting(self, s: State, t: Thread) -> None:
        self.wake(s, "DONE", t.block, "DONE_SLEEPERS")
        t.at = "passed"

    # Waiting for chunks.

    def meet(self, s: State, t: Thread) -> None:
        if s.get("DONE", t.block) >= t.target:
            t.at = t.then
        else:
            t.at = "meet_load" if t.me < 0 else "step_out"

    def meet_load(self, s: State, t: Thread) -> None:
        t.seen = s.get("DONE", t.block)
        if t.seen < t.target:
            t.at = "meet_sleep" if self.setting.bug == "sleeps uncounted" else "meet_count"
        else:
            t.at = t.then if t.me < 0 else "step_in"

    def meet_count(self, s: State, t: Thread) -> None:
        s.set("DONE_SLEEPERS", t.block, s.get("DONE_SLEEPERS", t.block) + 1)
        t.at = "meet_sleep"

    def meet_sleep(self, s: State, t: Thread) -> None:
        self.sleep(s, t, "DONE", t.block, "meet_slept")

    def meet_slept(self, s: State, t: Thread) -> None:
        s.set("DONE_SLEEPERS", t.block, s.get("DONE_SLEEPERS", t.block) - 1)
        t.at = "meet_load"

    def step_in(self, s: State, t: Thread) -> None:
        if s.get("STATE", t.me) == OUT or self.setting.bug == "steps in unasked":
            s.set("STATE", t.me, IN)
            t.at = t.then
        else:
            self.forget(t)

    # The caller.

    def lease(self, s: State, t: Thread) -> None:
        if t.k < self.setting.workers:
            if s.get("STATE", t.k) == IDLE:
                s.set("STATE", t.k, LEASED)
                t.members += (t.k,)
            t.k += 1
            return
        t.k, t.at = 0, "form" if t.members else "go_home"

    def form(self, s: State, t: Thread) -> None:
        caller = next(number for number, each in enumerate(s.threads) if each is t)
        t.block, t.run = t.members[0], (caller, t.left)
        s.open_runs |= {t.run}
        start = s.get("DONE", t.block)
        s.teams[t.block] = (t.run, t.members, start)
        s.set("CALLER_CLAIMED", t.block, start)
        for worker in t.members:
            s.set("CLAIMED", worker, start)
        t.step, t.base, t.at = 0, start, "offer"

    def offer(self, s: State, t: Thread) -> None:
        worker = t.members[t.k]
        s.mail[worker] = (t.block, t.k + 1)
        s.set("STATE", worker, OFFERED)
        t.at = "wake_worker"

    def wake_worker(self, s: State, t: Thread) -> None:
        self.wake(s, "STATE", t.members[t.k], "IDLE_SLEEPERS")
        t.k += 1
        t.at = "offer" if t.k < len(t.members) else "launch"

    def joined(self, s: State, t: Thread) -> None:
        chunks = {(t.run, chunk) for chunk in range(self.total)}
        self.rule(chunks <= s.ended, "a run is over before all its chunks are done")
        t.k, t.at = 0, "release"

    def release(self, s: State, t: Thread) -> None:
        if t.k == len(t.members):
            s.open_runs -= {t.run}
            s.ran = frozenset(each for each in s.ran if each[0] != t.run)
            s.ended = frozenset(each for each in s.ended if each[0] != t.run)
            t.at = "go_home"
            return
        t.seen = s.get("STATE", t.members[t.k])
        waits = t.seen == IN and self.setting.bug != "takes what is in"
        t.at = "release_count" if waits else "take_back"

    def release_count(self, s: State, t: Thread) -> None:
        worker = t.members[t.k]
        s.set("JOIN_SLEEPERS", worker, s.get("JOIN_SLEEPERS", worker) + 1)
        t.at = "release_sleep"

    def release_sleep(self, s: State, t: Thread) -> None:
        self.sleep(s, t, "STATE", t.members[t.k], "release_slept")

    def release_slept(self, s: State, t: Thread) -> None:
        worker = t.members[t.k]
        s.set("JOIN_SLEEPERS", worker, s.get("JOIN_SLEEPERS", worker) - 1)
        t.at = "release"

    def take_back(self, s: State, t: Thread) -> None:
        if s.get("STATE", t.members[t.k]) == t.seen:
            s.set("STATE", t.members[t.k], IDLE)
            t.k += 1
        t.at = "release"

    def go_home(self, s: State, t: Thread) -> None:
        left = t.left - 1
        vars(t).update(vars(Thread(-1, "lease" if left else "home", left=left)))
