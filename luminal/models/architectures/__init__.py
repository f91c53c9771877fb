"""Architectures of Hugging Face that are a `Decoder`, by their names in `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from luminal.errors import InputError, LoadError, ShapeError
from luminal.loaders.checkpoint import Checkpoint, load_checkpoint
from luminal.loaders.fields import Fields, naming
from luminal.loaders.ggml.packed import packed
from luminal.loaders.shown import shown
from luminal.models.architectures.arcee import ARCEE
from luminal.models.architectures.architecture import OUTPUT, Architecture
from luminal.models.architectures.bloom import BLOOM
from luminal.models.architectures.cohere import COHERE, COHERE2
from luminal.models.architectures.deepseek import DEEPSEEK2, DEEPSEEK3
from luminal.models.architectures.ernie4_5 import ERNIE4_5, ERNIE4_5_MOE
from luminal.models.architectures.exaone4 import EXAONE4
from luminal.models.architectures.falcon import FALCON
from luminal.models.architectures.gemma import GEMMA, GEMMA2, GEMMA3
from luminal.models.architectures.gemma4 import GEMMA4
from luminal.models.architectures.glm import GLM, GLM4, GLM4_MOE
from luminal.models.architectures.gpt2 import GPT2
from luminal.models.architectures.gpt_neox import GPT_NEOX
from luminal.models.architectures.gpt_oss import GPT_OSS
from luminal.models.architectures.granite import GRANITE, GRANITE_MOE
from luminal.models.architectures.helium import HELIUM
from luminal.models.architectures.llama import LLAMA
from luminal.models.architectures.llama4 import LLAMA4
from luminal.models.architectures.mamba import FALCON_MAMBA, MAMBA, MAMBA2
from luminal.models.architectures.minicpm3 import MINICPM3
from luminal.models.architectures.mistral import MINISTRAL, MISTRAL
from luminal.models.architectures.mixtral import MIXTRAL
from luminal.models.architectures.olmo import OLMO
from luminal.models.architectures.olmo2 import OLMO2, OLMO3
from luminal.models.architectures.olmoe import OLMOE
from luminal.models.architectures.opt import OPT
from luminal.models.architectures.phi import PHI
from luminal.models.architectures.phi3 import PHI3
from luminal.models.architectures.phimoe import PHIMOE
from luminal.models.architectures.qwen2 import QWEN2, QWEN2_MOE
from luminal.models.architectures.qwen3 import QWEN3, QWEN3_MOE
from luminal.models.architectures.qwen3_next import QWEN3_NEXT
from luminal.models.architectures.rwkv7 import RWKV7
from luminal.models.architectures.seed_oss import SEED_OSS
from luminal.models.architectures.smollm3 import SMOLLM3
from luminal.models.architectures.stablelm import STABLELM
from luminal.models.architectures.starcoder2 import STARCODER2
from luminal.models.architectures.text_part import text_part
from luminal.models.decoder import Decoder, compute_dtype_of

ARCHITECTURES: Mapping[str, Architecture] = {
    "ArceeForCausalLM": ARCEE,
    "BloomForCausalLM": BLOOM,
    "Cohere2ForCausalLM": COHERE2,
    "CohereForCausalLM": COHERE,
    "DeepseekV2ForCausalLM": DEEPSEEK2,
    "DeepseekV3ForCausalLM": DEEPSEEK3,
    "Ernie4_5ForCausalLM": ERNIE4_5,
    "Ernie4_5_MoeForCausalLM": ERNIE4_5_MOE,
    "Exaone4ForCausalLM": EXAONE4,
    "FalconForCausalLM": FALCON,
    "FalconMambaForCausalLM": FALCON_MAMBA,
    "GPT2LMHeadModel": GPT2,
    "GPTNeoXForCausalLM": GPT_NEOX,
    "Gemma2ForCausalLM": GEMMA2,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3ForConditionalGeneration": text_part(
        GEMMA3, vocab_size=262208, num_attention_heads=8, num_key_value_heads=4, head_dim=256
    ),
    "Gemma4ForCausalLM": GEMMA4,
    "Gemma4ForConditionalGeneration": text_part(GEMMA4),
    "GemmaForCausalLM": GEMMA,
    "Glm4ForCausalLM": GLM4,
    "Glm4MoeForCausalLM": GLM4_MOE,
    "GlmForCausalLM": GLM,
    "GptOssForCausalLM": GPT_OSS,
    "GraniteForCausalLM": GRANITE,
    "GraniteMoeForCausalLM": GRANITE_MOE,
    "HeliumForCausalLM": HELIUM,
    "Llama4ForCausalLM": LLAMA4,
    "Llama4ForConditionalGeneration": text_part(LLAMA4),
    "LlamaForCausalLM": LLAMA,
    "Mamba2ForCausalLM": MAMBA2,
    "MambaForCausalLM": MAMBA,
    "MiniCPM3ForCausalLM": MINICPM3,
    "Ministral3ForCausalLM": MISTRAL,
    "MinistralForCausalLM": MINISTRAL,
    "Mistral3ForConditionalGeneration": text_part(MISTRAL),
    "MistralForCausalLM": MISTRAL,
    "MixtralForCausalLM": MIXTRAL,
    "OPTForCausalLM": OPT,
    "Olmo2ForCausalLM": OLMO2,
    "Olmo3ForCausalLM": OLMO3,
    "OlmoForCausalLM": OLMO,
    "OlmoeForCausalLM": OLMOE,
    "Phi3ForCausalLM": PHI3,
    "PhiForCausalLM": PHI,
    "PhimoeForCausalLM": PHIMOE,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen2MoeForCausalLM": QWEN2_MOE,
    "Qwen3ForCausalLM": QWEN3,
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Qwen3NextForCausalLM": QWEN3_NEXT,
    "Qwen3_5ForCausalLM": QWEN3_NEXT,
    "Qwen3_5ForConditionalGeneration": text_part(QWEN3_NEXT),
    "Qwen3_5MoeForCausalLM": QWEN3_NEXT,
    "Qwen3_5MoeForConditionalGeneration": text_part(QWEN3_NEXT),
    "RWKV7ForCausalLM": RWKV7,
    "SeedOssForCausalLM": SEED_OSS,
    "SmolLM3ForCausalLM": SMOLLM3,
    "StableLmForCausalLM": STABLELM,
    "Starcoder2ForCausalLM": STARCODER2,
}


def architecture_of(raw: Mapping[str, Any], path: Path) -> Architecture:
    """That of a `config.json`; `path` is for messages. Raises LoadError for one not known."""
    match raw.get("architectures"):
        case [str(name)] if name in ARCHITECTURES:
            return ARCHITECTURES[name]
        case [name] | name:
            like = ", ".join(get_close_matches(str(name), ARCHITECTURES, cutoff=0))
            raise LoadError(
                f"{path}: architecture {shown(name)} is not supported; of those in docs/models.md "
                f"its name is most like {like}"
            )


def read_decoder(path: Path, compute_dtype: Any = None) -> Decoder:
    """The model of a folder with a `config.json` and safetensors, or of another kind of file."""
    return decoder_of(load_checkpoint(path), compute_dtype)


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
