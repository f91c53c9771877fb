"""What is tried of the team in `team_machine`, and where its words and records lie there."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from unittest.mock import patch

from luminal.backends.cpu import team_ir
from tests.backends.cpu.ir_machine import Module, parsed
from tests.backends.cpu.team_model import Launch

LAYOUT = team_ir._LAYOUT
NAMES = set(
    "linger wake step_out meet join_timed gather claim report launch walk pin place move lend "
    "worker grow luminal_run run_on_team run_shared release".split()
)
CONTROL, GLOBALS, RECORD, STACK, KERNEL = 1 << 24, 1 << 28, 1 << 30, 1 << 40, 1 << 50
HEADER = ("STARTED", "GROWING", "HOME", "LAST")
WORDS = ("STATE", "IDLE_SLEEPERS", "JOIN_SLEEPERS", "CLAIMED")
TEAM_WORDS = ("DONE", "DONE_SLEEPERS", "CALLER_CLAIMED", "ENTERED")
GLOBAL = {"@control": GLOBALS, "@n_cpus": GLOBALS + 8, "@cpus": GLOBALS + 16}
SILENT = {  # what is called of the system, and what it gives
    "@ticks": 0,
    "@nanoseconds": 0,
    "@stands": 1,
    "@sched_getcpu": 0,
    "@pthread_sigmask": 0,
    "@pthread_setaffinity_np": 0,
    "@llvm.memset.p0.i64": 0,
    "@llvm.aarch64.isb": 0,
    "@set_ieee": 0,
    "@read_mode": 0,
    "@write_mode": 0,
}


@dataclass(frozen=True)
class Setting:
    """Callers that run the list `runs` times each, and workers, started at first use or before.

    `orders`: accesses that have another order than the text says.
    """

    launches: tuple[Launch, ...]
    callers: int = 1
    workers: int = 1
    runs: int = 1
    grows: bool = False
    timed: bool = False
    wakes: bool = True
    orders: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def module() -> Module:
    """The text that is compiled, with waits that sleep at once."""
    with patch.dict(LAYOUT, IDLE_SPINS=0, TEAM_SPINS=0, CROWDED_SPINS=0):
        return parsed(team_ir.team_ir("aarch64-unknown-linux-gnu", lambda name: name), NAMES)


def block_of(worker: int) -> int:
    """Where the block of a worker lies; they are numbered from 1."""
    return CONTROL + worker * LAYOUT["BLOCK"]


def constants(setting: Setting) -> Iterator[tuple[int, int]]:
    """Memory that only callers write, between their runs: the records and launch lists."""
    yield GLOBAL["@control"], CONTROL
    for caller in range(setting.callers):
        run = RECORD * (caller + 1)
        launches, times = run + 4096, (run + 8192) * setting.timed
        record = (
            launches,
            len(setting.launches),
            0,
            0,
            0,
            0,
            setting.workers + 1,
            times,
            int(setting.wakes),
            0,
            0,
        )
        yield from zip(range(run, run + 88, 8), record, strict=True)
        for number, launch in enumerate(setting.launches):
            flags = int(launch.barrier) + 2 * launch.serial
            row = (0, flags, KERNEL + number, launch.grid, 0, 0, run, 0)
            places = (launches + 56 * number + at for at in module().structs["%Launch"])
            yield from zip(places, row, strict=False)
