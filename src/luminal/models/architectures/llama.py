"""Llama 2, 3 and 3.x. Touvron et al., arXiv 2307.09288; arXiv 2407.21783."""

from __future__ import annotations

from dataclasses import replace

from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.settings import attention_biases, flag
from luminal.models.architectures.text_part import text_part
from luminal.models.gguf.changes import INTERLEAVED
from luminal.models.gguf.form import GGUF

LLAMA = Architecture(
    "LlamaForCausalLM",
    {**attention_biases(), "mlp_bias": flag("mlp_bias", False)},
    gguf=GGUF(
        "llama",
        changes=INTERLEAVED,
        # Those of Mistral's family have one of these.
        only_without=(
            "expert_count",
            "attention.sliding_window",
            "attention.sliding_window_pattern",
        ),
    ),
)
IDEFICS3_TEXT = text_part(
    "Idefics3ForConditionalGeneration", LLAMA, "idefics3:IDEFICS3", rms_norm_eps=1e-5
)
SMOLVLM_TEXT = replace(IDEFICS3_TEXT, name="SmolVLMForConditionalGeneration")
