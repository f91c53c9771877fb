"""T5, T5 1.1 and Flan-T5. arXiv 1910.10683, 2210.11416."""

from __future__ import annotations

from collections.abc import Mapping

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.architectures.settings import layer_count
from luminal.models.families.family import Family
from luminal.models.families.renaming import Names, renamed
from luminal.models.t5 import T5, T5Config
from luminal.models.text_to_text import TextToText
from luminal.models.transformer import TransformerConfig

_MOST_POSITIONS = 1 << 17  # a damaged file may speak of any number, and caches have as many
_EMBEDDING, _OUTPUT = "embed_tokens.weight", "lm_head.weight"
_NAMES: Names = (
    (r"^(encoder|decoder)\.embed_tokens\.", None),  # `shared` again
    (r"EncDecAttention\.relative_attention_bias\.", None),  # of the first files, never used
    (r"^shared\.", "embed_tokens."),
    (r"^(\w+)\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.", r"\1_bias."),
    (r"\.block\.", ".layers."),
    (r"\.final_layer_norm\.", ".norm."),
    (r"\.layer\.0\.SelfAttention\.(\w)\.", r".attention.part.\1_proj."),
    (r"\.layer\.0\.layer_norm\.", ".attention.norm."),
    (r"\.layer\.1\.EncDecAttention\.(\w)\.", r".cross.part.\1_proj."),
    (r"^(decoder.*)\.layer\.1\.layer_norm\.", r"\1.cross.norm."),
    (r"\.layer\.\d\.layer_norm\.", ".mlp.norm."),
    (r"\.layer\.\d\.DenseReluDense\.", ".mlp.part."),
    (r"\.wi_0\.", ".gate_proj."),
    (r"\.wi(_1)?\.", ".up_proj."),
    (r"\.wo\.", ".down_proj."),
)


def _part(fields: Fields, layers: int, crossed: bool) -> TransformerConfig:
    kind = fields.text("feed_forward_proj", "relu")
    gated = kind.startswith("gated-")
    return TransformerConfig(
        hidden_size=fields.integer("d_model"),
        intermediate_size=fields.integer("d_ff"),
        num_hidden_layers=layers,
        num_attention_heads=fields.integer("num_heads"),
        head_dim=fields.integer("d_kv"),
        # "gated-gelu" means the approximation by tanh, with which T5 1.1 was trained; transformers
        # reads it so.
        activation="gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-"),
        gated=gated,
        rms=True,
        norm_eps=fields.number("layer_norm_epsilon", 1e-6, most=1),
        attention_bias=False,
        mlp_bias=False,
        scale=1.0,
        cross_attention=crossed,
    )


def _model(fields: Fields) -> T5:
    layers = layer_count(fields, "num_layers")
    further = fields.values.get("num_decoder_layers")
    farthest = fields.integer("relative_attention_max_distance", 128, most=_MOST_POSITIONS)
    buckets = fields.integer("relative_attention_num_buckets", 32, least=4)
    # Far distances share buckets by a logarithm, which needs more distances than buckets.
    if farthest <= buckets:
        raise LoadError(
            f"{fields.path}: relative_attention_max_distance is {farthest}; it must be above "
            f"relative_attention_num_buckets, {buckets}"
        )
    return T5(
        T5Config(
            fields.integer("vocab_size"),
            fields.integer("n_positions", 512, most=_MOST_POSITIONS),
            buckets,
            farthest,
            fields.flag("scale_decoder_outputs", fields.flag("tie_word_embeddings", True)),
            _part(fields, layers, False),
            _part(fields, layer_count(fields, "num_decoder_layers") if further else layers, True),
        )
    )


def _weights(tensors: Mapping[str, Array], fields: Fields) -> dict[str, Array]:
    weights = renamed(tensors, _NAMES)
    # Files of T5 have no output matrix where it is the embedding; those of 1.1 have both.
    if _EMBEDDING in weights:
        weights.setdefault(_OUTPUT, weights[_EMBEDDING])
    return weights


T5_FAMILY = Family(_model, _weights, TextToText.of_folder)
