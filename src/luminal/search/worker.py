"""The process that compiles and times candidates: `python -m luminal.search.worker BACKEND [FD]`.

It answers requests on its standard input until that closes. A search can kill it at any moment:
whatever a candidate does, only this process is lost. `FD` is the shared file of operands.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from typing import Any

import numpy as np

from luminal.backends import registry
from luminal.backends.backend import Backend
from luminal.base import config
from luminal.base.dtypes import dtype_of
from luminal.base.errors import LuminalError
from luminal.base.records import dataclass
from luminal.kernel.tile_ir import Kernel
from luminal.memory.arrays import aligned_empty
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Program
from luminal.runtime.arrays import Array
from luminal.runtime.pipes import answers, receive, send
from luminal.runtime.ranks import Ranked
from luminal.runtime.runner import BoundRunner
from luminal.search.distance import Distance, distance
from luminal.search.messages import Failure, Operands, SharedArray, pack, unpack


@dataclass(slots=True)
class Loaded:
    """A program ready to run."""

    program: Program
    bound: BoundRunner
    outputs: list[Array]


class Worker:
    """The operations that requests of a search name."""

    def __init__(self, backend: str, descriptor: int | None) -> None:
        self.backend = registry.compiling(backend)
        self.descriptor = descriptor
        self.shared: mmap.mmap | None = None
        self.leaves: dict[tuple[str, int], Any] = {}
        self.operands: Operands | None = None
        self.inputs: list[Array] = []
        self.programs: dict[int, Loaded] = {}

    # --- what travels as a reference

    def resolve(self, reference: tuple[Any, ...]) -> Any:
        """The Parameter or State that a reference stands for, one object for each."""
        # Arrays never travel: a program names its leaves, and both sides map one file.
        kind, number, shape, dtype, name = reference
        if (kind, number) not in self.leaves:
            owner = (Parameter if kind == "parameter" else State)(shape, dtype, name=name)
            self.leaves[kind, number] = owner
            self.settle(kind, number)
        return self.leaves[kind, number]

    def settle(self, kind: str, number: int) -> None:
        """Gives a leaf its value from the shared file, if that has one."""
        if self.operands is None:
            return
        leaf = self.leaves[kind, number]
        blocks = self.operands.parameters if kind == "parameter" else self.operands.states
        if number in blocks:
            leaf.set(self.array(blocks[number]))

    def array(self, block: SharedArray) -> Array:
        """A read-only view of a block of the shared file."""
        assert self.shared is not None
        dtype = dtype_of(block.dtype).numpy
        count = int(np.prod(block.shape, dtype=np.int64))
        flat = np.frombuffer(self.shared, dtype, count, block.offset)
        return flat.reshape(block.shape)

    # --- operations

    def build(self, backend: Backend, kernel: Kernel, text: str) -> None:
        """Compiles a kernel into the object cache."""
        backend.compile(kernel, text)

    def open(self, operands: Operands) -> None:
        """Takes the arrays that programs run on."""
        assert self.descriptor is not None
        size = os.fstat(self.descriptor).st_size
        self.shared = mmap.mmap(self.descriptor, size, access=mmap.ACCESS_READ)
        self.operands = operands
        for kind, number in self.leaves:
            self.settle(kind, number)
        self.inputs = []
        for _, block in operands.inputs:
            source = self.array(block)
            input_array = aligned_empty(source.shape, dtype_of(block.dtype))
            input_array[...] = source
            self.inputs.append(input_array)

    def load(self, number: int, program: Program) -> None:
        """Makes a program ready under a number."""
        assert self.operands is not None
        with config.override(LUMINAL_POISON=False):  # its time is no part of a run's
            bound = self.bind(program)
        outputs = self.operands.outputs
        arrays = [aligned_empty(shape, dtype_of(dtype)) for _, shape, dtype in outputs]
        self.programs[number] = Loaded(program, bound, arrays)

    def bind(self, program: Program) -> BoundRunner:
        """A program with the arrays' dims."""
        assert self.operands is not None
        names = [name for name, _ in self.operands.inputs]
        outputs = [name for name, _, _ in self.operands.outputs]
        runner = self.backend.runner(program)
        if isinstance(runner, Ranked):
            runner.stand_alone()
        return runner.bind(self.operands.dims, names, outputs)

    def drop(self, number: int) -> None:
        """Forgets the program of a number."""
        self.programs.pop(number, None)

    def time(self, numbers: list[int], rounds: int, seconds: float) -> list[list[float]]:
        """Seconds of one run, for each program in each round, the programs taking turns.

        A round of a program is as many runs as fill a millisecond; it ends early after `seconds`.
        One run that takes longer says enough of a program that has no rival.
        """
        taken: list[list[float]] = [[] for _ in numbers]
        counts = []
        for number in numbers:
            first = self.timed(number, 1)
            if first > seconds and len(numbers) == 1:
                return [[first]]
            counts.append(max(1, min(1000, int(1e-3 / max(self.timed(number, 1), 1e-7)))))
            if first > seconds:
                counts[-1] = 1
        end = time.perf_counter() + seconds
        for done in range(rounds):
            for k, number in enumerate(numbers):
                taken[k].append(self.timed(number, counts[k]))
            if time.perf_counter() > end and done >= 2:
                break
        return taken

    def timed(self, number: int, count: int) -> float:
        """Seconds of one run by the clock of what computes it, the mean of `count`."""
        loaded = self.programs[number]
        return loaded.bound.seconds(self.inputs, loaded.outputs, count) / count

    def profile(self, number: int, runs: int, slow: float) -> list[list[float]]:
        """Seconds of each launch site in each of some runs; one is enough of a slow program."""
        loaded = self.programs[number]
        self.timed(number, 1)  # the first one makes the derived weights
        if self.timed(number, 1) > slow:
            runs = 1
        seconds: list[list[float]] = loaded.bound.profile(
            self.inputs, loaded.outputs, runs
        ).tolist()
        return seconds

    def run_once(self, number: int) -> None:
        """Runs a program once from the first values of all that runs change; the results stay for
        `elements` and `distance`.
        """
        for leaf in self.changed(number):
            self.settle(*leaf)
        loaded = self.programs[number]
        bound = self.bind(loaded.program) if config.get("LUMINAL_POISON") else loaded.bound
        bound.run(self.inputs, loaded.outputs)

    def results(self, number: int) -> dict[str, Array]:
        """Outputs, and what the run has changed, by `oracle.name_of`."""
        assert self.operands is not None
        outputs = self.operands.outputs
        arrays = self.programs[number].outputs
        by_name = {name: a for (name, _, _), a in zip(outputs, arrays, strict=True)}
        for kind, leaf in self.changed(number):
            by_name[f"state {leaf}"] = self.leaves[kind, leaf].numpy()
        return by_name

    def changed(self, number: int) -> list[tuple[str, int]]:
        """The leaves that runs of a program change: States, and the Parameters that it assigns."""
        buffers = self.programs[number].program.buffers
        owners = {id(b.owner) for b in buffers if b.kind is BufferKind.STATE}
        return [key for key, leaf in self.leaves.items() if key[0] == "state" or id(leaf) in owners]

    def elements(self, number: int, positions: dict[str, list[Array]]) -> dict[str, Array]:
        """Elements of the results, on the grid of the positions given along each dimension."""
        results = self.results(number)
        return {name: results[name][np.ix_(*where)] for name, where in positions.items()}

    def distance(self, number: int, other: int) -> dict[str, Distance]:
        """The distance of two programs' results by name, each run once from the same States."""
        self.run_once(other)
        expected = {name: array.copy() for name, array in self.results(other).items()}
        self.run_once(number)
        results = self.results(number)
        return {name: distance(results[name], expected[name]) for name in expected}


def main() -> None:
    """Answers requests until the search closes the pipe."""
    requests = sys.stdin.buffer
    stream = answers()
    descriptor = int(sys.argv[2]) if len(sys.argv) > 2 else None
    worker = Worker(sys.argv[1], descriptor)
    while True:
        try:
            data = receive(requests)
        except EOFError:
            return
        try:
            operation, arguments = unpack(data, worker.resolve)
            answer = getattr(worker, operation)(*arguments)
        except (LuminalError, MemoryError) as error:
            answer = Failure(str(error))
        send(stream, pack(answer))


if __name__ == "__main__":
    main()
