"""Decoders of recurrent layers."""

from __future__ import annotations

from luminal.loaders.gguf_models.architecture import GGUFArchitecture
from luminal.loaders.gguf_models.rearranged import BY_CHANNEL, LOGARITHMS

_MAMBA_KEYS = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
    "ssm.conv_kernel": "conv_kernel",
    "ssm.inner_size": "intermediate_size",
    "ssm.state_size": "state_size",
    "ssm.time_step_rank": "time_step_rank",
}
_MAMBA_LAYERS = {
    "norm": "attn_norm",
    "mixer.in_proj": "ssm_in",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.x_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.out_proj": "ssm_out",
}
_MAMBA_NAMES = {
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
    "lm_head": "output",
}
_MAMBA_FLAGS = {"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"}
_MAMBA_CHANGES = {"ssm_conv1d": BY_CHANNEL, "ssm_a": LOGARITHMS}

ARCHITECTURES: tuple[GGUFArchitecture, ...] = (
    GGUFArchitecture(
        "FalconMambaForCausalLM",
        "mamba",
        "falcon_mamba",
        _MAMBA_KEYS,
        _MAMBA_LAYERS,
        _MAMBA_NAMES,
        prefix="backbone.layers.*.",
        flags=_MAMBA_FLAGS,
        changes=_MAMBA_CHANGES,
        rotary=False,
        only_with="ssm.dt_b_c_rms",
    ),
    GGUFArchitecture(
        "MambaForCausalLM",
        "mamba",
        "mamba",
        _MAMBA_KEYS,
        _MAMBA_LAYERS,
        _MAMBA_NAMES,
        prefix="backbone.layers.*.",
        flags=_MAMBA_FLAGS,
        changes=_MAMBA_CHANGES,
        rotary=False,
    ),
)
