"""A server's steps over the stand-in of CUDA's driver: run by test_stand_in.py in a process of its
own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cuda.driver import CudaDriver
from luminal.models.decoder import Decoder
from luminal.models.sampling import Draw, Sampling
from luminal.serve import program
from luminal.serve.blocks import BlockPool
from luminal.serve.engine import Engine, EngineOptions
from luminal.serve.program import StepProgram, inputs_of
from luminal.serve.scheduler import Scheduler, Text
from tests.backends.cuda.program_cases import calls, since
from tests.serve.running import CONFIG, CONTEXT, characters
from tests.serve.small_decoder import decoder
from tests.serve.written import CLIENTS, written
from tests.simt import stand_in

PLAIN = [client for client in CLIENTS if not {*client[1]} - {"temperature", "seed"}]


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(program, "WAYS", ((), ("temperature",)))
    with stand_in.nvrtc_stands_in(monkeypatch, tmp_path, LUMINAL_POISON=None):
        yield


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many graphs were captured."""
    counted = Counter[str]()
    record = CudaDriver.record

    def counting(self: CudaDriver, *given: Any) -> Any:
        counted["graphs"] += 1
        return record(self, *given)

    monkeypatch.setattr(CudaDriver, "record", counting)
    return counted


def test_a_program_of_steps_is_one_recording(recorded: Counter[str]) -> None:
    """Whatever rows, pieces and pages come and go, it is captured once; then a step is one call,
    in which little is copied.
    """
    pool = BlockPool(40, 4)
    steps = StepProgram(decoder(), pool, 8, 4, context=32, backend="cuda")
    rng = np.random.default_rng(0)
    buckets, taken = set(), []
    for _ in range(2):  # the second time all has been seen
        scheduler = Scheduler(pool, 8, 4)
        for _ in range(20):
            prompt = [int(token) for token in rng.integers(0, 50, rng.integers(1, 24))]
            scheduler.add(Text(prompt, len(prompt) + int(rng.integers(1, 9))))
        while (step := scheduler.step()) is not None:
            given = inputs_of(step, pool)
            buckets.add((given.heads.shape, given.tables.shape))
            assert sum(array.nbytes for array in given) < 4096
            before = calls()
            draws = [Draw(Sampling())] * len(step.rows)
            scheduler.done(step, steps.run(step, draws, ()).tokens.tolist())
            taken.append(since(before))
        assert recorded["graphs"] == 1
        assert pool.free == pool.count
    assert len(buckets) > 10
    assert taken[2:] == [{"copy": 0, "launch": 0, "graph": 1, "wait": 1}] * len(taken[2:])


def test_clients_get_the_cpu_s_texts(recorded: Counter[str]) -> None:
    """Some leave, stop early, share beginnings, wait for blocks and are computed again."""

    def engine(backend: str) -> Engine:
        lm.manual_seed(5)
        options = EngineOptions(rows=16, chunk=32, size=4, cache=256, backend=backend)
        return Engine(Decoder(CONFIG), characters(), CONTEXT, options)

    served = engine("cuda")
    assert written(served, clients=PLAIN) == written(engine("cpu"), clients=PLAIN)
    assert written(served, clients=PLAIN) == written(engine("cpu"), clients=PLAIN)
    # Of two ways to choose and of copies of blocks, and of both buffers that pages lie in: a copy
    # of some blocks writes all pages beside their values.
    assert recorded["graphs"] <= 2 * 3
