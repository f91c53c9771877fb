"""CLIP. Radford et al., arXiv 2103.00020."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import layer_count
from luminal.models.clip import Clip, ClipConfig, ClipText
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import head_dim
from luminal.models.image_text import ImageTextModel
from luminal.models.transformer import TransformerConfig
from luminal.models.vision_transformer import VisionConfig

LAYER_NAMES: Names = (
    (r"\.self_attn\.", ".attention.part."),
    (r"\.out_proj\.", ".o_proj."),
    (r"\.layer_norm1\.", ".attention.norm."),
    (r"\.layer_norm2\.", ".mlp.norm."),
    (r"\.fc1\.", ".part.up_proj."),
    (r"\.fc2\.", ".part.down_proj."),
)
CLIP_NAMES: Names = (
    (r"position_ids$", None),
    (r"^vision_model\.embeddings\.class_embedding$", "vision.first"),
    (r"^vision_model\.embeddings\.position_embedding\.weight$", "vision.positions"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "vision.patches."),
    (r"^vision_model\.pre_layrnorm\.", "vision.embed_norm."),
    (r"^vision_model\.post_layernorm\.", "vision.transformer.norm."),
    (r"^vision_model\.encoder\.", "vision.transformer."),
    (r"^text_model\.embeddings\.token_embedding\.", "text.embed_tokens."),
    (r"^text_model\.embeddings\.position_embedding\.", "text.embed_positions."),
    (r"^text_model\.final_layer_norm\.", "text.transformer.norm."),
    (r"^text_model\.encoder\.", "text.transformer."),
    *LAYER_NAMES,
)
_TEXT = {
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "eos_token_id": 49407,
}
_WRONG_END = 2  # so the first files say; they mean the token of the highest id
_VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
}


def part_of(fields: Fields, key: str, defaults: Mapping[str, Any]) -> Fields:
    """A part's settings with what their class has where files leave it out."""
    section = fields.section(key)
    return Fields({**defaults, **section.values}, section.path, key)


def encoder_layers(fields: Fields, activation: str, epsilon: float) -> TransformerConfig:
    """The layers of a part, with these defaults."""
    return TransformerConfig(
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=layer_count(fields),
        num_attention_heads=fields.integer("num_attention_heads"),
        head_dim=head_dim(fields, "hidden_size", "num_attention_heads"),
        activation=fields.text("hidden_act", activation),
        norm_eps=fields.number("layer_norm_eps", epsilon, most=1),
    )


def _layers(fields: Fields) -> TransformerConfig:
    return encoder_layers(fields, "quick_gelu", 1e-5)


def clip_text(fields: Fields) -> ClipText:
    """The text part that a configuration of its own describes."""
    text = Fields({**_TEXT, **fields.values}, fields.path, fields.what)
    return ClipText(
        text.integer("vocab_size"), text.integer("max_position_embeddings"), _layers(text)
    )


def _model(fields: Fields) -> Clip:
    text, vision = part_of(fields, "text_config", _TEXT), part_of(fields, "vision_config", _VISION)
    images = VisionConfig(
        vision.integer("image_size"),
        vision.integer("patch_size"),
        vision.integer("num_channels"),
        _layers(vision),
        patch_bias=False,
        embedding_norm=True,
    )
    # A text's vector is that at its end token, so where that is has to be known.
    end = text.token_id("eos_token_id", text.integer("vocab_size"))
    return Clip(
        ClipConfig(
            fields.integer("projection_dim", 512),
            images,
            text.integer("vocab_size"),
            text.integer("max_position_embeddings"),
            _layers(text),
            None if end == _WRONG_END else end,
        )
    )


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    return renamed(tensors, CLIP_NAMES)


CLIP = Family(_model, _weights, ImageTextModel.of_folder)
