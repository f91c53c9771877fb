"""Ranks that are processes under mpiexec: every case of the table that ranks as threads pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import luminal as lm
from luminal.runtime.collectives.mpich import wheel_file
from tests.distributed.running import needs_mpi, under_mpiexec
from tests.long_share import mostly_long

PROGRAM = str(Path(__file__).with_name("mpi_conformance.py"))


@needs_mpi()
@pytest.mark.parametrize("count", mostly_long([2, 3, 4], 1))
def test_cases(count: int) -> None:
    ended = under_mpiexec(count, PROGRAM).end()
    assert ended.status == 0, ended.err
    # Two ranks may write at once: then what they write is whole, and their ends of lines are not.
    for rank in range(count):
        assert ended.out.count(f"rank {rank} of {count}: all cases") == 1, ended.out
    assert not ended.left


@pytest.mark.long
@needs_mpi()
def test_mpi_that_a_user_has_started() -> None:
    text = (
        "from mpi4py import MPI\nimport numpy as np\nimport luminal as lm\n"
        "from luminal.base import config\nengine = lm.distributed.init()\nvalue = np.ones(3)\n"
        "engine.run('all_reduce', value, value, label='x')\n"
        "print(value.tolist(), MPI.COMM_WORLD.allreduce(1), lm.distributed.local_rank(), "
        "lm.distributed.local_size(), config.get('LUMINAL_THREADS'))"
    )
    library = str(wheel_file("libmpi.so.12"))
    ended = under_mpiexec(2, "-c", text, LUMINAL_THREADS="", MPI4PY_LIBMPI=library).end()
    assert ended.status == 0, ended.err
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    for rank in range(2):
        assert ended.out.count(f"[2.0, 2.0, 2.0] 2 {rank} 2 {threads}") == 1, ended.out


def printed(text: str) -> str:
    """What a program writes in a process of its own."""
    command = [sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_one_rank_needs_no_mpi() -> None:
    text = (
        "import sys\nsys.modules['mpi4py'] = None\nimport luminal as lm\nlm.distributed.init()\n"
        "print(lm.distributed.rank(), lm.distributed.size(), lm.distributed.local_rank())"
    )
    assert printed(text) == "0 1 0\n"


@pytest.mark.long
@needs_mpi()
def test_an_environment_without_mpi_says_what_to_install() -> None:
    text = "import sys\nsys.modules['mpi4py'] = None\nimport luminal as lm\nlm.distributed.init()"
    ended = under_mpiexec(2, "-c", text).end()
    assert ended.status != 0
    assert "CollectiveError: 2 ranks were launched, but MPI cannot be used" in ended.err
    assert "pip install" in ended.err
    assert "mpi]" in ended.err


def test_importing_luminal_imports_nothing_of_this() -> None:
    text = (
        "import sys, luminal\n"
        "print([name for name in sys.modules if 'mpi4py' in name or 'runtime.collectives' in name])"
    )
    assert printed(text) == "[]\n"


def test_the_ranks_of_a_thread_are_its_own() -> None:
    places = lm.distributed.run_local(
        2, lambda engine: (lm.distributed.rank(), lm.distributed.size())
    )
    assert places == [(0, 2), (1, 2)]
