"""ModernBERT: rotary positions, most layers with a short reach. Warner et al., arXiv 2412.13663."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.settings import layer_count, refuse
from luminal.models.embed import TextEncoder
from luminal.models.encoder import Encoder, EncoderConfig
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import head_dim
from luminal.models.transformer import LayerKind, TransformerConfig

_NAMES: Names = (
    (r"^(head|decoder|classifier)\.", None),
    (r"^model\.", ""),
    (r"^embeddings\.tok_embeddings\.", "embed_tokens."),
    (r"^embeddings\.norm\.", "embed_norm."),
    (r"^final_norm\.", "transformer.norm."),
    (r"^layers\.", "transformer.layers."),
    (r"\.attn_norm\.", ".attention.norm."),
    (r"\.mlp_norm\.", ".mlp.norm."),
    (r"\.attn\.Wo\.", ".attention.part.o_proj."),
    (r"\.attn\.Wqkv\.", ".attention.part.*_proj."),
    (r"\.mlp\.Wo\.", ".mlp.part.down_proj."),
    (r"\.mlp\.Wi\.", ".mlp.part.*_proj."),
)
_FULL, _SLIDING = "full_attention", "sliding_attention"


def _kinds(fields: Fields) -> tuple[LayerKind, ...]:
    """By `layer_types`, else every n-th layer sees all; each kind has a theta of its own."""
    rope = fields.section("rope_parameters")
    thetas = {}
    for name, old, default in (
        (_FULL, "global_rope_theta", 160_000.0),
        (_SLIDING, "local_rope_theta", 10_000.0),
    ):
        section = rope.section(name)
        refuse(section, rope_type="default")
        thetas[name] = section.number("rope_theta", fields.number(old, default, 1), 1)
    count = layer_count(fields)
    step = fields.integer("global_attn_every_n_layers", 3)
    default_types = [_SLIDING if number % step else _FULL for number in range(count)]
    types = fields.listed("layer_types", str, default_types)
    if len(types) != count or not set(types) <= {_FULL, _SLIDING}:
        raise LoadError(
            f"{fields.path}: layer_types is {shown(types)}; it must be {_FULL!r} or {_SLIDING!r} "
            f"for each of {count} layers"
        )
    # The file gives the whole width of the window, of which half lies on either side.
    reach = fields.integer("local_attention", 128, least=2) // 2
    return tuple(LayerKind(reach if kind == _SLIDING else None, thetas[kind]) for kind in types)


def _model(fields: Fields) -> Encoder:
    refuse(fields, position_embedding_type="rotary")
    bias = fields.flag("mlp_bias", False)
    kinds = _kinds(fields)
    layers = TransformerConfig(
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=len(kinds),
        num_attention_heads=fields.integer("num_attention_heads"),
        head_dim=head_dim(fields, "hidden_size", "num_attention_heads"),
        activation=fields.text("hidden_activation", "gelu"),
        gated=True,
        norm_eps=fields.number("norm_eps", 1e-5, most=1),
        attention_bias=fields.flag("attention_bias", False),
        mlp_bias=bias,
        norm_bias=fields.flag("norm_bias", False),
        first_norm=False,
        kinds=kinds,
    )
    positions = fields.integer("max_position_embeddings", 8192)
    return Encoder(EncoderConfig(fields.integer("vocab_size"), positions, 0, layers, learned=False))


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    """With what is stored as one array taken apart."""
    weights = {}
    for name, array in renamed(tensors, _NAMES).items():
        if "*" not in name:
            weights[name] = array
            continue
        # The names end in a star so that one table of names serves both kinds of fused arrays.
        parts = ("q", "k", "v") if ".attention." in name else ("gate", "up")
        if array.shape[0] % len(parts):
            raise LoadError(f"weights: {name!r} has {array.shape[0]} rows for {len(parts)} parts")
        for part, rows in zip(parts, np.split(array, len(parts)), strict=True):
            weights[name.replace("*", part)] = rows
    return weights


MODERNBERT = Family(_model, _weights, TextEncoder.of_folder)
