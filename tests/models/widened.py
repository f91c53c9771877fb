"""The small model of stories with rows of whole blocks of 256, which computes the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm

Array = np.ndarray[Any, Any]
HIDDEN, INNER = 256, 512


def widened(source: Path, place: Path) -> Path:
    """A folder of the Llama in `source`, whose hidden vectors have zeros behind them.

    Zeros halve a mean of squares: norms take their weights over the root of 2, and half of eps.
    """
    shutil.copytree(source, place)
    config = json.loads((place / "config.json").read_text())
    heads = config["num_attention_heads"]
    config |= {"head_dim": config["hidden_size"] // heads, "hidden_size": HIDDEN}
    config |= {"intermediate_size": INNER, "rms_norm_eps": config["rms_norm_eps"] / 2}
    assert 2 * config["head_dim"] * heads == HIDDEN
    (place / "config.json").write_text(json.dumps(config))
    weights = lm.load(source / "model.safetensors")
    made = {name: _wide(name, np.array(each, np.float32)) for name, each in weights.items()}
    lm.save(place / "model.safetensors", made)
    return place


def _wide(name: str, array: Array) -> Array:
    if array.ndim == 1:
        return np.pad(array / np.float32(np.sqrt(2)), (0, HIDDEN - len(array)))
    rows, columns = array.shape
    outer = {"o_proj": HIDDEN, "down_proj": HIDDEN, "gate_proj": INNER, "up_proj": INNER}
    last = name.split(".")[-2]
    width = {"o_proj": columns, "down_proj": INNER}.get(last, HIDDEN)
    return np.pad(array, ((0, outer.get(last, rows) - rows), (0, width - columns)))
