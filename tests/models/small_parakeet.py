"""A small Parakeet, made by transformers and saved to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

PIECES = ("<unk>", *"▁abcdeé,", "▁a", "bc", "▁de", "▁ab", "<0xC3>", "<0xA9>")
BLANK = len(PIECES)
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_kernel_size": 5,
    "subsampling_conv_channels": 8,
    "num_mel_bins": 16,
}
SOUND: dict[str, Any] = {"feature_size": 16, "n_fft": 512}


def saved(folder: Path, sound: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A random model of transformers, also written to the folder with all its settings."""
    torch.manual_seed(0)
    config = transformers.ParakeetCTCConfig(
        vocab_size=BLANK + 1,
        pad_token_id=BLANK,
        encoder_config=transformers.ParakeetEncoderConfig(**(SIZES | changes)),
    )
    model = transformers.ParakeetForCTC(config).eval()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif value.ndim > 1:
                # As much comes out as goes in: frames stay as different as they are.
                value.normal_(std=1.4 / value[0].numel() ** 0.5)
            elif value.ndim:
                value.add_(torch.randn_like(value) * 0.15)
        # What all frames have in common says nothing: they differ in what they say.
        hidden = model.encoder(torch.randn(1, 200, config.encoder_config.num_mel_bins))
        mean = hidden.last_hidden_state[0].mean(0)
        model.ctc_head.bias.copy_(-model.ctc_head.weight[..., 0] @ mean)
        model.ctc_head.bias[[piece.startswith("▁") for piece in (*PIECES, "")]] += 0.3
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    transformers.ParakeetFeatureExtractor(**(SOUND | (sound or {}))).save_pretrained(folder)
    return model


def tokenizer() -> Any:
    """Pairs of pieces, spaces in front of words, as NVIDIA's are converted."""
    ids = {piece: number for number, piece in enumerate(PIECES)}
    merges = [("▁", "a"), ("b", "c"), ("d", "e"), ("▁", "de"), ("▁a", "b")]
    known = [(a, b) for a, b in merges if {a, b, a + b} <= ids.keys()]
    model = tokenizers.models.BPE(ids, known, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.decoder = tokenizers.decoders.Metaspace()
    return transformers.ParakeetTokenizer(
        tokenizer_object=inner, unk_token="<unk>", pad_token="<pad>"
    )
