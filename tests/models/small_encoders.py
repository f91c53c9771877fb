"""Small text encoders made by transformers and saved to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
VOCABULARY = 64
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 24,
}


class Tiny(NamedTuple):
    """A small configuration: the names of transformers' classes, and the options."""

    name: str
    options: dict[str, Any]


TINY = {
    "bert": Tiny("Bert", SIZES),
    "roberta": Tiny("Roberta", {**SIZES, "type_vocab_size": 1}),
    "distilbert": Tiny(
        "DistilBert",
        {
            "vocab_size": VOCABULARY,
            "dim": 32,
            "hidden_dim": 48,
            "n_layers": 2,
            "n_heads": 4,
            "max_position_embeddings": 24,
        },
    ),
    "modernbert": Tiny(
        "ModernBert",
        {
            **SIZES,
            "num_hidden_layers": 4,
            "local_attention": 6,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
    ),
}


def saved(name: str, folder: Path, suffix: str = "Model") -> Any:
    """A random model of transformers, also written to the folder; no weight is left at 0 or 1."""
    tiny = TINY[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{tiny.name}Config")(**tiny.options)
    model = getattr(transformers, f"{tiny.name}{suffix}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model
