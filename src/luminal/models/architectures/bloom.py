"""BLOOM: linear biases for positions, a norm of the embedding. arXiv 2211.05100."""

from __future__ import annotations

from luminal.loaders.fields import MAX_SIZE, Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import MAX_LAYERS, TIED, Setting, epsilon, integer, plain
from luminal.models.gguf.form import GGUF


def _renamed_once(key: str, older: str, most: int = MAX_SIZE) -> Setting:
    """A size that older files have under another key."""

    def read(fields: Fields) -> int:
        # The newer key wins where a file has both, as transformers reads them.
        return fields.integer(key if fields.values.get(key) is not None else older, most=most)

    return Setting(key, read)


_HIDDEN = _renamed_once("hidden_size", "n_embed")

BLOOM = Architecture(
    "BloomForCausalLM",
    {
        **plain(bias=True),
        **TIED,
        "num_hidden_layers": _renamed_once("n_layer", "num_hidden_layers", MAX_LAYERS),
        "hidden_size": _HIDDEN,
        "intermediate_size": lambda fields: 4 * _HIDDEN.read(fields),
        "num_attention_heads": _renamed_once("n_head", "num_attention_heads"),
        "num_key_value_heads": None,
        "head_dim": None,
        "max_position_embeddings": integer("seq_length", 2048),
        "activation": "gelu_pytorch_tanh",  # no key says it
        "norm_eps": epsilon(1e-5, "layer_norm_epsilon"),
        "positions": "alibi",
        "embedding_norm": True,
    },
    {
        "transformer.h.": "model.layers.",
        "transformer.word_embeddings.": "model.embed_tokens.",
        "transformer.word_embeddings_layernorm.": "model.embed_norm.",
        "transformer.ln_f.": "model.norm.",
        ".self_attention.query_key_value.": ".self_attn.qkv_proj.",
        ".self_attention.dense.": ".self_attn.o_proj.",
        ".dense_h_to_4h.": ".up_proj.",
        ".dense_4h_to_h.": ".down_proj.",
    },
    layers=None,
    only={"apply_residual_connection_post_layernorm": False},
    prefix="transformer.",
    grouped=True,
    gguf=GGUF("bloom"),
)
