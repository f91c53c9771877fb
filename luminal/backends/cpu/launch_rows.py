"""A Program's launch list as rows for the native driver, with numbers filled in per dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from luminal.errors import CompileError
from luminal.kernel.scratch import scratch_offsets
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Program, barriers
from luminal.program.quantities import Quantities
from luminal.runtime.report import KernelRow
from luminal.shape.expression import Expression, Symbol, const

Records = NDArray[Any]
CACHE_LINES = 128  # bytes between the scratch of two threads: a pair of lines, fetched together


@dataclass(frozen=True, slots=True)
class Filled:
    """Rows whose numbers hold for one binding of dims; `params` is where their `dims` point."""

    launches: Records
    slot_refs: Records
    params: NDArray[np.int64]
    scratch_stride: int
    flops: NDArray[np.float64]  # of each launch site, all its trips, as bytes
    bytes: NDArray[np.float64]
    chunks: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Site:
    """One launch site: the numbers (in Quantities) of what reports and schedules ask for."""

    label: str
    kernel: int
    trips: int
    chunks: int
    flops: int  # of all trips, as bytes
    bytes: int
    scratch: int


class LaunchRows:
    """The rows of one launch list. `functions[k]` is the address of kernel k's code."""

    def __init__(
        self,
        program: Program,
        launches: tuple[Launch, ...],
        functions: Sequence[int],
        quantities: Quantities,
    ) -> None:
        self._program = program
        self._functions = functions
        self._quantities = quantities
        self._launches: list[tuple[int, ...]] = []
        self._slots: list[tuple[int, ...]] = []
        self._params: list[int] = []  # numbers of Expressions
        self._sites: list[_Site] = []
        self._depth = 0  # of Loops
        self._add(launches, const(1))
        self._launch_rows = np.array(self._launches, LAUNCH)
        self._slot_rows = np.array(self._slots, SLOT_REF)
        # Where rows hold the number of an Expression until `fill` looks its value up.
        self._grids = np.array([row[3] for row in self._launches], np.int64)
        self._offsets = np.array([row[2] for row in self._slots], np.int64)
        self._strides = np.array([row[4] for row in self._slots], np.int64)
        self._param_numbers = np.array(self._params, np.int64)
        self._site_numbers = (
            np.array([[s.flops, s.bytes, s.scratch, s.chunks] for s in self._sites], np.int64)
            .reshape(-1, 4)
            .T
        )

    def __len__(self) -> int:
        return len(self._launches)

    def fill(self, values: Sequence[int]) -> Filled:
        """The rows for the values of all quantities."""
        numbers = np.array(values, np.int64)
        launches, slots = self._launch_rows.copy(), self._slot_rows.copy()
        params = numbers[self._param_numbers]
        launches["grid"] = numbers[self._grids]
        launches["dims"] = params.ctypes.data + 8 * launches["dims"]
        slots["offset"] = numbers[self._offsets]
        slots["stride"] = numbers[self._strides]
        flops, moved, scratch, chunks = numbers[self._site_numbers].astype(np.float64)
        stride = -(-int(scratch.max(initial=0)) // CACHE_LINES) * CACHE_LINES
        return Filled(launches, slots, params, stride, flops, moved, chunks)

    def report(self, values: Sequence[int]) -> tuple[KernelRow, ...]:
        """One row per launch site."""
        return tuple(
            KernelRow(
                site.label,
                site.kernel,
                values[site.trips],
                values[site.chunks],
                values[site.flops],
                values[site.bytes],
            )
            for site in self._sites
        )

    def _add(self, launches: tuple[Launch, ...], trips: Expression) -> None:
        for launch, barrier in zip(launches, barriers(self._program, launches), strict=True):
            flags = BARRIER if barrier else 0
            if isinstance(launch, KernelLaunch):
                self._add_kernel(launch, flags, trips)
            else:
                self._add_loop(launch, flags, trips)

    def _add_loop(self, launch: LoopLaunch, flags: int, trips: Expression) -> None:
        begin, count = len(self._launches), self._quantities.add(launch.trips)
        self._launches.append(())
        self._depth += 1
        if self._depth > MAX_LOOP_DEPTH:
            raise CompileError(f"Loops nest deeper than {MAX_LOOP_DEPTH}; make one of several")
        self._add(launch.body, trips * launch.trips)
        self._depth -= 1
        end = len(self._launches)
        self._launches[begin] = (LOOP_BEGIN, flags, 0, count, 0, 0, 0, end + 1)
        self._launches.append((LOOP_END, 0, 0, self._quantities.add(const(0)), 0, 0, 0, begin))

    def _add_kernel(self, launch: KernelLaunch, flags: int, trips: Expression) -> None:
        add = self._quantities.add
        chunks, start, params = add(launch.chunks), len(self._slots), len(self._params)
        for operand in launch.operands:
            offset, stride = add(operand.offset), add(operand.stride)
            self._slots.append((operand.entry, operand.depth, offset, operand.modulus, stride))
        self._params += map(add, launch.params)
        function = self._functions[launch.kernel]
        call = self._program.kernels[launch.kernel].call
        if call is not None and call.is_python:
            flags |= SERIAL
        self._launches.append(
            (KERNEL, flags, function, chunks, len(launch.operands), start, params, 0)
        )
        self._sites.append(
            _Site(
                label=launch.label,
                kernel=launch.kernel,
                trips=add(trips),
                chunks=chunks,
                flops=add(launch.flops * trips),
                bytes=add(launch.bytes * trips),
                scratch=add(self._scratch_bytes(launch)),
            )
        )

    def _scratch_bytes(self, launch: KernelLaunch) -> Expression:
        kernel = self._program.kernels[launch.kernel]
        values: Mapping[Symbol, Expression] = dict(zip(kernel.params, launch.params, strict=True))
        return scratch_offsets(kernel)[-1].substitute(values)
