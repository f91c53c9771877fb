"""A small Whisper made by transformers and saved to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
END, START, NO_TIMESTAMPS = 50, 51, 56
LANGUAGES = {"<|de|>": 52, "<|en|>": 53}
TASKS = {"transcribe": 54, "translate": 55}
VOCABULARY = NO_TIMESTAMPS + 52  # 51 timestamps of a window of one second
SIZES = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": 20,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40,
    "max_source_positions": 50,
    "max_target_positions": 24,
    "decoder_start_token_id": START,
    "eos_token_id": END,
    "bos_token_id": END,
    "pad_token_id": END,
}


def extractor() -> Any:
    return transformers.WhisperFeatureExtractor(
        feature_size=SIZES["num_mel_bins"], chunk_length=1, return_attention_mask=True
    )


def saved(folder: Path, seed: int = 0) -> Any:
    """A random Whisper of transformers, also written to the folder with all its settings."""
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SIZES)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=START,
        eos_token_id=END,
        pad_token_id=END,
        no_timestamps_token_id=NO_TIMESTAMPS,
        lang_to_id=LANGUAGES,
        task_to_id=TASKS,
        is_multilingual=True,
        max_initial_timestamp_index=10,
        max_length=SIZES["max_target_positions"],
        suppress_tokens=[3, 4],
        begin_suppress_tokens=[5, END],
    )
    model.save_pretrained(folder)
    extractor().save_pretrained(folder)
    words = {f"w{number}": number for number in range(VOCABULARY)}
    Tokenizer(WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
    return model


RATE = 16000


def noise(seconds: float, seed: int = 0) -> np.ndarray[Any, Any]:
    """Noise that grows and shrinks."""
    count = int(seconds * RATE)
    swell = np.sin(np.arange(count) / 3000)
    return (np.random.default_rng(seed).standard_normal(count) * swell * 0.3).astype(np.float32)
