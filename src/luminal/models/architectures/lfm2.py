"""LFM2 and its experts: gated short convolutions, some layers of attention. arXiv 2511.23404."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import kinds_of, later, rotary_of
from luminal.models.architectures.mamba import OF_ONE_CHANNEL
from luminal.models.architectures.settings import TIED, epsilon, flag, integer, layer_count, number
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Layers
from luminal.models.gguf.form import GGUF
from luminal.nn import RotaryEmbedding
from luminal.nn.short_convolution import ShortConvolution


@dataclass(frozen=True, slots=True)
class ConvolutionConfig:
    """The width of a `ShortConvolution`, and whether it has biases."""

    width: int
    bias: bool

    def make(
        self, config: DecoderConfig, rotary: RotaryEmbedding | None, dtype: Any
    ) -> ShortConvolution:
        """The mixer of one layer."""
        return ShortConvolution(config.hidden_size, self.width, self.bias, dtype)


_OLDER = {"tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"}


def _read(fields: Fields) -> Fields:
    """With the keys of the first files under those that came later."""
    values = dict(fields.values)
    for old, new in _OLDER.items():
        if values.get(old) is not None:
            values[new] = values[old]
    return replace(fields, values=values)


def _inner(fields: Fields) -> int:
    """Two thirds of the width that files say, times a factor, up to a multiple."""
    width = fields.integer("intermediate_size", 12288)
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    if "block_ffn_dim_multiplier" in fields.values and (
        fields.values["block_ffn_dim_multiplier"] is None
    ):
        return width
    width = int(fields.number("block_ffn_dim_multiplier", 1.0) * width)
    multiple = fields.integer("block_multiple_of", 256)
    return -(-width // multiple) * multiple


def _layers(fields: Fields) -> Layers:
    """Attention where `layer_types` says so, else where `full_attn_idxs` does, else everywhere."""
    count = layer_count(fields)
    kinds = kinds_of(fields, count, "full_attention", "conv")
    if kinds is None:
        full = fields.listed("full_attn_idxs", int, [*range(count)])
        kinds = ["full_attention" if number in full else "conv" for number in range(count)]
    width = fields.integer("conv_L_cache", 3)
    if width < 2:
        raise LoadError(f"{fields.path}: conv_L_cache is {width}; it must be at least 2")
    mixer = ConvolutionConfig(width, fields.flag("conv_bias", False))
    attention = LayerConfig(rotary=rotary_of(fields, theta=1e6))
    return tuple(LayerConfig(mixer=mixer) if kind == "conv" else attention for kind in kinds)


def _sparse_layers(fields: Fields) -> Layers:
    """The first layers have no experts."""
    return later(_layers(fields), fields.integer("num_dense_layers", 2, least=0), experts=True)


_NAMES = {
    "model.embedding_norm.": "model.norm.",
    ".operator_norm.": ".input_layernorm.",
    ".ffn_norm.": ".post_attention_layernorm.",
    # A layer has one of both, and these two have a projection of the same name.
    ".self_attn.out_proj.": ".self_attn.o_proj.",
    ".conv.conv.": ".self_attn.conv1d.",
    ".conv.in_proj.": ".self_attn.in_proj.",
    ".conv.out_proj.": ".self_attn.out_proj.",
    ".q_layernorm.": ".q_norm.",
    ".k_layernorm.": ".k_norm.",
    ".feed_forward.": ".mlp.",
    ".w1.": ".gate_proj.",
    ".w2.": ".down_proj.",
    ".w3.": ".up_proj.",
}
_SETTINGS = {**TIED, "norm_eps": epsilon(1e-5, "norm_eps"), "activation": "silu", "qk_norm": "head"}


def _kinds(reader: Any) -> Mapping[str, Any]:
    """Which layers attend, which files say by their heads of keys."""
    kinds = ["full_attention" if attends else "conv" for attends in reader.attends()]
    return {"layer_types": kinds, "block_auto_adjust_ff_dim": False}


def _written(config: DecoderConfig) -> Mapping[str, Any]:
    widths = [
        layer.mixer.width for layer in config.layers if isinstance(layer.mixer, ConvolutionConfig)
    ]
    return {"shortconv.l_cache": widths[0] if widths else 3}


def _form(name: str, keys: Mapping[str, str], flags: Mapping[str, str] | None = None) -> GGUF:
    return GGUF(
        name,
        "lfm2_moe" if name == "lfm2moe" else name,
        keys={"attention.key_length": None, "shortconv.l_cache": "conv_L_cache", **keys},
        names={
            "self_attn.conv1d": "shortconv.conv",
            "self_attn.in_proj": "shortconv.in_proj",
            "self_attn.out_proj": "shortconv.out_proj",
        },
        outer={"model.norm": "token_embd_norm"},
        flags={"conv_bias": "shortconv.in_proj.bias", **(flags or {})},
        hybrid=True,
        changes={"shortconv.conv": OF_ONE_CHANNEL},
        read=_kinds,
        written=_written,
    )


LFM2 = Architecture(
    "Lfm2ForCausalLM",
    {**_SETTINGS, "intermediate_size": _inner},
    _NAMES,
    layers=_layers,
    read=_read,
    gguf=_form("lfm2", {"feed_forward_length": "intermediate_size"}),
)
LFM2_MOE = Architecture(
    "Lfm2MoeForCausalLM",
    _SETTINGS,
    {**_NAMES, ".mlp.expert_bias": ".mlp.gate.e_score_correction_bias"},
    layers=_sparse_layers,
    experts={
        "count": integer("num_experts", 32),
        "top_k": integer("num_experts_per_tok", 4),
        "intermediate_size": integer("moe_intermediate_size", 1792),
        "normalize": flag("norm_topk_prob", True),
        "scoring": "sigmoid",
        "scale": number("routed_scaling_factor", 1.0),
        "correction": flag("use_expert_bias", True),
    },
    read=_read,
    gguf=_form(
        "lfm2moe",
        {"leading_dense_block_count": "num_dense_layers"},
        {"use_expert_bias": "exp_probs_b.bias"},
    ),
)
