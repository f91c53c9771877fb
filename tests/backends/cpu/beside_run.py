"""Runs beside another process that has the workers' CPU: prints their time as a multiple of alone.

The worker is of the class that runs only where nobody else does, and a process spins on its CPU.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

from tests.backends.cpu.small_programs import ADD, Prepared, Program

RUNS = 40


def seconds(prepared: Prepared) -> float:
    """The median of runs."""
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        prepared.run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    """One caller and one worker, on two CPUs."""
    caller, worker = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {caller, worker})
    n = 4096
    program = Program(n, [np.ones(n, np.int64) for _ in range(3)])
    for _ in range(100):
        program.launch(ADD, (0, 1, 2), n).launch(ADD, (2, 1, 0), n)
    alone, team = program.prepare(1), program.prepare(2)
    assert team.run() == 2
    own = {thread.native_id for thread in threading.enumerate()}
    for task in map(int, os.listdir("/proc/self/task")):
        if task not in own:
            os.sched_setscheduler(task, os.SCHED_IDLE, os.sched_param(0))
    pin = f"import os; os.sched_setaffinity(0, {{{worker}}})\nwhile True: pass"
    os.sched_setaffinity(0, {caller})
    spinner = subprocess.Popen([sys.executable, "-c", pin])
    try:
        time.sleep(0.5)
        ratios = [seconds(team) / seconds(alone) for _ in range(5)]
    finally:
        spinner.kill()
        spinner.wait()
    print(min(ratios))


if __name__ == "__main__":
    main()
