"""Random models for tests of generation, with a tokenizer of single letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal import nn
from luminal.models import LanguageModel, Llama, LlamaConfig

VOCABULARY = 64


class Letters:
    """A tokenizer whose tokens are single characters from "0" on; id 0 ends a text."""

    bos_id = None
    eos_ids = frozenset({0})
    vocab_size = VOCABULARY

    def encode(self, text: str, bare: bool = False) -> list[int]:
        return [ord(letter) - 48 for letter in text]

    def marked(self, value: Any) -> Any:
        return value

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(48 + each) for each in ids)

    def name_of(self, token: int) -> str:
        return chr(48 + token)

    def to_json(self) -> str:
        raise NotImplementedError


def llama(seed: int = 0, layers: int = 2, scale: float = 0.25) -> Llama:
    """Weights are wide enough for logits to differ clearly."""
    nn.init.manual_seed(seed)
    made = Llama(LlamaConfig(32, 48, layers, 4, 2, 8, VOCABULARY, 64))
    rng = np.random.default_rng(seed)
    for parameter in made.parameters():
        parameter.set(rng.standard_normal(parameter.shape).astype(np.float32) * scale)
    return made


def language_model(
    model: Llama | None = None, backend: str | None = "reference", **options: Any
) -> LanguageModel:
    """By default the random one of seed 0."""
    return LanguageModel(model or llama(), Letters(), backend=backend, **options)


def twin(model: Llama) -> Any:
    """The same model of transformers."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=model.config.num_hidden_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=0,
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in model.state_dict().items()})
    return theirs
