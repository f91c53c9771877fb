"""All that a team can do where memory has a weak order: its own IR, run a step at a time.

`explore` runs a setting: callers that run a small launch list, workers, every order of their
accesses to shared words and every value that these may give (`weak_memory`). What the rules ask:

- data is written before who reads it, and read before who writes it next (no race): what kernels
  compute, the run's record, all words that are not atomic;
- every chunk runs once, after those that it waits for, and all before the run returns;
- where nobody can act, all callers have returned and all workers wait for a run (no lost wake);
- from wherever they are, they can come there (nobody turns in a circle for ever).

Nobody spins, which would hide a lost wake. Not in it: that threads are pinned and lent CPUs.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tests.backends.cpu.ir_machine import Frame, Instruction, Thread, computed, signed
from tests.backends.cpu.team_setting import (
    CONTROL,
    GLOBAL,
    GLOBALS,
    HEADER,
    KERNEL,
    LAYOUT,
    RECORD,
    SILENT,
    STACK,
    TEAM_WORDS,
    WORDS,
    Setting,
    block_of,
    constants,
    module,
)
from tests.backends.cpu.weak_memory import BrokenRuleError, Events, Memory


@dataclass
class State:
    """The threads and their memory."""

    threads: list[Thread]
    memory: Memory

    def copy(self, number: int, memory: Memory) -> State:
        """With this memory, and a thread of its own to change."""
        threads = list(self.threads)
        threads[number] = threads[number].copy()
        return State(threads, memory)

    def key(self) -> bytes:
        whole: Any = self.memory.key(), [thread.key for thread in self.threads]
        return blake2b(marshal.dumps(whole, 2), digest_size=16).digest()


def explore(setting: Setting) -> int:
    """All that can happen; how many states there are. Raises BrokenRuleError."""
    machine = Machine(setting)
    first = machine.first()
    numbers, open_states = {first.key(): 0}, [(0, first)]
    before: list[list[int]] = [[]]
    ends = []
    while open_states:
        number, state = open_states.pop()
        acted = False
        for following in machine.successors(state):
            acted = True
            key = following.key()
            if key not in numbers:
                numbers[key] = len(before)
                before.append([])
                open_states.append((numbers[key], following))
            before[numbers[key]].append(number)
        if not acted:
            machine.check_end(state)
            ends.append(number)
    reached, waiting = set(ends), ends
    while waiting:
        fresh = [each for each in before[waiting.pop()] if each not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    if len(reached) < len(before):
        raise BrokenRuleError("the threads can come to where they never end")
    return len(before)


SLEEPS = (("@sleep_on",), ("@wake_all",))


class Machine:
    """Runs threads by the module's text."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.module = module()
        self.events = Events()
        workers = range(1, setting.workers + 1)
        self.words = {CONTROL + LAYOUT[name]: k for k, name in enumerate(HEADER)}
        for worker in workers:
            for name in (*WORDS, *TEAM_WORDS):
                self.words[block_of(worker) + LAYOUT[name]] = len(self.words)
        self.constants = dict(constants(setting))
        self.private: set[str] = set()  # accesses to words that no other thread touches
        if setting.wakes:  # where it makes no difference
            self.private.add("run_shared.asleep")
        if setting.callers == 1:
            self.private |= {"run_shared.last", "run_shared.store last", "move.home"}
            if not setting.grows:
                self.private |= {"run_shared.have", "run_shared.started.narrow"}

    def first(self) -> State:
        started = 0 if self.setting.grows else self.setting.workers
        values = [0] * len(self.words)
        values[0] = started
        memory = Memory.fresh(values, 0)
        memory.blind = frozenset([self.words[CONTROL + LAYOUT["LAST"]]])
        memory.strict = self.strict()
        state = State([], memory)
        for worker in range(1, self.setting.workers + 1):
            # The first sits on the caller's CPU.
            memory.plain[block_of(worker) + LAYOUT["CPU"]] = 0 if worker == 1 else -1 % 2**32
        for caller in range(self.setting.callers):
            state.threads.append(Thread([], caller, self.setting.runs))
        for worker in range(1, started + 1):
            state.threads.append(self.worker(block_of(worker)))
        for _ in state.threads:
            memory.views.append((0,) * len(self.words))
            memory.knows.append(-1)
        for number in range(len(state.threads)):
            self.advance(state, number)
        return state

    def strict(self) -> frozenset[int]:
        """The counts of sleepers, where only `wake` looks at them and in the one order."""
        if self.setting.orders.get("wake.count", "seq_cst") != "seq_cst":
            return frozenset()
        names = ["DONE_SLEEPERS", "JOIN_SLEEPERS", *["IDLE_SLEEPERS"] * self.setting.wakes]
        workers = range(1, self.setting.workers + 1)
        return frozenset(
            self.words[block_of(worker) + LAYOUT[name]] for worker in workers for name in names
        )

    def worker(self, block: int) -> Thread:
        return Thread([Frame("worker", "entry", 0, {"%self": block})])

    def check_end(self, state: State) -> None:
        for thread in state.threads:
            is_idle = [frame.function for frame in thread.frames] == ["worker", "linger"]
            if thread.frames and not is_idle:
                where = " in ".join(frame.function for frame in reversed(thread.frames))
                raise BrokenRuleError(f"nobody can act, and a thread is in {where}")

    # --- one access that others can see ---

    def successors(self, state: State) -> Iterator[State]:
        asleep = {thread for _, thread in state.memory.asleep}
        for number, thread in enumerate(state.threads):
            if thread.frames and number not in asleep:
                yield from self.acted(state, number)

    def acted(self, state: State, number: int) -> Iterator[State]:
        frame = state.threads[number].frames[-1]
        instruction = self.module.functions[frame.function].blocks[frame.block][frame.at]
        for result, memory in self.accesses(state.memory, number, frame, instruction):
            following = state.copy(number, memory)
            self.give(following.threads[number], result)
            if number not in {thread for _, thread in memory.asleep}:
                self.advance(following, number)
            yield following

    def accesses(
        self, memory: Memory, number: int, frame: Frame, instruction: Instruction
    ) -> Iterator[tuple[Any, Memory]]:
        """What an instruction may give, and the memory after it."""
        values = self.values(frame, instruction)
        if instruction.op == "call":
            word = self.words[values[1]]
            if values[0] == "@sleep_on":
                yield from ((None, after) for after in memory.waits(number, word, values[2]))
            else:
                yield None, memory.wakes(number, word)
            return
        order = self.setting.orders.get(instruction.site, instruction.words[-1])
        if instruction.op == "store":
            yield None, memory.store(number, self.words[values[1]], values[0], order)
            return
        word = self.words[values[0]]
        if instruction.op == "load":
            yield from memory.loads(number, word, order)
        elif instruction.op == "cmpxchg":
            failed = instruction.words[-2]
            for there, is_new, after in memory.compare(
                number, word, values[1], values[2], order, failed
            ):
                yield (there, int(is_new)), after
        else:
            there = memory.last(word)
            change = {"add": there + values[1], "sub": there - values[1], "xchg": values[1]}
            yield there, memory.update(number, word, change[instruction.words[1]], order)

    # --- what a thread does by itself ---

    def advance(self, state: State, number: int) -> None:
        """On to the next access that others can see."""
        thread = state.threads[number]
        while True:
            if not thread.frames and not self.again(state, number):
                state.memory.end(number)
                return
            frame = thread.frames[-1]
            instruction = self.module.functions[frame.function].blocks[frame.block][frame.at]
            if not (instruction.site or instruction.args[:1] in SLEEPS):
                self.step(state, number, frame, instruction)
            elif instruction.site in self.private:
                *_, (result, state.memory) = self.accesses(state.memory, number, frame, instruction)
                self.give(thread, result)
            else:
                self.keep(thread)
                return

    def again(self, state: State, number: int) -> bool:
        """A caller between two runs; False after the last."""
        thread, memory = state.threads[number], state.memory
        if thread.caller < 0:
            raise BrokenRuleError("a worker ends")
        cells = [
            (thread.caller, launch, chunk)
            for launch, row in enumerate(self.setting.launches)
            for chunk in range(row.grid)
        ]
        if thread.left < self.setting.runs:
            for cell in cells:
                memory.read(number, cell, self.events)
                if memory.plain[cell] != 1:
                    raise BrokenRuleError(f"a run is over, chunk {cell} ran {memory.plain[cell]} x")
        memory.write(number, RECORD * (thread.caller + 1), self.events)
        for cell in cells:
            memory.write(number, cell, self.events)
            memory.plain[cell] = 0
        if thread.left == 0:
            return False
        thread.left -= 1
        run = RECORD * (thread.caller + 1)
        thread.frames.append(Frame("luminal_run", "entry", 0, {"%run": run}))
        return True

    def values(self, frame: Frame, instruction: Instruction) -> list[Any]:
        registers = frame.registers
        return [
            registers.get(arg, arg) if arg.__class__ is str else arg for arg in instruction.args
        ]

    def keep(self, thread: Thread) -> None:
        """Of the function that comes to a stop, only the registers that are read later."""
        function, block, index, registers = thread.frames.pop()
        code = self.module.functions[function]
        live = code.live[block, index] | code.blocks[block][index].reads()
        kept = {name: value for name, value in registers.items() if name in live}
        thread.frames.append(Frame(function, block, index, kept))

    def give(self, thread: Thread, result: Any) -> None:
        """The result of the instruction where a thread stands; it goes on to the next."""
        function, block, index, registers = thread.frames[-1]
        name = self.module.functions[function].blocks[block][index].result
        if name:
            registers[name] = result
        thread.frames[-1] = Frame(function, block, index + 1, registers)

    def step(self, state: State, number: int, frame: Frame, instruction: Instruction) -> None:
        thread, op = state.threads[number], instruction.op
        values = [GLOBAL.get(value, value) for value in self.values(frame, instruction)]
        if op in ("br", "switch"):
            self.branch(thread, frame, instruction, values)
        elif op == "ret":
            self.leave(thread, values)
        elif op == "call":
            self.call(state, number, values)
        elif op == "alloca":
            self.give(thread, self.allocated(thread, number, frame, instruction))
        elif op == "getelementptr":
            self.give(thread, self.address(instruction, values))
        elif op == "load":
            self.give(thread, self.load(state, number, values[0]))
        elif op == "store":
            self.store(state, number, values[1], values[0])
            self.give(thread, None)
        else:
            self.give(thread, computed(op, instruction.words, values))

    def branch(
        self, thread: Thread, frame: Frame, instruction: Instruction, values: list[Any]
    ) -> None:
        words = instruction.words
        if instruction.op == "switch":
            labels = [word for word in words if not word.isdecimal()]
            cases = [int(word) for word in words if word.isdecimal()]
            target = labels[1 + cases.index(values[0])] if values[0] in cases else labels[0]
        else:
            target = words[0] if not values or values[0] else words[1]
        phis = self.module.functions[frame.function].phis[target]
        sources = [(name, sources[frame.block]) for name, sources in phis]
        chosen = {name: frame.registers.get(source, source) for name, source in sources}
        frame.registers.update(chosen)
        thread.frames[-1] = Frame(frame.function, target, 0, frame.registers)

    def leave(self, thread: Thread, values: list[Any]) -> None:
        thread.frames.pop()
        depth = len(thread.frames)
        thread.stack = {
            place: value for place, value in thread.stack.items() if place >> 32 & 255 < depth
        }
        if thread.frames:
            self.give(thread, values[0] if values else None)

    def call(self, state: State, number: int, values: list[Any]) -> None:
        thread, name, args = state.threads[number], values[0], values[1:]
        if not isinstance(name, str):
            self.kernel(state, number, name - KERNEL, args)
            self.give(thread, None)
        elif name.removeprefix("@") in self.module.functions:
            function = self.module.functions[name.removeprefix("@")]
            self.keep_caller(thread)
            registers = dict(zip(function.params, args, strict=True))
            thread.frames.append(Frame(function.name, "entry", 0, registers))
        elif name == "@start":
            state.threads.append(self.worker(args[0]))
            self.advance(state, state.memory.fork(number))
            self.give(thread, 1)
        elif name == "@list_cpus":
            for place, value in ((8, self.setting.workers + 1), (16, 0), (20, 1)):
                self.store(state, number, GLOBALS + place, value)
            self.give(thread, None)
        elif name in ("@llvm.umax.i64", "@llvm.umin.i64"):
            self.give(thread, (max if "max" in name else min)(args))
        else:
            self.give(thread, SILENT[name])

    def keep_caller(self, thread: Thread) -> None:
        function, block, index, registers = thread.frames[-1]
        code = self.module.functions[function]
        live = code.live[block, index + 1] - {code.blocks[block][index].result}
        kept = {name: value for name, value in registers.items() if name in live}
        thread.frames[-1] = Frame(function, block, index, kept)

    def allocated(self, thread: Thread, number: int, frame: Frame, instruction: Instruction) -> int:
        """Memory of the thread's own: each alloca of a function has its place."""
        names = sorted(
            each.result
            for block in self.module.functions[frame.function].blocks.values()
            for each in block
            if each.op == "alloca"
        )
        depth = len(thread.frames) - 1
        return STACK * (number + 1) + (depth << 32) + (names.index(instruction.result) << 16)

    def address(self, instruction: Instruction, values: list[int]) -> int:
        kind = instruction.words[0]
        base, *indices = values
        first = signed(indices[0], 64)
        if kind not in self.module.structs:
            return base + first * {"i8": 1, "i32": 4, "i64": 8, "ptr": 8}[kind]
        offsets = self.module.structs[kind]
        return base + first * offsets[-1] + (offsets[indices[1]] if len(indices) > 1 else 0)

    # --- memory that is not atomic ---

    def load(self, state: State, number: int, place: int) -> int:
        memory = state.memory
        if place >= STACK:
            return state.threads[number].stack.get(place, 0)
        if place in self.constants:
            if place >= RECORD:
                memory.read(number, place // RECORD * RECORD, self.events)
            return self.constants[place]
        self.check_plain(place)
        memory.read(number, place, self.events)
        return memory.plain.get(place, 0)

    def store(self, state: State, number: int, place: int, value: int) -> None:
        if place >= STACK:
            state.threads[number].stack[place] = value
            return
        self.check_plain(place)
        state.memory.write(number, place, self.events)
        state.memory.plain[place] = value

    def check_plain(self, place: int) -> None:
        if place in self.words:
            raise BrokenRuleError("a word that is atomic elsewhere is read or written without")

    def kernel(self, state: State, number: int, launch: int, args: list[int]) -> None:
        """Chunks of a launch: each reads what the launches before have written."""
        memory, caller = state.memory, args[1] // RECORD - 1
        row = self.setting.launches[launch]
        for before in range(launch) if row.barrier else ():
            for chunk in range(self.setting.launches[before].grid):
                memory.read(number, (caller, before, chunk), self.events)
                if memory.plain[caller, before, chunk] != 1:
                    raise BrokenRuleError("a chunk runs before those that it waits for")
        for chunk in range(args[2], args[3]):
            memory.read(number, (caller, launch, chunk), self.events)
            memory.write(number, (caller, launch, chunk), self.events)
            memory.plain[caller, launch, chunk] += 1
