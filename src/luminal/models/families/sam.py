"""Segment Anything. Kirillov et al., arXiv 2304.02643."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import layer_count, refuse
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import head_dim
from luminal.models.sam import KINDS, Sam, SamDecoderConfig, SamEncoderConfig
from luminal.models.segment_anything import SegmentAnything

_MOST_SIDE = 1 << 14
_NAMES: Names = (
    (r"^prompt_encoder\.(mask_embed|shared_embedding)\.", None),
    (r"^shared_image_embedding\.positional_embedding$", "directions"),
    (r"^prompt_encoder\.no_mask_embed\.weight$", "no_mask"),
    (r"^vision_encoder\.patch_embed\.projection\.", "encoder.patches."),
    (r"^vision_encoder\.pos_embed$", "encoder.positions"),
    (r"^vision_encoder\.neck\.(conv|layer_norm)(\d)\.", r"encoder.\1\2."),
    (r"^encoder\.layer_norm", "encoder.norm"),
    (r"^vision_encoder\.layers\.(\d+)\.layer_norm", r"encoder.layers.\1.norm"),
    (r"^vision_encoder\.layers\.(\d+)\.attn\.proj\.", r"encoder.layers.\1.attention.o_proj."),
    (r"^vision_encoder\.layers\.(\d+)\.attn\.rel_pos_h$", r"encoder.layers.\1.attention.rows"),
    (r"^vision_encoder\.layers\.(\d+)\.attn\.rel_pos_w$", r"encoder.layers.\1.attention.columns"),
    (r"^vision_encoder\.layers\.(\d+)\.attn\.", r"encoder.layers.\1.attention."),
    (r"^vision_encoder\.", "encoder."),
    (r"^mask_decoder\.transformer\.final_attn_token_to_image\.", "last."),
    (r"^mask_decoder\.transformer\.layer_norm_final_attn\.", "last_norm."),
    (r"^mask_decoder\.transformer\.layers\.(\d+)\.layer_norm(\d)\.", r"layers.\1.norms.\2."),
    (r"^mask_decoder\.transformer\.layers\.", "layers."),
    (r"^mask_decoder\.upscale_conv(\d)\.", r"up\1."),
    (r"^mask_decoder\.upscale_layer_norm\.", "up_norm."),
    (r"^mask_decoder\.output_hypernetworks_mlps\.", "readers."),
    (r"^mask_decoder\.iou_prediction_head\.", "scorer."),
    (r"\.self_attn\.", ".attention."),
    (r"\.cross_attn_token_to_image\.", ".to_image."),
    (r"\.cross_attn_image_to_token\.", ".to_prompts."),
    (r"^(last|layers\..*)\.out_proj\.", r"\1.o_proj."),
    (r"\.lin1\.", ".up_proj."),
    (r"\.lin2\.", ".down_proj."),
)
_TABLES = {
    "kinds": (
        *(f"prompt_encoder.point_embed.{number}.weight" for number in range(KINDS)),
        "prompt_encoder.not_a_point_embed.weight",
    ),
    "answers": ("mask_decoder.iou_token.weight", "mask_decoder.mask_tokens.weight"),
}
"""Rows that files have apart."""
_PERCEPTRON = re.compile(r"^(readers\.\d+|scorer)\.(proj_in|layers\.(\d+)|proj_out)\.(.*)$")
_NORM = re.compile(r"^(layers\.\d+\.norms)\.(\d)\.")


def _encoder(fields: Fields) -> SamEncoderConfig:
    refuse(fields, use_abs_pos=True, use_rel_pos=True)
    head_dim(fields, "hidden_size", "num_attention_heads")  # raises where there is none
    hidden, patch = fields.integer("hidden_size", 768), fields.integer("patch_size", 16)
    pixels = fields.integer("image_size", 1024, most=_MOST_SIDE)
    if pixels % patch:
        raise LoadError(f"{fields.path}: image_size {pixels} is no multiple of patch_size {patch}")
    whole = fields.listed("global_attn_indexes", int, [2, 5, 8, 11])
    window = fields.integer("window_size", 14, least=0)
    inner = int(hidden * fields.number("mlp_ratio", 4.0))
    return SamEncoderConfig(
        fields.integer("num_channels", 3),
        patch,
        pixels // patch,
        hidden,
        fields.integer("num_attention_heads", 12),
        fields.integer("mlp_dim", inner),
        tuple(
            None if number in whole or not window else window
            for number in range(layer_count(fields))
        ),
        fields.integer("output_channels", 256),
        fields.text("hidden_act", "gelu"),
        fields.number("layer_norm_eps", 1e-6, most=1),
        fields.flag("qkv_bias", True),
    )


def _decoder(fields: Fields) -> SamDecoderConfig:
    hidden, heads = fields.integer("hidden_size", 256), fields.integer("num_attention_heads", 8)
    narrower = fields.integer("attention_downsample_rate", 2)
    if hidden % (narrower * heads) or hidden % 8:
        raise LoadError(
            f"{fields.path}: hidden_size {hidden} of {fields.what} must be a multiple of 8, and of "
            f"attention_downsample_rate {narrower} times num_attention_heads {heads}"
        )
    depth = fields.integer("iou_head_depth", 3, least=2, most=64)
    return SamDecoderConfig(
        hidden,
        heads,
        fields.integer("mlp_dim", 2048),
        fields.integer("num_hidden_layers", 2, most=64),
        narrower,
        fields.integer("num_multimask_outputs", 3, most=64),
        (fields.integer("iou_head_hidden_dim", 256), depth),
        fields.text("hidden_act", "relu"),
        fields.number("layer_norm_eps", 1e-6, most=1),
    )


def _model(fields: Fields) -> Sam:
    encoder, decoder = (
        _encoder(_section(fields, "vision_config")),
        _decoder(_section(fields, "mask_decoder_config")),
    )
    if encoder.outputs != decoder.hidden:
        raise LoadError(
            f"{fields.path}: output_channels {encoder.outputs} of the encoder is not the decoder's "
            f"hidden_size {decoder.hidden}"
        )
    return Sam(encoder, decoder)


def _section(fields: Fields, key: str) -> Fields:
    """Old files give only what differs from the smallest model."""
    section = fields.section(key)
    defaults = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12}
    return Fields(
        (defaults if key == "vision_config" else {}) | dict(section.values), fields.path, key
    )


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    joined = {
        ours: np.concatenate([tensors[name] for name in names])
        for ours, names in _TABLES.items()
        if all(name in tensors for name in names)
    }
    apart = {name for ours in joined for name in _TABLES[ours]}
    rest = {name: array for name, array in tensors.items() if name not in apart}
    depth = _section(fields, "mask_decoder_config").integer("iou_head_depth", 3)
    weights: dict[str, Array] = dict(joined)
    for name, array in renamed(rest, _NAMES).items():
        if name == "no_mask" or name == "encoder.positions":
            weights[name] = array.reshape(array.shape[1:])
        elif ".attention.qkv." in name:
            for part, rows in zip("qkv", np.split(array, 3), strict=True):
                weights[name.replace(".qkv.", f".{part}_proj.")] = rows
        elif match := _PERCEPTRON.match(name):
            path, kind, number, end = match.groups()
            last = (depth if path == "scorer" else 3) - 1
            at = {"proj_in": 0, "proj_out": last}.get(kind)
            weights[f"{path}.layers.{int(number) + 1 if at is None else at}.{end}"] = array
        else:  # norms count from 1
            ours = _NORM.sub(lambda norm: f"{norm[1]}.{int(norm[2]) - 1}.", name)
            weights[ours] = array
    return weights


SAM = Family(_model, _weights, SegmentAnything.of_folder)
