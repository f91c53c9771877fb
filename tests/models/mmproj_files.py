"""Text models in GGUF with their mmproj files, written by the gguf package from transformers'."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest

import luminal as lm
from luminal.loaders.write_gguf_tokenizer import tokenizer_metadata
from luminal.models import convert
from tests.models.small_seeing import saved

transformers = pytest.importorskip("transformers")
Array = np.ndarray[Any, Any]
NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 4)
TOWER_SIZES = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}


class Written(NamedTuple):
    """How a family's files are written: the class of its text model, none for Qwen's; what the
    metadata says of the model and its processor, and what its tensors are by transformers' names.
    """

    text: str
    metadata: Callable[[Any, Any], Mapping[str, Any]]
    tensors: Callable[[Mapping[str, Array]], Mapping[str, Array]]


def _tower(vision: Any, images: Any) -> dict[str, Any]:
    said = {f"clip.vision.{key}": getattr(vision, name) for key, name in TOWER_SIZES.items()}
    for name in ("image_mean", "image_std"):
        said[f"clip.vision.{name}"] = [float(value) for value in getattr(images, name)]
    said["clip.vision.attention.layer_norm_epsilon"] = vision.layer_norm_eps
    return said


def _older(name: str) -> str:
    """A name as published files have it, which are older than these."""
    name = re.sub(r"^model\.(?=vision_tower|multi_modal_projector|visual)", "", name)
    return re.sub(r"^vision_tower\.(?!vision_model)", "vision_tower.vision_model.", name)


def _mapped(weights: Mapping[str, Array], parts: tuple[str, ...]) -> dict[str, Array]:
    """The tensors of these parts under the names of the gguf package."""
    tensors = {}
    for name, array in weights.items():
        if name.startswith(parts):
            found = NAMES.get_name(name, try_suffixes=(".weight", ".bias"))
            assert found is not None, name
            tensors[found] = array
    return tensors


def _gemma3(model: Any, processor: Any) -> dict[str, Any]:
    vision = model.config.vision_config
    side = vision.image_size // vision.patch_size
    factor = side // int(model.config.mm_tokens_per_image**0.5)
    return {
        **_tower(vision, processor.image_processor),
        "clip.projector_type": "gemma3",
        "clip.use_gelu": True,
        **({} if factor == 4 else {"clip.vision.projector.scale_factor": factor}),
    }


def _gemma3_tensors(weights: Mapping[str, Array]) -> dict[str, Array]:
    named = {name.replace("_weight", ".weight"): array for name, array in weights.items()}
    named["multi_modal_projector.mm_soft_emb_norm.weight"] += 1
    return _mapped(named, ("vision_tower.", "multi_modal_projector."))


def _idefics3(model: Any, processor: Any) -> dict[str, Any]:
    images = processor.image_processor
    return {
        **_tower(model.config.vision_config, images),
        "clip.projector_type": "idefics3",
        "clip.use_gelu": True,
        "clip.vision.projector.scale_factor": model.config.scale_factor,
        "clip.vision.preproc_image_size": images.size["longest_edge"],
    }


def _idefics3_tensors(weights: Mapping[str, Array]) -> dict[str, Array]:
    return _mapped(weights, ("model.vision_model.", "model.connector."))


def _llava(model: Any, processor: Any) -> dict[str, Any]:
    """As the script for old models writes it, which leaves out the layers behind the taken one."""
    config = model.config
    layer = config.vision_feature_layer
    taken = layer if layer >= 0 else config.vision_config.num_hidden_layers + 1 + layer
    return {
        **_tower(config.vision_config, processor.image_processor),
        "clip.projector_type": "mlp",
        "clip.has_llava_projector": True,
        "clip.use_gelu": False,
        "clip.vision.block_count": taken,
        "clip.vision.feature_layer": [taken],
    }


OLD = (
    (r"^vision_tower\.vision_model\.", "v."),
    (r"encoder\.layers", "blk"),
    (r"embeddings\.", ""),
    ("embedding", "embd"),
    (r"self_attn\.(\w+?)_proj", r"attn_\1"),
    ("layer_norm", "ln"),
    ("pre_layrnorm", "pre_ln"),
    ("mlp.fc1", "ffn_down"),
    ("mlp.fc2", "ffn_up"),
    (r"^multi_modal_projector\.linear_1", "mm.0"),
    (r"^multi_modal_projector\.linear_2", "mm.2"),
)
"""What of the names the script for old models replaces, which exchanges two of them."""


def _llava_tensors(weights: Mapping[str, Array]) -> dict[str, Array]:
    tensors = {}
    for name, array in weights.items():
        left_out = "language_model", "lm_head", "post_layernorm", "encoder.layers.1"
        if any(part in name for part in left_out):
            continue
        for pattern, replaced in OLD:
            name = re.sub(pattern, replaced, name)
        tensors[name] = array
    return tensors


def _qwen(model: Any, processor: Any) -> dict[str, Any]:
    """The width of feed-forward parts is what the converter finds under `hidden_size`."""
    vision, images = model.config.vision_config, processor.image_processor
    return {
        "clip.projector_type": "qwen2vl_merger",
        "clip.vision.image_size": 560,
        "clip.vision.patch_size": vision.patch_size,
        "clip.vision.embedding_length": vision.embed_dim,
        "clip.vision.feed_forward_length": vision.hidden_size,
        "clip.vision.block_count": vision.depth,
        "clip.vision.attention.head_count": vision.num_heads,
        "clip.vision.attention.layer_norm_epsilon": 1e-6,
        "clip.vision.image_mean": [float(value) for value in images.image_mean],
        "clip.vision.image_std": [float(value) for value in images.image_std],
        # Only where they are not those of published models.
        "clip.vision.image_min_pixels": images.size["shortest_edge"],
        "clip.vision.image_max_pixels": images.size["longest_edge"],
    }


def _qwen_of_windows(model: Any, processor: Any) -> dict[str, Any]:
    vision = model.config.vision_config
    vision.embed_dim = vision.hidden_size
    return {
        **_qwen(model, processor),
        "clip.projector_type": "qwen2.5vl_merger",
        "clip.use_silu": True,
        "clip.vision.feed_forward_length": vision.intermediate_size,
        "clip.vision.n_wa_pattern": vision.fullatt_block_indexes[0] + 1,
        "clip.vision.window_size": vision.window_size,
    }


def _qwen_tensors(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Queries, keys and values apart, and one convolution for each of two frames."""
    tensors = {}
    for name, array in weights.items():
        if ".qkv." in name:
            for part, rows in zip("qkv", np.split(array, 3), strict=True):
                tensors[name.replace("qkv", part)] = rows
        elif "patch_embed" not in name:
            tensors[name] = array
    frames = weights["visual.patch_embed.proj.weight"]
    return {
        **_mapped(tensors, ("visual.",)),
        "v.patch_embd.weight": frames[:, :, 0],
        "v.patch_embd.weight.1": frames[:, :, 1],
    }


