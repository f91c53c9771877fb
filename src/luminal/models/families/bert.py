"""BERT, RoBERTa and DistilBERT. arXiv 1810.04805, 1907.11692, 1910.01108."""

from __future__ import annotations

from collections.abc import Mapping

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import layer_count, refuse
from luminal.models.embed import TextEncoder
from luminal.models.encoder import Encoder, EncoderConfig
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.families.settings import head_dim
from luminal.models.transformer import TransformerConfig

_POSITIONS = "embed_positions.weight"
_HEADS: Names = (
    (r"^(cls|classifier|pre_classifier|qa_outputs|lm_head|vocab_\w+)\.|\bpooler\.", None),
    (r"position_ids$", None),
)
_EMBEDDINGS: Names = (
    (r"^embeddings\.word_embeddings\.", "embed_tokens."),
    (r"^embeddings\.position_embeddings\.", "embed_positions."),
    (r"^embeddings\.token_type_embeddings\.", "embed_segments."),
    (r"^embeddings\.LayerNorm\.", "embed_norm."),
)
_BERT_NAMES: Names = (
    *_HEADS,
    (r"^(bert|roberta)\.", ""),
    (r"\bgamma$", "weight"),  # in files made from TensorFlow's
    (r"\bbeta$", "bias"),
    *_EMBEDDINGS,
    (r"^encoder\.layer\.", "transformer.layers."),
    (r"\.attention\.self\.query\.", ".attention.part.q_proj."),
    (r"\.attention\.self\.key\.", ".attention.part.k_proj."),
    (r"\.attention\.self\.value\.", ".attention.part.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.part.o_proj."),
    (r"\.attention\.output\.LayerNorm\.", ".attention.norm."),
    (r"\.intermediate\.dense\.", ".mlp.part.up_proj."),
    (r"\.output\.dense\.", ".mlp.part.down_proj."),
    (r"\.output\.LayerNorm\.", ".mlp.norm."),
)
_DISTILBERT_NAMES: Names = (
    *_HEADS,
    (r"^distilbert\.", ""),
    *_EMBEDDINGS,
    (r"^transformer\.layer\.", "transformer.layers."),
    (r"\.attention\.([qkv])_lin\.", r".attention.part.\1_proj."),
    (r"\.attention\.out_lin\.", ".attention.part.o_proj."),
    (r"\.sa_layer_norm\.", ".attention.norm."),
    (r"\.ffn\.lin1\.", ".mlp.part.up_proj."),
    (r"\.ffn\.lin2\.", ".mlp.part.down_proj."),
    (r"\.output_layer_norm\.", ".mlp.norm."),
)


def _bert(fields: Fields, placeless: int | None = None) -> Encoder:
    """`placeless`: as an EncoderConfig's; rows of the table before its own are not used."""
    refuse(fields, is_decoder=False, add_cross_attention=False, position_embedding_type="absolute")
    layers = TransformerConfig(
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_hidden_layers=layer_count(fields),
        num_attention_heads=fields.integer("num_attention_heads"),
        head_dim=head_dim(fields, "hidden_size", "num_attention_heads"),
        activation=fields.text("hidden_act", "gelu"),
        norm_eps=fields.number("layer_norm_eps", 1e-12, most=1),
        norm_place="after",
    )
    unused = 0 if placeless is None else placeless + 1
    positions = fields.integer("max_position_embeddings", 512) - unused
    if positions < 1:
        raise LoadError(
            f"{fields.path}: max_position_embeddings leaves no position after {unused} for padding"
        )
    segments = fields.integer("type_vocab_size", 2, least=0)
    count = fields.integer("vocab_size")
    return Encoder(EncoderConfig(count, positions, segments, layers, placeless=placeless))


def _distilbert(fields: Fields) -> Encoder:
    layers = TransformerConfig(
        hidden_size=fields.integer("dim", 768),
        intermediate_size=fields.integer("hidden_dim", 3072),
        num_hidden_layers=layer_count(fields, "n_layers"),
        num_attention_heads=fields.integer("n_heads", 12),
        head_dim=head_dim(fields, "dim", "n_heads"),
        activation=fields.text("activation", "gelu"),
        norm_place="after",
    )
    positions = fields.integer("max_position_embeddings", 512)
    return Encoder(EncoderConfig(fields.integer("vocab_size"), positions, 0, layers))


def _padding(fields: Fields) -> int:
    """RoBERTa counts positions from the one after its padding token's id, that token not counted,
    though a text may have it as one of its own.
    """
    return fields.integer("pad_token_id", 1, least=0)


def _roberta_weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    weights = renamed(tensors, _BERT_NAMES)
    if _POSITIONS in weights:
        # What remains is the row of padding, and behind it those of positions from 0 on.
        weights[_POSITIONS] = weights[_POSITIONS][_padding(fields) :]
    return weights


BERT = Family(_bert, lambda tensors, fields: renamed(tensors, _BERT_NAMES), TextEncoder.of_folder)
ROBERTA = Family(
    lambda fields: _bert(fields, _padding(fields)), _roberta_weights, TextEncoder.of_folder
)
DISTILBERT = Family(
    _distilbert,
    lambda tensors, fields: renamed(tensors, _DISTILBERT_NAMES),
    TextEncoder.of_folder,
)
