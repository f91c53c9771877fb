"""Folders of PEFT, written by hand, for a small Llama."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm
from luminal.models.llama import Llama
from tests.models.packings import SIZES, Tensors, write

R, ALPHA = 4, 6
PREFIX = "base_model.model."
PLAIN = {"peft_type": "LORA", "r": R, "lora_alpha": ALPHA, "target_modules": ["q_proj", "up_proj"],
         "task_type": "CAUSAL_LM", "bias": "none", "modules_to_save": None}  # fmt: skip


def base(folder: Path, dtype: Any = np.float32) -> Tensors:
    """A folder of a Llama; its tensors."""
    folder.mkdir()
    lm.manual_seed(0)
    tensors = {k: v.numpy().astype(dtype) for k, v in Llama(SIZES).named_parameters()}
    write(folder, tensors, None)
    return tensors


def pairs(tensors: Tensors, ends: tuple[str, ...], rank: int = R) -> Tensors:
    """Matrices A and B of modules whose names end so."""
    rng = np.random.default_rng(1)
    made: Tensors = {}
    for name, weight in tensors.items():
        module = name.removesuffix(".weight")
        if module.endswith(ends):
            made[f"{PREFIX}{module}.lora_A.weight"] = rng.standard_normal(
                (rank, weight.shape[1])
            ).astype(np.float32)
            made[f"{PREFIX}{module}.lora_B.weight"] = rng.standard_normal(
                (weight.shape[0], rank)
            ).astype(np.float32)
    return made


def adapter(folder: Path, tensors: Tensors, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({**PLAIN, **settings}))
    lm.save(folder / "adapter_model.safetensors", tensors)
    return folder