def _write_qwen(model: Any, folder: Path) -> None:
    """The text part of Qwen2-VL by the gguf package, with the keys of the public converter."""
    text = model.config.text_config
    writer = gguf.GGUFWriter(folder / "text.gguf", "qwen2vl")
    writer.add_block_count(text.num_hidden_layers)
    writer.add_context_length(text.max_position_embeddings)
    writer.add_embedding_length(text.hidden_size)
    writer.add_feed_forward_length(text.intermediate_size)
    writer.add_head_count(text.num_attention_heads)
    writer.add_head_count_kv(text.num_key_value_heads)
    writer.add_layer_norm_rms_eps(text.rms_norm_eps)
    writer.add_rope_freq_base(text.rope_parameters["rope_theta"])
    writer.add_rope_dimension_sections([*text.rope_parameters["mrope_section"], 0])
    tokenizer, template = (
        (folder / "whole" / name).read_text() for name in ("tokenizer.json", "chat_template.jinja")
    )
    said = tokenizer_metadata(tokenizer, folder, None, [], [], text.vocab_size)
    for key, value in {**said, "tokenizer.chat_template": template}.items():
        write_value(writer, key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2VL, text.num_hidden_layers)
    for theirs, value in model.state_dict().items():
        if ".visual." not in theirs:
            name = theirs.replace("model.language_model.", "model.")
            found = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert found is not None, theirs
            writer.add_tensor(found, np.ascontiguousarray(value.numpy(), np.float32))
    finish(writer)


WRITTEN = {
    "gemma3": Written("Gemma3ForCausalLM", _gemma3, _gemma3_tensors),
    "idefics3": Written("LlamaForCausalLM", _idefics3, _idefics3_tensors),
    "smolvlm": Written("LlamaForCausalLM", _idefics3, _idefics3_tensors),
    "llava": Written("LlamaForCausalLM", _llava, _llava_tensors),
    "llava_of_mistral": Written("MistralForCausalLM", _llava, _llava_tensors),
    "qwen2_vl_four_times": Written("", _qwen, _qwen_tensors),
    "qwen2_5_vl": Written("", _qwen_of_windows, _qwen_tensors),
}


def written(name: str, folder: Path) -> tuple[Any, Any]:
    """A random model of transformers and its processor; its text.gguf and mmproj-model.gguf are in
    the folder.
    """
    (folder / "whole").mkdir()
    model, processor = saved(name, folder / "whole")
    images = processor.image_processor
    if getattr(images, "do_center_crop", None):  # such files have one size alone
        images.size = {"shortest_edge": images.crop_size["height"]}
    if WRITTEN[name].text:
        _write_text(model, WRITTEN[name].text, folder)
    else:
        _write_qwen(model, folder)
    file = lm.load(folder / "whole" / "model.safetensors")
    weights = {_older(each): np.array(array) for each, array in file.items()}
    metadata = {"clip.has_vision_encoder": True, **WRITTEN[name].metadata(model, processor)}
    write_mmproj(folder / "mmproj-model.gguf", metadata, WRITTEN[name].tensors(weights))
    return model, processor


def _write_text(model: Any, kind: str, folder: Path) -> None:
    """The text model alone, as a GGUF file; tests/models/test_gguf_models.py has how that is."""
    text = getattr(transformers, kind)(model.config.text_config)
    state = {
        name.replace("model.language_model.", "model.").replace("model.text_model.", "model."): x
        for name, x in model.state_dict().items()
    }
    text.load_state_dict({name: state[name] for name in text.state_dict()})
    alone = folder / "text"
    text.save_pretrained(alone)
    for file in ("tokenizer.json", "chat_template.jinja"):
        shutil.copy(folder / "whole" / file, alone / file)
    convert(alone, folder / "text.gguf")


def write_mmproj(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    writer = gguf.GGUFWriter(path, "clip")
    for key, value in metadata.items():
        write_value(writer, key, value)
    for name, array in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    finish(writer)


def write_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """A value of the metadata, by its type."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
