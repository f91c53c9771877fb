"""A Llama as a folder that Hugging Face's library, `luminal generate` and `models.load` read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from luminal.base.dtypes import dtype_of
from luminal.base.errors import InputError
from luminal.loaders.mapped import given_path
from luminal.loaders.write_atomic import replacing
from luminal.loaders.write_safetensors import save_safetensors
from luminal.models.llama import Llama


def write_folder(
    folder: str | Path, model: Llama, tokenizer: str, dtype: Any = "float32", end_id: int = 0
) -> None:
    """Writes config.json, model.safetensors in `dtype`, and tokenizer.json (`tokenizer` is its
    text). `end_id`: the token that ends a text. Raises InputError where that is not possible.
    """
    place, kind = given_path(folder), dtype_of(dtype)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": kind.name,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        **asdict(model.config),
    }
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{place}: cannot be made: {error.strerror}") from error
    weights = {
        path: parameter.numpy().astype(kind.numpy)
        for path, parameter in model.named_parameters(remove_duplicate=False)
    }
    save_safetensors(place / "model.safetensors", weights, {"format": "pt"})
    for name, text in (
        ("config.json", json.dumps(config, indent=2)),
        ("tokenizer.json", tokenizer),
    ):
        with replacing(place / name) as file:
            file.write(text.encode() + b"\n")
