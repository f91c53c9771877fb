"""The team among other threads and processes: concurrent callers, forks, idling, exit."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from luminal.backends.cpu import team
from tests.backends.cpu.small_programs import chain

# Forking a process that has threads is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def run_and_compare(seed: int, threads: int, runs: int) -> None:
    program = chain(seed)
    prepared = program.prepare(threads)
    for _ in range(runs):
        expected = program.interpret()
        assert 1 <= prepared.run() <= threads
        np.testing.assert_array_equal(program.buffers, expected)


def test_four_callers_at_once() -> None:
    failures: list[BaseException] = []

    def caller(seed: int) -> None:
        try:
            run_and_compare(seed, threads=2 + seed % 2, runs=100)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def child_of_fork(seed: int) -> None:
    run_and_compare(seed, threads=3, runs=5)
    program = chain(seed)
    assert program.run(3) == 3  # workers of its own


def fork_and_wait(seed: int) -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child_of_fork(seed)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_forked_children_start_workers_of_their_own() -> None:
    run_and_compare(1, threads=3, runs=5)
    for seed in range(5):
        fork_and_wait(seed)
    run_and_compare(1, threads=3, runs=5)


def test_fork_while_another_thread_runs() -> None:
    stop = threading.Event()

    def busy() -> None:
        program = chain(7, length=100).prepare(2)
        while not stop.is_set():
            program.run()

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for seed in range(5):
            fork_and_wait(seed)
    finally:
        stop.set()
        thread.join()


def test_spawned_process() -> None:
    process = multiprocessing.get_context("spawn").Process(target=child_of_fork, args=(3,))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_idle_workers_sleep() -> None:
    run_and_compare(2, threads=4, runs=3)
    time.sleep(0.02)  # the spin before sleeping takes 0.2 ms, more on a busy machine
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.01


def test_workers_take_no_signals() -> None:
    run_and_compare(2, threads=4, runs=3)
    main = threading.get_native_id()
    known = {thread.native_id for thread in threading.enumerate()} | {main}
    blocked = []
    for task in os.listdir("/proc/self/task"):
        if int(task) not in known:
            with open(f"/proc/self/task/{task}/status") as file:
                mask = next(line for line in file if line.startswith("SigBlk"))
            blocked.append(int(mask.split()[1], 16) & 0x2)  # SIGINT
    assert sum(mask != 0 for mask in blocked) >= 3


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_a_worker_that_gets_no_cpu_delays_nobody() -> None:
    """About 1.1 times as long as alone; where barriers wait for threads, no run ends at all."""
    command = [sys.executable, "-m", "tests.backends.cpu.beside_run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 4


def test_a_team_on_one_cpu_of_random_programs() -> None:
    """Whoever waits has to give way, and is taken off the CPU anywhere."""
    script = (
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from tests.backends.cpu.small_programs import random_program\n"
        "from tests.backends.cpu.team_check import check\n"
        "for seed in range(60): check(random_program(seed), threads=2 + seed % 3, runs=5)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_exit_with_hot_workers() -> None:
    script = (
        "from tests.backends.cpu.small_programs import chain\n"
        "program = chain(0).prepare(3)\n"
        "for _ in range(50): program.run()\n"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_entry_is_loaded_once() -> None:
    entries = []
    threads = [threading.Thread(target=lambda: entries.append(team.entry())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(entry) for entry in entries}) == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
@pytest.mark.parametrize("is_slow", [False, True])
def test_no_worker_is_pinned_to_a_slow_core(is_slow: bool) -> None:
    """Where all cores but one are slow, which is the caller's, none is left to pin a worker to."""
    script = (
        "import os\n"
        "from luminal.backends.cpu import team\n"
        "from tests.backends.cpu.small_programs import chain\n"
        "slow = sorted(os.sched_getaffinity(0))[1:]\n"
        f"team.slow_core_ids = lambda: slow * {is_slow}\n"
        "chain(0).prepare(2).run()\n"
        "tasks = map(int, os.listdir('/proc/self/task'))\n"
        "print(any(len(os.sched_getaffinity(task)) == 1 for task in tasks))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str(not is_slow), "")
