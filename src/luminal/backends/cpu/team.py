"""The team of threads that runs programs: its native entry, loaded once and never unloaded."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luminal.backends.cpu import compiler, systems, target
from luminal.backends.cpu.launch_ir import (
    KERNEL,
    LAUNCH,
    LOOP_BEGIN,
    LOOP_END,
    MAX_LOOP_DEPTH,
    RUN,
)
from luminal.backends.cpu.linker import LoadedCode
from luminal.backends.cpu.team_arrays import (
    AGAIN,
    ALIGNED,
    ALIKE,
    APART,
    C_CONTIGUOUS,
    WRITEABLE,
    ArrayRows,
)
from luminal.backends.cpu.team_entry import ENTER, POINT, builtin
from luminal.backends.cpu.team_ir import MAX_WORKERS, team_ir
from luminal.backends.cpu.team_systems import system
from luminal.base import config, forks
from luminal.base.dtypes import int64
from luminal.base.errors import CompileError, VerifyError
from luminal.base.host import core_ids, slow_core_ids
from luminal.memory.arrays import Array
from luminal.runtime.recognition import Familiar, Recognized

Records = NDArray[Any]
"""A structured array of LAUNCH, SLOT_REF or RUN."""

NO_PLACES = np.zeros((0, 2), np.int64)

INIT = "luminal_team_init"

FRESH = 0.01
"""Seconds for which the CPUs that a process may use are not asked for again: that takes 2 us."""


class Native(NamedTuple):
    """What Python calls of the team's code, which is never unloaded: workers sleep in it."""

    enter: Callable[[int], int]
    point: Callable[[int, Sequence[Array], Sequence[Array]], bool]
    alike: Callable[[int], Callable[[Mapping[Any, Any]], Recognized]]
    again: Callable[[int], Callable[[Mapping[Any, Any], Sequence[Array]], Recognized]]
    apart: Callable[[int, int, list[Array], int, int, list[Array]], bool]
    code: LoadedCode


_native: Native | None = None
_lock = forks.rlock()
_size = (0.0, -1, 0)  # until when, with which flags, how many


def team_size_default() -> int:
    """The most threads a run may use: LUMINAL_THREADS, else the CPUs this process may use."""
    global _size
    until, changes, size = _size
    now = monotonic()
    if now >= until or changes != config.changes:
        changes, threads = config.changes, config.get("LUMINAL_THREADS")
        wanted = len(core_ids()) if threads is None else threads
        size = min(wanted, MAX_WORKERS + 1)
        _size = (now + FRESH, changes, size)
    return size


def entry() -> Callable[[int], int]:
    """The native entry: takes the address of a RUN record, returns the size of the team.

    Raises CompileError where the operating system lacks what the team needs.
    """
    return native().enter


def native() -> Native:
    """The team's code, loaded at first use. Raises CompileError as `entry` does."""
    global _native
    if _native is None:
        with _lock:
            if _native is None:
                _native = _loaded()
    return _native


def _loaded() -> Native:
    # The lowest level: one object serves every target, and it has no vectors to gain.
    plain = target.cap(target.detect(), target.BASELINE)
    names = (ENTER, POINT, ALIKE, AGAIN, APART)
    text = team_ir(plain.triple, systems.find)
    code = compiler.build(text, plain, (INIT, *names))
    _initialize(code.symbols[INIT])
    if not system(plain.triple, systems.find).wipes:
        forks.on_fork(partial(_initialize, code.symbols[INIT]))
    enter, point, alike, again, apart = (builtin(name, code.symbols[name]) for name in names)
    code_of_team = Native(enter(0), point(0), alike, again, apart(0), code)
    _try(code_of_team)
    return code_of_team


def _try(code: Native) -> None:
    """Raises CompileError where arrays are not laid out as these functions take them to be."""
    # Native code reads NumPy's arrays by offsets of its ABI; if another NumPy lays them out
    # otherwise, that must be an error at load time, not a wrong address in a run.
    none, table = np.zeros(0, LAUNCH), np.zeros(2, np.uint64)
    record = run_record(none, none, table, 1, places=np.array([[0, 0], [1, 1]]))
    array = np.arange(8)[3:]
    code.point(record.ctypes.data, [table], [array])
    rows = ArrayRows([Familiar("x", int64, (5,), 8)], C_CONTIGUOUS | ALIGNED)
    alike = code.alike(rows.calls)
    recognized = alike({"x": array}), alike({"x": array[::2]})
    if table.tolist() != [table.ctypes.data, array.ctypes.data] or recognized != ([array], False):
        raise CompileError("cpu backend: arrays of this NumPy are not laid out as those of 1 and 2")


class Calls(NamedTuple):
    """Recognized calls with arrays of these kinds: see `Recognizer`. `again` is native all through:
    the run's record has to be ready. The functions read memory that `rows` holds.
    """

    inputs: Callable[[Mapping[Any, Any]], Recognized]
    outputs: Callable[[Mapping[Any, Any], list[Array]], Recognized]
    again: Callable[[Mapping[Any, Any], Sequence[Array]], Recognized]
    rows: tuple[ArrayRows, ArrayRows]


def calls(inputs: Sequence[Familiar], outputs: Sequence[Familiar], record: int) -> Calls:
    """The recognizers of calls with such arrays, for a run of the record at this address."""
    read = C_CONTIGUOUS | ALIGNED
    taken, written_rows = ArrayRows(inputs, read, record), ArrayRows(outputs, read | WRITEABLE)
    code = native()
    alike = code.alike(written_rows.calls)

    def written(out: Mapping[Any, Any], used: list[Array]) -> Recognized:
        arrays = alike(out)
        return arrays and code.apart(*written_rows.where, arrays, *taken.where, used) and arrays

    return Calls(code.alike(taken.calls), written, code.again(taken.calls), (taken, written_rows))


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
    places: NDArray[np.int64] = NO_PLACES,
) -> Records:
    """A RUN record (shape (1,)) over these arrays, which the caller keeps alive.

    `scratch` is an address with `scratch_stride` bytes for each of `max_threads` members, `times`
    one of an i64 for each launch. `wakes`: also workers that sleep join. `places`: an (entry of the
    table, number of an array) for each array that `point` is to write there.
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
                places.ctypes.data,
                len(places),
                0,
                0,
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
    slow = bytearray(128)
    for core in slow_core_ids():
        slow[core // 8] |= 1 << core % 8
    if ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)(address)(bytes(slow)) != 0:
        raise CompileError(
            "cpu backend: no memory for the team of threads; on Linux it needs 4.14 (madvise "
            "MADV_WIPEONFORK)"
        )
