"""StarCoder2: grouped queries, layer norms, biases. Lozhkov et al., arXiv 2402.19173."""

from __future__ import annotations

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, same_windows
from luminal.models.architectures.settings import TIED, epsilon, flag, plain, text
from luminal.models.gguf.form import ALL_LAYERS, GGUF

STARCODER2 = Architecture(
    "Starcoder2ForCausalLM",
    {
        **plain(flag("use_bias", True)),
        **TIED,
        "activation": text("hidden_act", "gelu_pytorch_tanh"),
        "norm_eps": epsilon(1e-5, "norm_epsilon"),
    },
    {".c_fc.": ".up_proj.", ".c_proj.": ".down_proj."},
    layers=lambda fields: layers_of(fields, same_windows(fields)),
    gguf=GGUF("starcoder2", windowed=ALL_LAYERS),
)
