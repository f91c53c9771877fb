"""A thousand runs on a team give the bits of the first: a race would show as another value."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.backends.cpu import device
from luminal.base import config
from luminal.models.llama import Llama, LlamaConfig
from tests.fuzz.cpu_run import cut_small

RUNS = 1000


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> lm.Executable:
    """A Llama of three layers in one Loop, cut into chunks as if it were large."""
    cut_small(monkeypatch)
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)  # the team however little there is to do
    nn.init.manual_seed(0)
    model = Llama(LlamaConfig(32, 48, 3, 4, 2, 8, 64, 24)).eval()
    caches = model.make_caches(24)
    cx = lm.Graph()
    model(cx.tensor((9,), lm.int64, "ids"), caches, 0).output("logits")
    return cx.compile()


@pytest.mark.parametrize("threads", [2, 4])
def test_every_run_gives_the_same_bits(decoder: lm.Executable, threads: int) -> None:
    ids = np.arange(9)

    def run() -> bytes:
        return hashlib.blake2b(np.asarray(decoder(ids=ids)["logits"])).digest()

    with config.override(LUMINAL_THREADS=1):
        alone = run()
    with config.override(LUMINAL_THREADS=threads):
        assert {run() for _ in range(RUNS)} == {alone}
