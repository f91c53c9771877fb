"""Small T5 models made by transformers and saved to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
VOCABULARY = 64
SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "n_positions": 40,
    "decoder_start_token_id": 0,
}
KINDS = {
    "t5": SIZES,
    "flan": {**SIZES, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def saved(kind: str, folder: Path) -> Any:
    """A random T5 of transformers, also written to the folder."""
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**KINDS[kind])).eval()
    if kind == "flan":
        model.lm_head.weight = torch.nn.Parameter(torch.randn(VOCABULARY, 32) * 0.2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5).add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return model
