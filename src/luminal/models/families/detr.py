"""DETR with a ResNet, whose weights transformers or timm named. Carion et al., arXiv 2005.12872."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.settings import layer_count, refuse
from luminal.models.detr import Detr, DetrConfig
from luminal.models.detr_detector import DetrDetector
from luminal.models.families.convolutional import names_of, resnet
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, new_name, renamed
from luminal.models.families.settings import head_dim, labels_of
from luminal.models.transformer import TransformerConfig

_PREFIX = r"^model\.backbone\.(conv_encoder\.)?model\."
_TIMM: Names = (
    (_PREFIX, "resnet."),
    (r"^resnet\.(conv1|_?bn1)\.", r"resnet.embedder.embedder.\1."),
    (r"^resnet\.layer4\.", "resnet.encoder.stages.3.layers."),
    (r"^resnet\.layer3\.", "resnet.encoder.stages.2.layers."),
    (r"^resnet\.layer2\.", "resnet.encoder.stages.1.layers."),
    (r"^resnet\.layer1\.", "resnet.encoder.stages.0.layers."),
    (r"\.downsample\.0\.", ".shortcut.convolution."),
    (r"\.downsample\.1\.", ".shortcut.normalization."),
    (r"\.embedder\.conv1\.", ".embedder.convolution."),
    (r"\.embedder\.bn1\.", ".embedder.normalization."),
    (r"\.conv1\.", ".layer.0.convolution."),
    (r"\.conv2\.", ".layer.1.convolution."),
    (r"\.conv3\.", ".layer.2.convolution."),
    (r"\.bn1\.", ".layer.0.normalization."),
    (r"\.bn2\.", ".layer.1.normalization."),
    (r"\.bn3\.", ".layer.2.normalization."),
)
"""From the names of timm's ResNets to those of transformers', which stay as they are."""
_NAMES: Names = (
    (r"^model\.input_projection\.", "projection."),
    (r"^model\.query_position_embeddings\.weight$", "queries"),
    (r"^model\.decoder\.layernorm\.", "norm."),
    (r"^model\.(encoder|decoder)\.layers\.", r"\1."),
    (r"^class_labels_classifier\.", "head."),
    (r"^bbox_predictor\.layers\.", "boxes."),
    (r"\.self_attn\.", ".attention."),
    (r"\.self_attn_layer_norm\.", ".norm."),
    (r"\.encoder_attn\.", ".cross."),
    (r"\.encoder_attn_layer_norm\.", ".cross_norm."),
    (r"\.final_layer_norm\.", ".last_norm."),
    (r"\.out_proj\.", ".o_proj."),
    (r"\.fc1\.", ".mlp.up_proj."),
    (r"\.fc2\.", ".mlp.down_proj."),
)
_DEPTHS = {
    "resnet18": [2, 2, 2, 2],
    "resnet34": [3, 4, 6, 3],
    "resnet50": [3, 4, 6, 3],
    "resnet101": [3, 4, 23, 3],
    "resnet152": [3, 8, 36, 3],
}
_BASIC = ("resnet18", "resnet34")
"""ResNets of blocks with two convolutions."""


def _trunk(fields: Fields) -> Fields:
    """The configuration of the ResNet, or what transformers' would be for one that timm names."""
    section = fields.section("backbone_config")
    if section.text("model_type", "timm_backbone") == "resnet":
        return section
    name = section.text("backbone", fields.text("backbone", "resnet50"))
    if name not in _DEPTHS:
        raise LoadError(
            f"{fields.path}: backbone {shown(name)} is not supported; {', '.join(_DEPTHS)} are"
        )
    basic = name in _BASIC
    values: dict[str, Any] = {
        "depths": _DEPTHS[name],
        "embedding_size": 64,
        "hidden_sizes": [64 * 2**stage * (1 if basic else 4) for stage in range(4)],
        "layer_type": "basic" if basic else "bottleneck",
        "num_channels": fields.integer("num_channels", 3),
    }
    return Fields(values, fields.path, "backbone")


def _part(fields: Fields, name: str) -> TransformerConfig:
    return TransformerConfig(
        hidden_size=fields.integer("d_model", 256),
        intermediate_size=fields.integer(f"{name}_ffn_dim", 2048),
        num_hidden_layers=layer_count(fields, f"{name}_layers"),
        num_attention_heads=fields.integer(f"{name}_attention_heads", 8),
        head_dim=head_dim(fields, "d_model", f"{name}_attention_heads"),
        activation=fields.text("activation_function", "relu"),
        norm_eps=1e-5,
        norm_place="after",
    )


def _model(fields: Fields) -> Detr:
    refuse(fields, dilation=False, position_embedding_type="sine")
    if fields.integer("d_model", 256) % 4:
        raise LoadError(f"{fields.path}: d_model must be a multiple of 4, for waves of places")
    return Detr(
        DetrConfig(
            tuple(named.block for named in resnet(_trunk(fields))),
            _part(fields, "encoder"),
            _part(fields, "decoder"),
            fields.integer("num_queries", 100),
            len(labels_of(fields)),
        )
    )


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    plain = {new_name(name, _TIMM) or name: array for name, array in tensors.items()}
    return renamed(plain, (*names_of(resnet(_trunk(fields))), *_NAMES))


DETR = Family(_model, _weights, DetrDetector.of_folder)
