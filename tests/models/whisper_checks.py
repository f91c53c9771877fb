"""Logits of Whisper, compared with those of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import luminal as lm
from luminal.models.families import read_model
from tests.close import close
from tests.models.small_whisper import (
    SIZES,
    VOCABULARY,
    saved,
    torch,
)


def check_logits(folder: Path, backend: str) -> None:
    """Of three windows, and six tokens each."""
    theirs = saved(folder)
    rng = np.random.default_rng(0)
    frames = rng.standard_normal((3, SIZES["num_mel_bins"], 100)).astype(np.float32)
    ids = rng.integers(0, VOCABULARY, (3, 6)).astype(np.int32)
    graph = lm.Graph()
    inputs = graph.tensor(frames.shape, lm.float32, "frames")
    given = graph.tensor((3, graph.dim("s", 1, 24)), lm.int32, "ids")
    read_model(folder)(inputs, given).output("logits")
    exe = graph.compile(backend)
    for count in (6, 1, 4):
        with torch.no_grad():
            wanted = theirs(
                torch.from_numpy(frames), decoder_input_ids=torch.from_numpy(ids[:, :count]).long()
            ).logits.numpy()
        found = exe(frames=frames, ids=ids[:, :count])["logits"]
        close(found, wanted, ulp=16)
