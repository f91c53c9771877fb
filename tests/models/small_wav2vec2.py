"""Small models of speech with logits of characters, made by transformers and saved to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", *"EATONI")
SIZES = {
    "vocab_size": len(LETTERS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": (16, 24, 24),
    "conv_kernel": (10, 3, 2),
    "conv_stride": (5, 2, 2),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
}
STABLE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "wav2vec2": ("Wav2Vec2", SIZES),
    "wav2vec2_stable": ("Wav2Vec2", SIZES | STABLE | {"num_conv_pos_embeddings": 7}),
    "hubert": ("Hubert", SIZES | {"feat_proj_layer_norm": False}),
}


def saved(name: str, folder: Path, **settings: Any) -> Any:
    """A random model of transformers, also written to the folder with all its settings."""
    kind, options = TINY[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**options)
    model = getattr(transformers, f"{kind}ForCTC")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        # Frames are not all alike, and several in a row say the same.
        model.lm_head.weight.mul_(3)
    model.save_pretrained(folder)
    words = folder / "words.json"
    words.write_text(json.dumps({letter: number for number, letter in enumerate(LETTERS)}))
    transformers.Wav2Vec2CTCTokenizer(str(words), **settings).save_pretrained(folder)
    words.unlink()
    transformers.Wav2Vec2FeatureExtractor(do_normalize=True).save_pretrained(folder)
    return model
