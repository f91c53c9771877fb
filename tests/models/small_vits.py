"""A small VITS, made by transformers and saved to files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LETTERS = ("_", *"abcdeţ' ", "<pad>")
SIZES: dict[str, Any] = {
    "vocab_size": 12,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "window_size": 3,
    "ffn_dim": 24,
    "flow_size": 8,
    "spectrogram_bins": 9,
    "upsample_initial_channel": 16,
    "upsample_rates": [4, 2],
    "upsample_kernel_sizes": [8, 4],
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3], [1, 2]],
    "depth_separable_num_layers": 2,
    "duration_predictor_flow_bins": 5,
    "duration_predictor_num_flows": 3,
    "duration_predictor_filter_channels": 12,
    "prior_encoder_num_flows": 2,
    "prior_encoder_num_wavenet_layers": 2,
    "posterior_encoder_num_wavenet_layers": 1,
    "wavenet_dilation_rate": 2,
}
VOICES: dict[str, Any] = {"num_speakers": 3, "speaker_embedding_size": 6}
PLAIN: dict[str, Any] = {"use_stochastic_duration_prediction": False}


def saved(folder: Path, tokenizer: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A random model of transformers, also written to the folder with all its settings."""
    torch.manual_seed(0)
    model = transformers.VitsModel(transformers.VitsConfig(**(SIZES | changes))).eval()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("original0"):
                value.uniform_(0.8, 1.6)
            elif value.ndim > 1 and min(value.shape[:2]) > 1:
                value.normal_(std=1.2 / value[0].numel() ** 0.5)
            else:
                value.add_(torch.randn_like(value) * 0.2)
    model.save_pretrained(folder)
    path = folder / "letters.json"
    path.write_text(json.dumps({letter: number for number, letter in enumerate(LETTERS)}))
    settings = {"phonemize": False, "unk_token": "<pad>"} | (tokenizer or {})
    transformers.VitsTokenizer(str(path), **settings).save_pretrained(folder)
    path.unlink()
    return model


@contextmanager
def drawn(durations: np.ndarray[Any, Any], latents: np.ndarray[Any, Any]) -> Iterator[None]:
    """transformers draws this noise: (batch, 2, s), and (batch, frames or more, flow_size)."""

    def randn(*shape: int) -> Any:
        return torch.tensor(durations)

    def randn_like(x: Any) -> Any:
        return torch.tensor(latents[:, : x.shape[2]].transpose(0, 2, 1))

    with (
        mock.patch.object(torch, "randn", randn),
        mock.patch.object(torch, "randn_like", randn_like),
    ):
        yield
