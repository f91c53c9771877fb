"""Hidden states of text encoders, compared with those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm
from luminal.models.families import read_model
from tests.close import close_to_greatest
from tests.models.small_encoders import VOCABULARY, torch

LENGTHS = (5, 1, 11)


def texts(padding: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Ids (3, s) and lengths; the token of padding is some of the texts' own."""
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (3, max(LENGTHS))).astype(np.int32)
    ids[0, 0] = ids[2, 3] = ids[2, 5] = padding
    return ids, np.array(LENGTHS, np.int32)


def hidden_states(model: Any, ids: Any, lengths: Any) -> np.ndarray[Any, Any]:
    """Theirs, 0 beyond a text's length."""
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    padding = model.config.pad_token_id
    padded = torch.from_numpy(np.where(mask, ids, padding)).long()
    with torch.no_grad():
        found = model(padded, attention_mask=torch.from_numpy(mask)).last_hidden_state.numpy()
    return np.where(mask[..., None], found, 0)


def check_hidden_states(theirs: Any, folder: Path, backend: str) -> None:
    """Of three texts of different lengths, and of one of another length."""
    graph = lm.Graph()
    batch, s = graph.dim("b", 1, 4), graph.dim("s", 1, 20)
    given = graph.tensor((batch, s), lm.int32, "ids")
    lengths = graph.tensor((batch,), lm.int32, "lengths")
    read_model(folder)(given, lengths).output("hidden")
    exe = graph.compile(backend)
    for rows in (slice(None), slice(1), slice(2, 3)):
        ids, counts = (each[rows] for each in texts(theirs.config.pad_token_id))
        found = exe(ids=ids, lengths=counts)["hidden"]
        mask = np.arange(ids.shape[1]) < counts[:, None]
        close_to_greatest(np.where(mask[..., None], found, 0), hidden_states(theirs, ids, counts))
