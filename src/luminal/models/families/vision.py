"""ViT and DINOv2. arXiv 2010.11929, 2304.07193."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import layer_count
from luminal.models.classifier import Classifier
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import head_dim, labels_of
from luminal.models.image_model import ImageClassifier, ImageEncoder
from luminal.models.transformer import TransformerConfig
from luminal.models.vision_transformer import VisionConfig, VisionTransformer

_FLAT = ("first", "positions")
_NAMES: Names = (
    (r"mask_token$|\bpooler\.", None),
    (r"^(vit|dinov2)\.", ""),
    (r"^classifier\.", "head."),
    (r"^embeddings\.cls_token$", "first"),
    (r"^embeddings\.position_embeddings$", "positions"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patches."),
    (r"^layernorm\.", "transformer.norm."),
    (r"^encoder\.layer\.", "transformer.layers."),
    (r"\.attention\.attention\.query\.", ".attention.part.q_proj."),
    (r"\.attention\.attention\.key\.", ".attention.part.k_proj."),
    (r"\.attention\.attention\.value\.", ".attention.part.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.part.o_proj."),
    (r"\.(layernorm_before|norm1)\.", ".attention.norm."),
    (r"\.(layernorm_after|norm2)\.", ".mlp.norm."),
    (r"\.layer_scale1\.lambda1$", ".attention.scale"),
    (r"\.layer_scale2\.lambda1$", ".mlp.scale"),
    (r"\.(intermediate\.dense|mlp\.fc1)\.", ".mlp.part.up_proj."),
    (r"\.(output\.dense|mlp\.fc2|mlp\.weights_out)\.", ".mlp.part.down_proj."),
)


def _vit(fields: Fields) -> VisionConfig:
    layers = TransformerConfig(
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=layer_count(fields),
        num_attention_heads=fields.integer("num_attention_heads"),
        head_dim=head_dim(fields, "hidden_size", "num_attention_heads"),
        activation=fields.text("hidden_act", "gelu"),
        norm_eps=fields.number("layer_norm_eps", 1e-12, most=1),
        attention_bias=fields.flag("qkv_bias", True),
        output_bias=True,
    )
    return _config(fields, layers)


def _dinov2(fields: Fields) -> VisionConfig:
    hidden, ratio = fields.integer("hidden_size"), fields.number("mlp_ratio", 4)
    gated = fields.flag("use_swiglu_ffn", False)
    inner = int(hidden * ratio)
    layers = TransformerConfig(
        hidden_size=hidden,
        # A gate is a third matrix: at two thirds of the width the parameters are as many.
        intermediate_size=(inner * 2 // 3 + 7) // 8 * 8 if gated else inner,
        num_hidden_layers=layer_count(fields),
        num_attention_heads=fields.integer("num_attention_heads"),
        head_dim=head_dim(fields, "hidden_size", "num_attention_heads"),
        activation="silu" if gated else fields.text("hidden_act", "gelu"),
        gated=gated,
        norm_eps=fields.number("layer_norm_eps", 1e-6, most=1),
        attention_bias=fields.flag("qkv_bias", True),
        output_bias=True,
        layer_scale=True,
    )
    return _config(fields, layers)


def _config(fields: Fields, layers: TransformerConfig) -> VisionConfig:
    return VisionConfig(
        fields.integer("image_size", 224),
        fields.integer("patch_size", 16),
        fields.integer("num_channels", 3),
        layers,
    )


def _weights(prefix: str, tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    """`prefix`: of all names but the head's."""
    weights = {}
    for name, array in renamed(tensors, _NAMES).items():
        if name in _FLAT:
            # The files have a batch of one in front of both.
            array = array.reshape(-1, array.shape[-1])[0 if name == "first" else slice(None)]
        if ".mlp.weights_in." in name:
            for part, rows in zip(("gate", "up"), np.split(array, 2), strict=True):
                weights[prefix + name.replace(".mlp.weights_in.", f".mlp.part.{part}_proj.")] = rows
        else:
            weights[name if name.startswith("head.") else prefix + name] = array
    return weights


def _classifier(fields: Fields, config: VisionConfig) -> Classifier:
    trunk = VisionTransformer(config)
    return Classifier(trunk, trunk.width, len(labels_of(fields)))


VIT = Family(
    lambda fields: VisionTransformer(_vit(fields)), partial(_weights, ""), ImageEncoder.of_folder
)
VIT_CLASSIFIER = Family(
    lambda fields: _classifier(fields, _vit(fields)),
    partial(_weights, "trunk."),
    ImageClassifier.of_folder,
)
DINOV2 = Family(
    lambda fields: VisionTransformer(_dinov2(fields)), partial(_weights, ""), ImageEncoder.of_folder
)
DINOV2_CLASSIFIER = Family(
    lambda fields: _classifier(fields, replace(_dinov2(fields), with_mean=True)),
    partial(_weights, "trunk."),
    ImageClassifier.of_folder,
)
