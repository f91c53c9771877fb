"""A Program's launch list as rows for the native driver, with numbers filled in per dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.backends.cpu.launch_ir import (
    BARRIER,
    KERNEL,
    LAUNCH,
    LOOP_BEGIN,
    LOOP_END,
    MAX_LOOP_DEPTH,
    SERIAL,
    SLOT_REF,
)
from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.kernel.scratch import scratch_bytes
from luminal.program.launch_list import (
    CollectiveLaunch,
    KernelLaunch,
    Launch,
    LoopLaunch,
    Operand,
    Program,
    barriers,
)
from luminal.program.quantities import Quantities
from luminal.shape.expression import Expression, Symbol, const

Records = NDArray[Any]
_WORDS, _SLOT_WORDS = LAUNCH.itemsize // 8, SLOT_REF.itemsize // 8
NO_COLLECTIVES: Mapping[CollectiveLaunch, int] = {}
CACHE_LINES = 128  # bytes between the scratch of two threads: a pair of lines, fetched together


@dataclass(frozen=True, slots=True)
class BoundRows:
    """One array of words, and in it the rows with the numbers of one binding of dims."""

    words: NDArray[np.int64]
    launches: Records
    slot_refs: Records
    params: NDArray[np.int64]  # where the launches' `dims` point


class LaunchRows:
    """The rows of one launch list. `functions[k]` is the address of kernel k's code, and
    `collectives` have those of what starts collectives and waits for them.
    """

    def __init__(
        self,
        program: Program,
        launches: tuple[Launch, ...],
        functions: Sequence[int],
        quantities: Quantities,
        collectives: Mapping[CollectiveLaunch, int] = NO_COLLECTIVES,
    ) -> None:
        self._program = program
        self._collectives = collectives
        self._functions = functions
        self._quantities = quantities
        self._launches: list[tuple[int, ...]] = []
        self._slots: list[tuple[int, ...]] = []
        self._params: list[int] = []  # numbers of Expressions
        self._scratch: set[int] = set()  # numbers of Expressions
        self._depth = 0  # of Loops
        self._add(launches)
        self._words, self._positions, self._numbers = self._template()

    def __len__(self) -> int:
        return len(self._launches)

    def make(self) -> BoundRows:
        """Rows to be filled."""
        words = self._words.copy()
        slots = len(self._launches) * _WORDS
        params = slots + len(self._slots) * _SLOT_WORDS
        rows = BoundRows(
            words,
            words[:slots].view(LAUNCH),
            words[slots:params].view(SLOT_REF),
            words[params:],
        )
        # The template holds positions, since each copy of the rows has its parameters at another
        # address.
        rows.launches["dims"] = rows.params.ctypes.data + 8 * rows.launches["dims"]
        return rows

    def fill(self, rows: BoundRows, values: Sequence[int]) -> None:
        """Writes the values of all quantities where the rows ask for them."""
        rows.words[self._positions] = np.array(values, np.int64)[self._numbers]

    @property
    def template(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The words of all rows before `fill`, which of them it writes, and with which quantities.
        A launch has the position of its parameters where a copy has their address.
        """
        return self._words, self._positions, self._numbers

    @property
    def params(self) -> int:
        """The words of parameters, which come last."""
        return len(self._params)

    @property
    def scratch(self) -> tuple[int, ...]:
        """The quantities of which the largest is the bytes of scratch that a thread needs."""
        return tuple(sorted(self._scratch))

    def scratch_stride(self, values: Sequence[int]) -> int:
        """Bytes of scratch for each thread."""
        most = max([values[number] for number in self._scratch], default=0)
        return -(-most // CACHE_LINES) * CACHE_LINES

    def _template(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The words of all rows, and which of them hold an Expression's number: (words, at, of)."""
        launches = np.array(self._launches, LAUNCH).view(np.int64)
        slots = np.array(self._slots, SLOT_REF).view(np.int64)
        params = np.array(self._params, np.int64)
        words = np.concatenate([launches, slots, params])
        grids = np.arange(len(self._launches)) * _WORDS + _word(LAUNCH, "grid")
        first = len(launches) + np.arange(len(self._slots)) * _SLOT_WORDS
        of_slots = [first + _word(SLOT_REF, name) for name in ("offset", "stride", "start")]
        rest = np.arange(len(launches) + len(slots), len(words))
        positions = np.concatenate([grids, *of_slots, rest])
        # A run with other dims is one indexed copy: what every word needs is found once, here.
        return words, positions, words[positions]

    def _add(self, launches: tuple[Launch, ...]) -> None:
        for launch, barrier in zip(launches, barriers(self._program, launches), strict=True):
            flags = BARRIER if barrier else 0
            if isinstance(launch, LoopLaunch):
                self._add_loop(launch, flags)
            elif isinstance(launch, KernelLaunch):
                self._add_kernel(launch, flags)
            else:
                self._add_call(launch, flags)

    def _add_loop(self, launch: LoopLaunch, flags: int) -> None:
        # The row is kept free, since where the Loop ends is known after its body only.
        begin, count = len(self._launches), self._quantities.add(launch.trips)
        self._launches.append(())
        self._depth += 1
        if self._depth > MAX_LOOP_DEPTH:
            raise CompileError(f"Loops nest deeper than {MAX_LOOP_DEPTH}; make one of several")
        self._add(launch.body)
        self._depth -= 1
        end = len(self._launches)
        self._launches[begin] = (LOOP_BEGIN, flags, 0, count, 0, 0, 0, end + 1)
        self._launches.append((LOOP_END, 0, 0, self._quantities.add(const(0)), 0, 0, 0, begin))

    def _add_kernel(self, launch: KernelLaunch, flags: int) -> None:
        function = self._functions[launch.kernel]
        call = self._program.kernels[launch.kernel].call
        # Python code runs on the caller's thread, the only one of the team that Python knows.
        if call is not None and call.is_python:
            flags |= SERIAL
        self._add_row(function, flags, launch.chunks, launch.operands, launch.params)
        # A set: most kernels need none, and equal Expressions have one number.
        self._scratch.add(self._quantities.add(self._scratch_bytes(launch)))

    # The list is not cut at a collective: its row calls back, as that of a kernel in Python does.
    # What needs nothing of it is run by the other members of the team meanwhile.
    def _add_call(self, launch: CollectiveLaunch, flags: int) -> None:
        function = self._collectives[launch]
        self._add_row(function, flags | SERIAL, const(1), launch.operands, launch.sizes)

    def _add_row(
        self,
        function: int,
        flags: int,
        chunks: Expression,
        operands: Sequence[Operand],
        params: Sequence[Expression],
    ) -> None:
        add = self._quantities.add
        grid, start, numbers = add(chunks), len(self._slots), len(self._params)
        for operand in operands:
            offset, stride = add(operand.offset), add(operand.stride)
            row = operand.entry, operand.depth, offset, operand.modulus, stride
            self._slots.append((*row, add(operand.start)))
        self._params += map(add, params)
        self._launches.append((KERNEL, flags, function, grid, len(operands), start, numbers, 0))

    def _scratch_bytes(self, launch: KernelLaunch) -> Expression:
        kernel = self._program.kernels[launch.kernel]
        values: Mapping[Symbol, Expression] = dict(zip(kernel.params, launch.params, strict=True))
        return scratch_bytes(kernel).substitute(values)


def _word(record: np.dtype[Any], name: str) -> int:
    """Which 8 bytes of a record are this field."""
    assert record.fields is not None
    return record.fields[name][1] // 8
