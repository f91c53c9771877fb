"""GPT-NeoX and Pythia: attention and feed-forward in parallel. Black et al., arXiv 2204.06745."""

from __future__ import annotations

from luminal.loaders.fields import Fields
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of
from luminal.models.architectures.settings import attention_biases, choice, epsilon, text
from luminal.models.decoder_config import Layers
from luminal.models.gguf.form import GGUF
from luminal.models.gguf.names import NO_HEAD_DIM


def _layers(fields: Fields) -> Layers:
    """Before `rope_parameters`, files had `rotary_pct` and `rotary_emb_base`."""
    theta = fields.number("rotary_emb_base", 10000.0)
    share = fields.number("rotary_pct", 0.25)
    return layers_of(fields, rotary=rotary_of(fields, theta=theta, share=share))


GPT_NEOX = Architecture(
    "GPTNeoXForCausalLM",
    {
        **attention_biases(default=True),
        "mlp_bias": True,
        "num_key_value_heads": None,
        "activation": text("hidden_act", "gelu"),
        "gated": False,
        "norm": "layer",
        "norm_eps": epsilon(1e-5, "layer_norm_eps"),
        "parallel": choice("use_parallel_residual", True, "separate"),
    },
    {
        "gpt_neox.": "model.",
        ".embed_in.": ".embed_tokens.",
        ".final_layer_norm.": ".norm.",
        "embed_out.": "lm_head.",
        ".attention.query_key_value.": ".self_attn.qkv_proj.",
        ".attention.dense.": ".self_attn.o_proj.",
        ".dense_h_to_4h.": ".up_proj.",
        ".dense_4h_to_h.": ".down_proj.",
    },
    layers=_layers,
    grouped=True,
    gguf=GGUF("gptneox", "gpt_neox", keys=NO_HEAD_DIM),
)
