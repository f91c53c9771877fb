"""The team of threads that runs programs: its native entry, loaded once and never unloaded."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal import config, forks
from luminal.backends.cpu import compiler, target
from luminal.backends.cpu.launch_ir import KERNEL, LOOP_BEGIN, LOOP_END, MAX_LOOP_DEPTH, RUN
from luminal.backends.cpu.linker import LoadedCode
from luminal.backends.cpu.team_ir import MAX_WORKERS, team_ir
from luminal.errors import CompileError, VerifyError

Records = NDArray[Any]
"""A structured array of LAUNCH, SLOT_REF or RUN."""

INIT, ENTRY = "luminal_team_init", "luminal_run"

_entry: Callable[[int], int] | None = None
_code: LoadedCode | None = None  # referenced for ever: workers sleep in it
_lock = forks.rlock()


def team_size_default() -> int:
    """The most threads a run may use: LUMINAL_THREADS, else the CPUs this process may use."""
    threads = config.get("LUMINAL_THREADS")
    wanted = len(os.sched_getaffinity(0)) if threads is None else threads
    return min(wanted, MAX_WORKERS + 1)


def entry() -> Callable[[int], int]:
    """The native entry: takes the address of a RUN record, returns the size of the team.

    Raises CompileError where the operating system lacks what the team needs.
    """
    global _entry, _code
    if _entry is None:
        with _lock:
            if _entry is None:
                # Plain x86-64: one object serves every target, and it has no vectors to gain.
                plain = target.cap(target.detect(), "baseline")
                _code = compiler.build(team_ir(), plain, (INIT, ENTRY))
                _initialize(_code.symbols[INIT])
                prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
                _entry = prototype(_code.symbols[ENTRY])
    return _entry


def execute(record: int) -> int:
    """Run the program of the RUN record at this address; how many threads ran it.

    The record and all it points to must stay as they are until this returns.
    """
    return entry()(record)


def run_record(
    launches: Records,
    slot_refs: Records,
    table: NDArray[np.uint64],
    max_threads: int,
    scratch: int = 0,
    scratch_stride: int = 0,
    times: int = 0,
    wakes: bool = True,
) -> Records:
    """A RUN record (shape (1,)) over these arrays, which the caller keeps alive.

    `scratch` is an address with `scratch_stride` bytes for each of `max_threads` members, `times`
    one of an i64 for each launch. `wakes`: also workers that sleep join.
    """
    return np.array(
        [
            (
                launches.ctypes.data,
                len(launches),
                table.ctypes.data,
                slot_refs.ctypes.data,
                scratch,
                scratch_stride,
                max_threads,
                times,
                wakes,
            )
        ],
        dtype=RUN,
    )


def verify(launches: Records, slot_refs: Records, table_entries: int) -> None:
    """Check what the driver takes for granted. Raises VerifyError naming the row."""
    open_loops: list[int] = []
    for row, launch in enumerate(launches):
        if launch["kind"] == LOOP_BEGIN:
            open_loops.append(row)
            if len(open_loops) > MAX_LOOP_DEPTH:
                raise VerifyError(f"launch {row}: loops nest deeper than {MAX_LOOP_DEPTH}")
        elif launch["kind"] == LOOP_END:
            begin = open_loops.pop() if open_loops else -1
            if launch["jump"] != begin or launches[begin]["jump"] != row + 1:
                raise VerifyError(f"launch {row}: loop end and begin do not point at each other")
        elif launch["kind"] == KERNEL:
            trips = [1, *(int(launches[begin]["grid"]) for begin in open_loops)]
            start, stop = launch["slot_start"], launch["slot_start"] + launch["n_slots"]
            if not 0 <= start <= stop <= len(slot_refs):
                raise VerifyError(f"launch {row}: slots {start}..{stop} of {len(slot_refs)}")
            for ref in slot_refs[start:stop]:
                _verify_slot(row, ref, len(trips), table_entries)
        else:
            raise VerifyError(f"launch {row}: no kind {launch['kind']}")
    if open_loops:
        raise VerifyError(f"launch {open_loops[-1]}: loop without an end")


def _verify_slot(row: int, ref: Any, depths: int, table_entries: int) -> None:
    if not 0 <= ref["depth"] < depths:
        raise VerifyError(f"launch {row}: slot of loop depth {ref['depth']}, {depths - 1} are open")
    if ref["modulus"] < 1 or ref["offset"] < 0:
        raise VerifyError(f"launch {row}: slot {ref} needs a modulus >= 1 and an offset >= 0")
    if not 0 <= ref["base"] <= table_entries - ref["modulus"]:
        raise VerifyError(f"launch {row}: slot {ref} outside the table of {table_entries}")


def _initialize(address: int) -> None:
    if ctypes.CFUNCTYPE(ctypes.c_int32)(address)() != 0:
        raise CompileError("cpu backend: the team needs Linux 4.14 (madvise MADV_WIPEONFORK)")
