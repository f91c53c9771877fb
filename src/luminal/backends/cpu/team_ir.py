"""The team runtime as LLVM IR: the threads that run a launch list.

`@luminal_run(run)` walks a launch list on the calling thread and on the idle workers it could
lease. Nothing here allocates, fails or waits for another run, and a run waits for chunks, not for
threads: a worker that is late, asleep or taken off its CPU by others is waited for only while it
holds chunks.

*Memory.* One control area, mapped at start: a header, then one block per worker. Words written by
different threads lie `LINE` bytes apart. The area is wiped in a forked child (MADV_WIPEONFORK), or
the child maps another one where a system wipes none. So it finds zero workers and starts its own at
first use. An area is never unmapped and this module is never unloaded: workers sleep in both.

*Runs.* A worker's STATE says whose it is. A caller takes it from IDLE to LEASED, writes what the
run is, and OFFERs. The worker goes IN, and steps OUT whenever it waits and when it is through. Only
who is IN looks at anything of the run, claims chunks or changes the team's words; so when all
chunks are done the caller takes back workers that are OUT, and offers that nobody has taken up,
by compare-and-swap, and returns. A worker that then comes from its wait finds the swap from OUT to
IN refused: only it sets OUT, so no later run can be taken for the old one. What it still touches
are words of the area, which stay. `tests/backends/cpu/team_model.py` tries all orders of actions.

*Words of a team* lie in the block of its first worker. Chunks are numbered on from the team of that
block before (`START`), never anew: a wait that a run has left behind finds itself reached.

*Waking.* A waker changes the word (seq_cst), then reads the count of sleepers; a sleeper raises
the count, then sleeps unless the word has changed (`sleep_on`, a futex on Linux). Either the waker
sees the sleeper or the kernel sees the new value: no wake is lost. To wake a thread may take longer
than a small run: such a run takes only workers that still spin, and where it follows another one
closely (a loop of small runs) it rouses those that sleep for the next.

*Placement.* Linux likes to wake a worker on its caller's CPU, where both run at half speed. So
there workers are pinned while there are CPUs enough, and a caller found on its worker's CPU swaps
it with the one no worker has (`home`). Where another process has taken the CPU of a worker that
holds chunks, the caller does not wait until the kernel gives it back, which takes milliseconds: the
worker goes to that one CPU too, which is the caller's, and the caller sleeps (`lend`).
"""

from __future__ import annotations

from collections.abc import Callable
from string import Template

from luminal.backends.cpu.launch_ir import MAX_LOOP_DEPTH
from luminal.backends.cpu.launch_walk import WALK_IR
from luminal.backends.cpu.team_arrays import ARRAYS_IR
from luminal.backends.cpu.team_entry import ENTRY_IR, OBJECT_BYTES
from luminal.backends.cpu.team_machines import MACHINES
from luminal.backends.cpu.team_runs import RUNS_IR
from luminal.backends.cpu.team_systems import system
from luminal.backends.cpu.team_waits import WAITS_IR
from luminal.backends.cpu.team_workers import WORKERS_IR

MAX_WORKERS = 255
LINE = 128  # bytes: a pair of cache lines, which the prefetcher fetches together
BLOCK = 32 * LINE

_LAYOUT = {
    # Bytes into the header.
    "STARTED": 0 * LINE,
    "GROWING": 1 * LINE,
    "HOME": 2 * LINE,
    "LAST": 3 * LINE,
    # Bytes into a worker's block: what it is offered, ...
    "STATE": 0 * LINE,
    "MEMBER": 0 * LINE + 4,
    "TEAM": 0 * LINE + 8,
    "IDLE_SLEEPERS": 1 * LINE,
    "JOIN_SLEEPERS": 2 * LINE,
    "CPU": 3 * LINE,
    "THREAD": 3 * LINE + 8,
    "CLAIMED": 4 * LINE,
    # ... and the words of the team whose first worker it is.
    "RUN": 5 * LINE,
    "SIZE": 5 * LINE + 8,
    "SPINS": 5 * LINE + 16,
    "START": 5 * LINE + 24,
    "DONE": 6 * LINE,
    "DONE_SLEEPERS": 7 * LINE,
    "CALLER_CLAIMED": 8 * LINE,
    "ENTERED": 9 * LINE,
    "SHARES": 10 * LINE,  # addresses of the members' claims, the caller's first
    "BLOCK": BLOCK,
    "AREA": BLOCK * (MAX_WORKERS + 1),
    "MAX_WORKERS": MAX_WORKERS,
    "ITERATIONS": MAX_LOOP_DEPTH + 1,
    # What STATE may be: a wiped block is idle.
    "IDLE": 0,
    "LEASED": 1,
    "OFFERED": 2,
    "IN": 3,
    "OUT": 4,
    # Ticks of the clock, 2 to 4 of them a nanosecond: idle workers and members that wait sleep
    # after about 0.05 ms.
    "IDLE_SPINS": 150_000,
    "TEAM_SPINS": 150_000,
    # With more members than CPUs, whoever is awaited may need this very CPU.
    "CROWDED_SPINS": 8_000,
    # Less than an idle worker spins.
    "CLOSELY": 130_000,
    "OBJECT_BYTES": OBJECT_BYTES,
    "CLASS_AT": OBJECT_BYTES - 8,
}

_DECLARATIONS = """
@control = internal global ptr null
@cpus = internal global [1024 x i32] zeroinitializer
@n_cpus = internal global i32 0
@slow = internal global [128 x i8] zeroinitializer

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
$MACHINE"""


def team_ir(triple: str, find: Callable[[str], object], python: bool = True) -> str:
    """The module's text for a machine. It exports `luminal_team_init(slow)`, `luminal_run(run)` and
    what `python` calls (`team_entry`). `find` gives None for functions that the system lacks.
    """
    here, machine = system(triple, find), MACHINES[triple.split("-")[0]]
    texts = (WAITS_IR, WALK_IR, WORKERS_IR, RUNS_IR, here.functions)
    entries = (ENTRY_IR, ARRAYS_IR) if python else ()
    template = Template(_DECLARATIONS + "".join((*texts, *entries)))
    return template.substitute(
        _LAYOUT, HERE=here.here, MASK=here.mask, UNMASK=here.unmask, **machine
    )
