"""Architectures of Hugging Face that are a `Decoder`, by their names in `config.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from luminal.base import lazy
from luminal.base.errors import InputError, LoadError, ShapeError
from luminal.loaders.checkpoint import OUTPUT, Checkpoint, load_checkpoint
from luminal.loaders.fields import Fields, naming
from luminal.loaders.ggml.packed import packed
from luminal.loaders.shown import shown
from luminal.models.architectures.architecture import Architecture
from luminal.models.decoder import Decoder, compute_dtype_of

ARCHITECTURES: Mapping[str, str] = {
    "ArceeForCausalLM": "arcee:ARCEE",
    "BloomForCausalLM": "bloom:BLOOM",
    "Cohere2ForCausalLM": "cohere:COHERE2",
    "CohereForCausalLM": "cohere:COHERE",
    "DeepseekV2ForCausalLM": "deepseek:DEEPSEEK2",
    "DeepseekV3ForCausalLM": "deepseek:DEEPSEEK3",
    "Ernie4_5ForCausalLM": "ernie4_5:ERNIE4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5:ERNIE4_5_MOE",
    "Exaone4ForCausalLM": "exaone4:EXAONE4",
    "FalconForCausalLM": "falcon:FALCON",
    "FalconMambaForCausalLM": "mamba:FALCON_MAMBA",
    "GPT2LMHeadModel": "gpt2:GPT2",
    "GPTNeoXForCausalLM": "gpt_neox:GPT_NEOX",
    "Gemma2ForCausalLM": "gemma:GEMMA2",
    "Gemma3ForCausalLM": "gemma:GEMMA3",
    "Gemma3ForConditionalGeneration": "gemma:GEMMA3_TEXT",
    "Gemma4ForCausalLM": "gemma4:GEMMA4",
    "Gemma4ForConditionalGeneration": "gemma4:GEMMA4_TEXT",
    "GemmaForCausalLM": "gemma:GEMMA",
    "Glm4ForCausalLM": "glm:GLM4",
    "Glm4MoeForCausalLM": "glm:GLM4_MOE",
    "GlmForCausalLM": "glm:GLM",
    "GptOssForCausalLM": "gpt_oss:GPT_OSS",
    "GraniteForCausalLM": "granite:GRANITE",
    "GraniteMoeForCausalLM": "granite:GRANITE_MOE",
    "HeliumForCausalLM": "helium:HELIUM",
    "Llama4ForCausalLM": "llama4:LLAMA4",
    "Llama4ForConditionalGeneration": "llama4:LLAMA4_TEXT",
    "LlamaForCausalLM": "llama:LLAMA",
    "Mamba2ForCausalLM": "mamba:MAMBA2",
    "MambaForCausalLM": "mamba:MAMBA",
    "MiniCPM3ForCausalLM": "minicpm3:MINICPM3",
    "Ministral3ForCausalLM": "mistral:MISTRAL",
    "MinistralForCausalLM": "mistral:MINISTRAL",
    "Mistral3ForConditionalGeneration": "mistral:MISTRAL_TEXT",
    "MistralForCausalLM": "mistral:MISTRAL",
    "MixtralForCausalLM": "mixtral:MIXTRAL",
    "OPTForCausalLM": "opt:OPT",
    "Olmo2ForCausalLM": "olmo2:OLMO2",
    "Olmo3ForCausalLM": "olmo2:OLMO3",
    "OlmoForCausalLM": "olmo:OLMO",
    "OlmoeForCausalLM": "olmoe:OLMOE",
    "Phi3ForCausalLM": "phi3:PHI3",
    "PhiForCausalLM": "phi:PHI",
    "PhimoeForCausalLM": "phimoe:PHIMOE",
    "Qwen2ForCausalLM": "qwen2:QWEN2",
    "Qwen2MoeForCausalLM": "qwen2:QWEN2_MOE",
    "Qwen3ForCausalLM": "qwen3:QWEN3",
    "Qwen3MoeForCausalLM": "qwen3:QWEN3_MOE",
    "Qwen3NextForCausalLM": "qwen3_next:QWEN3_NEXT",
    "Qwen3_5ForCausalLM": "qwen3_next:QWEN3_NEXT",
    "Qwen3_5ForConditionalGeneration": "qwen3_next:QWEN3_NEXT_TEXT",
    "Qwen3_5MoeForCausalLM": "qwen3_next:QWEN3_NEXT",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_next:QWEN3_NEXT_TEXT",
    "RWKV7ForCausalLM": "rwkv7:RWKV7",
    "SeedOssForCausalLM": "seed_oss:SEED_OSS",
    "SmolLM3ForCausalLM": "smollm3:SMOLLM3",
    "StableLmForCausalLM": "stablelm:STABLELM",
    "Starcoder2ForCausalLM": "starcoder2:STARCODER2",
}
"""Modules of this package and what is there: one is imported when a model of it is read."""


def architecture_of(raw: Mapping[str, Any], path: Path) -> Architecture:
    """That of a `config.json`; `path` is for messages. Raises LoadError for one not known."""
    match raw.get("architectures"):
        case [str(name)] if name in ARCHITECTURES:
            found: Architecture = lazy.found(f"{__name__}.{ARCHITECTURES[name]}")
            return found
        case [name] | name:
            raise LoadError(
                f"{path}: architecture {shown(name)} is not supported (docs/models.md and "
                f"docs/families.md have those that are){_relatives(str(name))}"
            )


def _relatives(name: str) -> str:
    """Those of one family: names that begin with the same word, "Qwen" or "Mistral"."""
    known = (*ARCHITECTURES, *lazy.found("luminal.models.families:FAMILIES"))
    family = _family(name)
    words = {_family(each).lower() for each in known}
    near = get_close_matches(family.lower(), words, 1, 0.75)
    same = [each for each in known if near and _family(each).lower() == near[0]]
    if same:
        return f"; of its family there are {', '.join(same)}"
    return f"; none is of the family {family}" if family else ""


def _family(name: str) -> str:
    """The first word of a name, without what counts versions: "Qwen" of Qwen3MoeForCausalLM."""
    found = re.match(r"[A-Z]*[a-z]*", name)
    return "" if found is None else found[0]


def read_decoder(path: Path, compute_dtype: Any = None) -> Decoder:
    """The model of a folder with a `config.json` and safetensors, or of another kind of file."""
    return decoder_of(load_checkpoint(path, keep_order=True), compute_dtype)


def decoder_of(checkpoint: Checkpoint, compute_dtype: Any = None) -> Decoder:
    """The model of a checkpoint, weights in its dtypes.

    `compute_dtype`: see `compute_dtype_of`. Raises LoadError for an architecture or option that
    Luminal does not have, and for weights that do not fit the configuration.
    """
    path = checkpoint.path
    architecture = architecture_of(checkpoint.config, path)
    with naming(checkpoint.place):
        try:
            config = architecture.config(Fields(checkpoint.config, path))
            weights = architecture.weights(checkpoint.tensors, config)
            if OUTPUT in weights:
                config = replace(config, tie_word_embeddings=False)
            model = Decoder(config)
        except (InputError, ShapeError) as error:
            raise LoadError(f"{path}: {error}") from error
        kept = {name: packed(a, name) if a.dtype.names else a for name, a in weights.items()}
        model.load_state_dict(kept, adopt_dtypes=True)
    model.eval()
    model.computing(compute_dtype_of(model, compute_dtype))
    return model
