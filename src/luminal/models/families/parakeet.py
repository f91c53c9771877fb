"""Parakeet with logits of pieces of text. arXiv 2305.05084."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import layer_count, refuse
from luminal.models.checkpoint import folder_processor, folder_tokenizer
from luminal.models.ctc import CtcTranscriber, Frames
from luminal.models.ctc_vocabulary import Pieces
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import MAX_SIZE, head_dim, odd_size
from luminal.models.log_mel import StandardizedLogMel
from luminal.models.parakeet import Parakeet, ParakeetConfig

_NAMES: Names = (
    (r"num_batches_tracked$", None),
    (r"^encoder\.", ""),
    (r"^ctc_head\.", "head."),
    (r"\.norm_feed_forward1\.", ".before_norm."),
    (r"\.norm_self_att\.", ".attention_norm."),
    (r"\.norm_conv\.", ".convolution_norm."),
    (r"\.norm_feed_forward2\.", ".after_norm."),
    (r"\.norm_out\.", ".norm."),
    (r"\.feed_forward1\.", ".before."),
    (r"\.feed_forward2\.", ".after."),
    (r"\.linear1\.", ".up_proj."),
    (r"\.linear2\.", ".down_proj."),
    (r"\.self_attn\.", ".attention."),
    (r"\.conv\.pointwise_conv1\.", ".convolution.gate."),
    (r"\.conv\.depthwise_conv\.", ".convolution.conv."),
    (r"\.conv\.pointwise_conv2\.", ".convolution.output."),
    (r"\.conv\.norm\.", ".convolution.norm."),
)
_MATRICES = "head.weight", ".gate.weight", ".output.weight"
"""Ends of names: convolutions of one frame, whose kernels have an axis of extent 1."""


def _model(whole: Fields) -> Parakeet:
    fields = whole.section("encoder_config")
    if not fields:
        raise LoadError(f"{whole.path}: no encoder_config in it, which describes the layers")
    hidden = fields.integer("hidden_size")
    refuse(fields, head_dim=head_dim(fields, "hidden_size", "num_attention_heads"))
    if hidden % 2:
        raise LoadError(
            f"{fields.path}: hidden_size is {hidden}; it must be even: positions are pairs of a "
            "sine and a cosine"
        )
    config = ParakeetConfig(
        mels=fields.integer("num_mel_bins", 80, most=MAX_SIZE),
        steps=_steps(fields),
        step_channels=fields.integer("subsampling_conv_channels", 256),
        step_kernel=odd_size(fields, "subsampling_conv_kernel_size", 3),
        step_stride=fields.integer("subsampling_conv_stride", 2, most=MAX_SIZE),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=layer_count(fields),
        num_attention_heads=fields.integer("num_attention_heads"),
        kernel=odd_size(fields, "conv_kernel_size", 9),
        outputs=whole.integer("vocab_size"),
        activation=fields.text("hidden_act", "silu"),
        bias=fields.flag("attention_bias", True),
        conv_bias=fields.flag("convolution_bias", True),
        input_scale=math.sqrt(hidden) if fields.flag("scale_input", True) else 1.0,
        blank=whole.integer("pad_token_id", 1024, least=0, most=whole.integer("vocab_size") - 1),
    )
    if config.bands != config.mels // config.hop or not config.bands:
        raise LoadError(
            f"{fields.path}: {config.steps} convolutions leave {config.bands} bands of "
            f"num_mel_bins {config.mels}; the matrix after them is made for "
            f"{config.mels // config.hop}"
        )
    return Parakeet(config)


def _steps(fields: Fields) -> int:
    """How many convolutions come first."""
    factor = fields.integer("subsampling_factor", 8, least=2, most=MAX_SIZE)
    if factor & (factor - 1):
        raise LoadError(f"{fields.path}: subsampling_factor is {factor}; it must be a power of 2")
    return factor.bit_length() - 1


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    return {
        name: array[..., 0] if name.endswith(_MATRICES) and array.ndim == 3 else array
        for name, array in renamed(tensors, _NAMES).items()
    }


def _transcriber(folder: Path, model: Parakeet, mode: Any, backend: str) -> CtcTranscriber:
    """With the tokenizer and the preparation of its folder. Raises LoadError."""
    fields, config = folder_processor(folder, "feature_extractor"), model.config
    tokenizer = folder_tokenizer(folder, config.outputs)
    n_fft = fields.integer("n_fft", 512, most=MAX_SIZE)
    log_mel = StandardizedLogMel(
        fields.integer("feature_size", 80, most=MAX_SIZE),
        n_fft,
        fields.integer("hop_length", 160, most=MAX_SIZE),
        fields.integer("sampling_rate", 16000),
        fields.integer("win_length", 400, most=n_fft),
        # 0 as well as null: no emphasis.
        fields.number("preemphasis", 0.97, most=1) if fields.values.get("preemphasis", 1) else 0.0,
    )
    if log_mel.mels != config.mels:
        raise LoadError(
            f"{fields.path}: feature_size is {log_mel.mels}, the model takes {config.mels}"
        )
    about = (
        f"{config.num_hidden_layers} layers of {config.hidden_size}, {config.outputs - 1} pieces "
        "of text"
    )
    frames, pieces = Frames(log_mel, config.hop), Pieces(tokenizer, config.blank)
    return CtcTranscriber(model, frames, pieces, mode, backend, about)


PARAKEET = Family(_model, _weights, _transcriber)
