"""A rank fails: all ends, soon, with an error that names rank and operation, and nothing stays.

The deadline of a wait is 2 s here where a rank is stuck, and 20 s, which no test takes, elsewhere.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from luminal.base import host
from luminal.runtime.collectives.mpich import wheel_file
from tests.distributed.running import Ended, Ranks, needs_mpi, under_mpiexec
from tests.serve.process import words_of

pytestmark = needs_mpi()

PROGRAM = str(Path(__file__).with_name("failing.py"))
GRADIENT = "all_reduce of 'gradient of w' of layer 'layers.0.mlp'"

REPEATS = [pytest.param(number, marks=pytest.mark.long if number else ()) for number in range(20)]
"""Each failure once, and 19 times more where there is time: what goes wrong here depends on it."""


def launched(how: str, count: int = 2, **variables: str) -> Ranks:
    command = [sys.executable, "-m", "luminal", "launch", "-n", str(count), PROGRAM, how]
    return Ranks(command, **{"LUMINAL_COLLECTIVE_TIMEOUT": "20", **variables})


def ended(ranks: Ranks, seconds: float = 10) -> Ended:
    """The program once rank 0 is in its loop; at most so many seconds later it has to be gone."""
    ranks.line("rank 0 is ready")
    ready = time.monotonic() - ranks.start
    assert not ranks.shared(), "memory that has a name would stay"
    end = ranks.end(seconds=40)
    assert not end.left, f"processes are left: {end}"
    assert end.seconds - ready < seconds, end
    return end


def test_without_the_hook_an_exception_hangs_all() -> None:
    """This is what the rest is for. Plain mpi4py; the exception of rank 1 ends nobody."""
    text = (
        "from mpi4py import MPI\nimport time\n"
        "if MPI.COMM_WORLD.rank == 1:\n    raise ZeroDivisionError('of rank 1')\n"
        "print('rank 0 is ready', flush=True)\nMPI.COMM_WORLD.Barrier()"
    )
    ranks = under_mpiexec(2, "-c", text, MPI4PY_LIBMPI=str(wheel_file("libmpi.so.12")))
    ranks.line("rank 0 is ready")
    time.sleep(2)
    assert ranks.process.poll() is None
    shared = ranks.shared()
    ranks.kill()
    assert not ranks.end().left
    for path in shared:  # which plain MPICH leaves
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("again", REPEATS)
@pytest.mark.parametrize(
    ("how", "status", "text"),
    [
        pytest.param("exception", 1, "ZeroDivisionError: of rank 1", marks=pytest.mark.long),
        pytest.param("exit", 3, "rank 1 of 2 ends all: sys.exit(3)", marks=pytest.mark.long),
        pytest.param(
            "memory", 1, "MemoryError: Unable to allocate 1.00 EiB", marks=pytest.mark.long
        ),
        ("killed", 137, "luminal: rank 1 computes (its last: all_reduce of 'loss 2'): process"),
        pytest.param("thread", 1, "ZeroDivisionError: of rank 1", marks=pytest.mark.long),
        pytest.param(
            "program",
            1,
            "first in line 2: rank 0 has 'b = 2', rank 1 has 'b = 3'",
            marks=pytest.mark.long,
        ),
    ],
)
def test_failure(how: str, status: int, text: str, again: int) -> None:
    end = ended(launched(how))
    assert end.status == status, end
    assert text in end.err + end.out
    if how in ("exception", "memory", "thread"):
        assert "rank 1 of 2:\n" in end.err
        assert 'failing.py", line' in end.err
        assert "runpy" not in end.err
        assert "rank 1 of 2 ends all: " in end.err


@pytest.mark.parametrize("again", REPEATS)
@pytest.mark.parametrize(
    "how", ["ended", *(pytest.param(how, marks=pytest.mark.long) for how in ("exception", "exit"))]
)
def test_failure_under_mpiexec_alone(how: str, again: int) -> None:
    """`init` has installed the hook. Of sys.exit it hears nothing: the others ask, and are told."""
    end = ended(under_mpiexec(2, PROGRAM, how, LUMINAL_COLLECTIVE_TIMEOUT="20"))
    assert end.status != 0
    if how == "exception":  # by the hook, and not only when the others have asked
        assert "rank 1 of 2:\nTraceback" in end.err
        assert "rank 1 of 2 ends all: ZeroDivisionError: of rank 1" in end.err
    else:
        assert f"rank 0: {GRADIENT} waits for ranks that will not come: rank 1 has ended" in end.err
        assert "(its last: all_reduce of 'loss 2')" in end.err


@pytest.mark.parametrize("again", REPEATS)
@pytest.mark.parametrize(
    ("how", "rank"),
    [
        ("stuck", "rank 1 computes (its last: all_reduce of 'loss 2')"),
        ("stopped", "rank 1 does not answer"),
    ],
)
def test_a_stuck_rank_is_named_at_the_deadline(how: str, rank: str, again: int) -> None:
    end = ended(launched(how, LUMINAL_COLLECTIVE_TIMEOUT="2"), seconds=6)
    assert end.status == 1
    assert f"CollectiveTimeoutError: rank 0: {GRADIENT} has waited 2 s; not come: {rank}" in end.err


@pytest.mark.long
def test_a_rank_that_ends_before_it_is_one() -> None:
    """MPI itself waits for all ranks to come, and for ever."""
    text = (
        "import os\nif os.environ['PMI_RANK'] == '1':\n    raise SystemExit(1)\n"
        "import luminal as lm\nprint('rank 0 is ready', flush=True)\n"
        "lm.distributed.init(timeout=0.2)"
    )
    end = ended(under_mpiexec(2, "-c", text))
    assert end.status != 0
    assert "Timeout (0:00:02)!" in end.err
    assert "in _come_up_with_all_ranks" in end.err


@pytest.mark.parametrize("again", REPEATS)
@pytest.mark.parametrize("whom", ["rank", "watcher"])
@pytest.mark.long
def test_a_rank_killed_while_it_starts(whom: str, again: int) -> None:
    """At a drawn moment, or what watches it: MPICH itself may wait for it for ever."""
    draw = random.Random(f"{whom} {again}")
    ranks = launched("forever")
    until = time.monotonic() + 60
    while len(watched := pairs(ranks)) < 2:
        assert time.monotonic() < until
        time.sleep(0.005)
    time.sleep(draw.uniform(0, 2))
    watcher, rank = draw.choice(watched)
    start = time.monotonic()
    os.kill(rank if whom == "rank" else watcher, signal.SIGKILL)
    end = ranks.end(10)
    assert end.status == 137, end
    assert not end.left, end
    assert time.monotonic() - start < 10


def pairs(ranks: Ranks) -> list[tuple[int, int]]:
    """Who watches a rank, and the rank."""
    there = {number: host.beginnings(number) for number in ranks.processes()}
    return [
        (number, [*family][1])
        for number, family in there.items()
        if words_of(number)[1:3] == ["-m", "luminal_rank"] and len(family) == 2
    ]


@pytest.mark.long
def test_a_child_is_no_rank() -> None:
    """One that was forked ends by itself, well or badly, and the ranks go on. One that a rank
    starts is a program of one rank.
    """
    text = (
        "import os, luminal as lm\nengine = lm.distributed.init()\n"
        "print('rank 0 is ready', flush=True)\nchild = os.fork()\n"
        "if child == 0:\n    assert engine.rank == 0\n"
        "else:\n    status = os.waitpid(child, 0)[1]\n    engine.barrier()\n"
        "    print('rank', engine.rank, 'status', os.waitstatus_to_exitcode(status))\n"
        "    import subprocess, sys\n"
        "    text = 'import luminal as lm; print(lm.distributed.size(), flush=True)'\n"
        "    subprocess.run([sys.executable, '-c', text], check=True)"
    )
    ranks = under_mpiexec(2, "-c", text, LUMINAL_COLLECTIVE_TIMEOUT="20")
    end = ended(ranks)
    assert end.status == 0, end
    lines = sorted(line for line in end.out.splitlines() if "ready" not in line)
    assert lines == ["1", "1", "rank 0 status 0", "rank 1 status 1"]
    assert "AssertionError" in end.err


def test_an_error_that_a_program_catches_ends_it_all_the_same() -> None:
    end = ended(launched("caught", LUMINAL_COLLECTIVE_TIMEOUT="1"), seconds=5)
    assert end.status == 75
    assert f"rank 0 of 2 ends all: rank 0: {GRADIENT} has waited 1 s" in end.err


@pytest.mark.long
@pytest.mark.parametrize("again", REPEATS)
def test_different_collectives(again: int) -> None:
    end = ended(launched("order", LUMINAL_VERIFY="1"))
    assert "CollectiveError: ranks start different collectives: rank 0 all_reduce" in end.err
    assert "rank 1 all_gather of 'weights'" in end.err
    end = ended(launched("order", LUMINAL_COLLECTIVE_TIMEOUT="2"))
    assert end.status != 0
    assert GRADIENT in end.err or "all_gather of 'weights'" in end.err


@pytest.mark.parametrize("again", REPEATS)
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_signal_ends_all(number: signal.Signals, again: int) -> None:
    ranks = launched("forever")
    ranks.line("rank 0 is ready")
    os.killpg(ranks.process.pid, number)  # as a terminal does
    end = ranks.end(10)
    assert not end.left
    assert end.status == 128 + number


@pytest.mark.parametrize("again", REPEATS)
@pytest.mark.parametrize("whom", ["luminal", pytest.param("mpiexec", marks=pytest.mark.long)])
def test_a_launcher_that_is_killed_leaves_nothing(whom: str, again: int) -> None:
    ranks = launched("forever")
    ranks.line("rank 0 is ready")
    victim = ranks.process.pid
    if whom == "mpiexec":
        names = {number: Path(f"/proc/{number}/comm").read_text() for number in ranks.processes()}
        victim = next(number for number, name in names.items() if name.startswith("mpiexec"))
    os.kill(victim, signal.SIGKILL)
    assert not ranks.end(10).left


@pytest.mark.long
def test_restarts(tmp_path: Path) -> None:
    """A program that fails twice, the second time killed: then half as many ranks start."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, luminal as lm\nfrom pathlib import Path\n"
        f"tries = Path({str(tmp_path)!r}) / 'tries'\nengine = lm.distributed.init()\n"
        "number = len(tries.read_text()) if tries.exists() else 0\nengine.barrier()\n"
        "if engine.rank == 0:\n    print('ranks', engine.size, flush=True)\n"
        "    tries.write_text('x' * (number + 1))\n"
        "    if number == 0: sys.exit(5)\n    if number == 1: os.kill(os.getpid(), 9)\n"
        "engine.barrier()\n"
    )
    command = [sys.executable, "-m", "luminal", "launch", "-n", "1:2", "--restarts", "3"]
    end = Ranks([*command, str(program)]).end(120)
    assert end.status == 0, end
    assert "status 5; 2 ranks start again, 2 restarts are left" in end.err
    assert "status 137; 1 ranks start again, 1 restarts are left" in end.err
    assert end.out.count("ranks 2") == 2
    assert end.out.count("ranks 1") == 1
