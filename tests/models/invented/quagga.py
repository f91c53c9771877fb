"""Quagga, a decoder that nobody has trained: layer norms, biases, and half of each head turns."""

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.layers import layers_of, rotary_of
from luminal.models.architectures.settings import epsilon, flag, integer, text
from luminal.models.gguf.form import GGUF

QUAGGA = Architecture(
    "QuaggaForCausalLM",
    {
        "hidden_size": integer("width"),
        "activation": text("act", "gelu"),
        "attention_bias": flag("bias", True),
        "norm": "layer",
        "norm_eps": epsilon(1e-5, "ln_eps"),
    },
    {"trunk.": "model.", ".h.": ".layers.", ".ln_1.": ".input_layernorm.", ".out.": ".o_proj."},
    layers=lambda fields: layers_of(fields, rotary=rotary_of(fields, share=0.5)),
    gguf=GGUF("quagga"),
)
