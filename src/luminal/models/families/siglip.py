"""SigLIP and SigLIP 2, whole or the image part alone. arXiv 2303.15343, 2502.14786."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.loaders.image import Preparation, values_of
from luminal.models.checkpoint import folder_processor
from luminal.models.families.clip import LAYER_NAMES, encoder_layers, part_of
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.image_model import ImageEncoder, folder_preparation
from luminal.models.image_text import ImageTextModel, folder_filler
from luminal.models.siglip import Siglip, SiglipConfig, SiglipVision
from luminal.models.transformer import TransformerConfig
from luminal.models.vision_transformer import VisionConfig

_VISION_NAMES: Names = (
    (r"^vision\.embeddings\.position_embedding\.weight$", "vision.encoder.positions"),
    (r"^vision\.embeddings\.patch_embedding\.", "vision.encoder.patches."),
    (r"^vision\.encoder\.layers\.", "vision.encoder.transformer.layers."),
    (r"^vision\.post_layernorm\.", "vision.encoder.transformer.norm."),
    (r"^vision\.head\.layernorm\.", "vision.pool.norm."),
    (r"^vision\.head\.mlp\.fc1\.", "vision.pool.mlp.up_proj."),
    (r"^vision\.head\.mlp\.fc2\.", "vision.pool.mlp.down_proj."),
    (r"^vision\.head\.", "vision.pool."),
    *LAYER_NAMES,
)
_NAMES: Names = (
    (r"position_ids$", None),
    (r"^vision_model\.", "vision."),
    (r"^text_model\.embeddings\.token_embedding\.", "embed_tokens."),
    (r"^text_model\.embeddings\.position_embedding\.", "embed_positions."),
    (r"^text_model\.encoder\.", "text."),
    (r"^text_model\.final_layer_norm\.", "text.norm."),
    (r"^text_model\.head\.", "head."),
    *_VISION_NAMES,
)
_VISION_ALONE: Names = (
    (r"position_ids$", None),
    (r"^(vision_model\.)?", "vision."),
    *_VISION_NAMES,
)
_LAYERS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
_TEXT = {**_LAYERS, "vocab_size": 32000, "max_position_embeddings": 64, "pad_token_id": 1}
_VISION = {**_LAYERS, "num_channels": 3, "patch_size": 16, "image_size": 224, "num_patches": 256}


def _layers(fields: Fields) -> TransformerConfig:
    return encoder_layers(fields, "gelu_pytorch_tanh", 1e-6)


def _side(fields: Fields, is_second: bool) -> int:
    """The side of the square images. SigLIP 2's own form says how many patches there are."""
    if not is_second:
        return fields.integer("image_size")
    count = fields.integer("num_patches")
    side = math.isqrt(count)
    if side * side != count:
        raise LoadError(f"{fields.path}: num_patches is {count}, which is no square's number")
    return side * fields.integer("patch_size")


def _is_second(fields: Fields) -> bool:
    return fields.text("model_type", "").startswith("siglip2")


def _images(fields: Fields, is_second: bool) -> VisionConfig:
    fields = replace(fields, values={**_VISION, **fields.values})
    if not fields.flag("vision_use_head", True):
        raise LoadError(
            f"{fields.path}: vision_use_head is False; an image has no vector of its own then"
        )
    side, patch = _side(fields, is_second), fields.integer("patch_size")
    channels = fields.integer("num_channels")
    return VisionConfig(side, patch, channels, _layers(fields), first_token=False)


def _vision(fields: Fields) -> SiglipVision:
    return SiglipVision(_images(fields, _is_second(fields)))


def _model(fields: Fields) -> Siglip:
    text = part_of(fields, "text_config", _TEXT)
    vision = _images(fields.section("vision_config"), _is_second(fields))
    layers, width = _layers(text), vision.layers.hidden_size
    if text.integer("projection_size", layers.hidden_size) != width:
        raise LoadError(
            f"{fields.path}: projection_size of texts is {text.values['projection_size']}, "
            f"hidden_size of images {width}; their vectors must have one width"
        )
    count = text.integer("vocab_size")
    positions = text.integer("max_position_embeddings")
    filler = text.token_id("pad_token_id", count)
    return Siglip(SiglipConfig(width, vision, count, positions, layers, filler))


def _weights(names: Names, tensors: Mapping[str, Array], config: VisionConfig) -> dict[str, Array]:
    weights = {}
    for name, array in renamed(tensors, names).items():
        if name.startswith("vision.pool.attention.in_proj_"):
            kind = name.rpartition("_")[2]
            for part, rows in zip("qkv", np.split(array, 3), strict=True):
                weights[f"vision.pool.attention.{part}_proj.{kind}"] = rows
        elif name == "vision.encoder.patches.weight" and array.ndim == 2:
            # SigLIP 2 multiplies patches that lie flat, colours last.
            square = array.reshape(-1, config.patch_size, config.patch_size, config.channels)
            weights[name] = np.ascontiguousarray(square.transpose(0, 3, 1, 2))
        elif name in ("vision.pool.probe", "logit_scale", "logit_bias"):
            weights[name] = array.reshape(array.shape[-1:] if "probe" in name else ())
        else:
            weights[name.replace("pool.attention.out_proj.", "pool.attention.o_proj.")] = array
    return weights


def _whole_weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    return _weights(_NAMES, tensors, _images(fields.section("vision_config"), _is_second(fields)))


def _vision_weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    config = _images(fields, _is_second(fields))
    weights = _weights(_VISION_ALONE, tensors, config)
    return {name.removeprefix("vision."): array for name, array in weights.items()}


def _preparation(folder: Path, config: VisionConfig) -> Preparation:
    """By the settings of the folder. SigLIP 2's name no size: images become squares."""
    fields = folder_processor(folder, "image_processor")
    if "max_num_patches" in fields.values:
        return replace(values_of(fields), size=(config.image_size, config.image_size))
    return folder_preparation(folder)


def _encoder(folder: Path, model: SiglipVision, mode: Any, backend: str) -> ImageEncoder:
    return ImageEncoder(model, _preparation(folder, model.config), mode, backend)


def _images_and_texts(folder: Path, model: Siglip, mode: Any, backend: str) -> ImageTextModel:
    tokenizer, filler = folder_filler(folder, model.config.vocab_size, model.config.filler)
    prepare = _preparation(folder, model.config.vision)
    return ImageTextModel(model, prepare, tokenizer, mode, backend, filler=filler)


SIGLIP = Family(_model, _whole_weights, _images_and_texts)
SIGLIP_VISION = Family(_vision, _vision_weights, _encoder)
