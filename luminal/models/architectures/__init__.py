"""Architectures of Hugging Face that are a `Decoder`, by their names in `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.errors import InputError, LoadError, ShapeError
from luminal.frontend.handle import Array
from luminal.loaders.checkpoint import folder_config, folder_tensors
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.architectures.bloom import BLOOM
from luminal.models.architectures.falcon import FALCON
from luminal.models.architectures.gemma import GEMMA, GEMMA2, GEMMA3
from luminal.models.architectures.gpt2 import GPT2
from luminal.models.architectures.gpt_neox import GPT_NEOX
from luminal.models.architectures.llama import LLAMA
from luminal.models.architectures.mistral import MISTRAL
from luminal.models.architectures.mixtral import MIXTRAL
from luminal.models.architectures.olmo2 import OLMO2
from luminal.models.architectures.opt import OPT
from luminal.models.architectures.phi import PHI
from luminal.models.architectures.phi3 import PHI3
from luminal.models.architectures.qwen2 import QWEN2
from luminal.models.architectures.qwen3 import QWEN3, QWEN3_MOE
from luminal.models.architectures.smollm3 import SMOLLM3
from luminal.models.architectures.starcoder2 import STARCODER2
from luminal.models.decoder import Decoder, DecoderConfig

ARCHITECTURES: Mapping[str, Architecture] = {
    "BloomForCausalLM": BLOOM,
    "FalconForCausalLM": FALCON,
    "GPT2LMHeadModel": GPT2,
    "GPTNeoXForCausalLM": GPT_NEOX,
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "GemmaForCausalLM": GEMMA,
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": MISTRAL,
    "MixtralForCausalLM": MIXTRAL,
    "OPTForCausalLM": OPT,
    "Olmo2ForCausalLM": OLMO2,
    "Phi3ForCausalLM": PHI3,
    "PhiForCausalLM": PHI,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "SmolLM3ForCausalLM": SMOLLM3,
    "Starcoder2ForCausalLM": STARCODER2,
}


def architecture_of(raw: Mapping[str, Any], path: Path) -> Architecture:
    """That of a `config.json`; `path` is for messages. Raises LoadError for one not known."""
    match raw.get("architectures"):
        case [str(name)] if name in ARCHITECTURES:
            return ARCHITECTURES[name]
        case [name] | name:
            raise LoadError(
                f"{path}: architecture {shown(name)} is not supported; supported are "
                f"{', '.join(ARCHITECTURES)}"
            )


def read_decoder(folder: Path) -> Decoder:
    """The model of a folder with a `config.json` and safetensors, weights in the files' dtypes.

    Raises LoadError for an architecture or option that Luminal does not have, and for weights that
    do not fit the configuration.
    """
    path = folder / "config.json"
    raw = folder_config(folder)
    architecture = architecture_of(raw, path)
    try:
        config = architecture.config(Fields(raw, path))
        weights = architecture.weights(folder_tensors(folder), config)
        _check_sizes(config, weights)
        model = Decoder(config)
    except (InputError, ShapeError) as error:
        raise LoadError(f"{path}: {error}") from error
    model.load_state_dict(weights, adopt_dtypes=True)
    model.eval()
    return model


def _check_sizes(config: DecoderConfig, weights: Mapping[str, Array]) -> None:
    """Raises LoadError where a damaged file speaks of sizes that nothing could be made of."""
    heads = config.num_attention_heads * config.head_dim
    for name, shape in (
        ("model.embed_tokens.weight", (config.vocab_size, config.hidden_size)),
        ("model.layers.0.self_attn.q_proj.weight", (heads, config.hidden_size)),
    ):
        if name not in weights:
            raise LoadError(f"weights: {name!r} is missing")
        if weights[name].shape != shape:
            raise LoadError(
                f"weights: {name!r} has shape {weights[name].shape}, the configuration asks for "
                f"{shape}"
            )
