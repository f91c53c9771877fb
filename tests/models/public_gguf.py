"""GGUF files of decoders as the format's public converter writes them, by the gguf package.

What it writes of each: https://github.com/ggml-org/llama.cpp/tree/master/conversion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np

from luminal.loaders.gguf import read_gguf

Array = np.ndarray[Any, Any]
Named = Iterator[tuple[str, Array]]


class Public(NamedTuple):
    """`metadata`: what it says of a configuration beside the sizes; `tensors`: names and arrays as
    it looks them up, of those of a folder; `more`: those that are in no folder.
    """

    kind: gguf.MODEL_ARCH
    metadata: Callable[[gguf.GGUFWriter, Any], None]
    tensors: Callable[[Mapping[str, Array]], Named] = lambda folder: iter(folder.items())
    more: Callable[[Any], Mapping[str, Array]] = lambda config: {}


def _minicpm3(writer: gguf.GGUFWriter, config: Any) -> None:
    """It says neither how wide values are nor any of the three scales."""
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_key_length(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)


def _factors(config: Any) -> dict[str, Array]:
    rope = config.rope_parameters
    return {
        f"rope_factors_{length}.weight": np.array(rope[f"{length}_factor"], np.float32)
        for length in ("long", "short")
        if rope["rope_type"] == "longrope"
    }


def _phimoe(writer: gguf.GGUFWriter, config: Any) -> None:
    """The factor of cos and sin is that of the formula, whatever the folder says."""
    rope = config.rope_parameters
    original = rope["original_max_position_embeddings"]
    longer = config.max_position_embeddings / original
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(longer) / math.log(original)))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_sliding_window(config.sliding_window or 0)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_count(config.num_local_experts)


def _stacked(folder: Mapping[str, Array]) -> Named:
    """Experts as one tensor."""
    experts: dict[str, list[Array]] = {}
    for name, array in sorted(folder.items()):
        match = re.fullmatch(r"(.*\.experts)\.\d+\.(w\d)\.weight", name)
        if match:
            experts.setdefault(f"{match[1]}.{match[2]}.weight", []).append(array)
        else:
            yield name, array
    yield from ((name, np.stack(arrays)) for name, arrays in experts.items())


def _llama4(writer: gguf.GGUFWriter, config: Any) -> None:
    """It says nothing of chunks, of layers without positions and of their temperature."""
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
    writer.add_feed_forward_length(config.intermediate_size_mlp)
    writer.add_expert_feed_forward_length(config.intermediate_size)


def _from_the_left(folder: Mapping[str, Array]) -> Named:
    """Gates and what they let through apart, and all experts' matrices transposed."""
    for name, array in folder.items():
        if name.endswith("gate_up_proj"):
            for part, half in zip(("gate", "up"), np.split(array, 2, -1), strict=True):
                yield name.replace("gate_up_proj", f"{part}_proj.weight"), half.swapaxes(1, 2)
        elif name.endswith("down_proj"):
            yield f"{name}.weight", array.swapaxes(1, 2)
        else:
            yield name, array


def _gemma4(writer: gguf.GGUFWriter, config: Any) -> None:
    slides = [kind == "sliding_attention" for kind in config.layer_types]
    count, shared = len(slides), config.num_kv_shared_layers
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern(slides)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input or 0)
    layers = [config.per_layer_config[number] for number in range(count)]
    narrow, wide = layers[0].head_dim, layers[-1].head_dim
    for add, add_local in (
        (writer.add_key_length, writer.add_key_length_swa),
        (writer.add_value_length, writer.add_value_length_swa),
        (writer.add_rope_dimension_count, writer.add_rope_dimension_count_swa),
    ):
        add(wide)
        add_local(narrow)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.use_double_wide_mlp:
        inner = config.intermediate_size
        writer.add_feed_forward_length([inner] * (count - shared) + [2 * inner] * shared)
    heads = [layer.num_key_value_heads for layer in layers]
    writer.add_head_count_kv(heads if len({*heads}) > 1 else heads[0])
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _scales(folder: Mapping[str, Array]) -> Named:
    for name, array in folder.items():
        layer = name.split(".")[2] if ".layers." in name else ""
        if name.endswith("router.scale"):
            yield f"blk.{layer}.ffn_gate_inp.scale", array
        elif name.endswith("per_expert_scale"):
            yield f"blk.{layer}.ffn_down_exps.scale", array
        else:
            last = ".weight" if name.endswith("layer_scalar") or ".experts." in name else ""
            yield name + last, array


def _turned(config: Any) -> dict[str, Array]:
    """What layers without a window divide frequencies by: 1, then what leaves nothing."""
    share = config.rope_parameters["full_attention"]["partial_rotary_factor"]
    width = config.per_layer_config[len(config.layer_types) - 1].head_dim
    pairs, turned = width // 2, int(width * share / 2)
    return {"rope_freqs.weight": np.array([1.0] * turned + [1e30] * (pairs - turned), np.float32)}


def _rwkv7(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_layer_norm_eps(1e-5)
    writer.add_wkv_head_size(config["head_dim"])
    writer.add_decay_lora_rank(config["decay_low_rank_dim"])
    writer.add_iclr_lora_rank(config["a_low_rank_dim"])
    writer.add_value_residual_mix_lora_rank(config["v_low_rank_dim"])
    writer.add_gate_lora_rank(config["gate_low_rank_dim"])


def _mixed(folder: Mapping[str, Array]) -> Named:
    """Shares of the position before as one tensor; the first layer repeats one of its parts."""
    for name, array in folder.items():
        layer = name.split(".")[2] if ".layers." in name else ""
        if ".attn.x_" in name:
            if name.endswith("x_r"):
                parts = [folder[f"{name[:-1]}{part}"] for part in "rwkvag"]
                yield f"blk.{layer}.time_mix_lerp_fused.weight", np.stack(parts)
            continue
        whole = name.replace("ffn", "feed_forward").replace("attn", "attention")
        for part, number in (("0.weight", 1), ("2.weight", 2), ("2.bias", 0)):
            whole = whole.replace(f"_lora.lora.{part}", f"{number}.weight")
        whole = whole.replace("feed_forward_norm", "ln2").replace("g_norm", "ln_x")
        flat = array.reshape(-1) if "r_k" in whole else array
        yield whole, flat
        if layer == "0" and re.search(r"attention\.a\d", whole):
            yield f"blk.0.time_mix_v{whole.split('.')[-2][1:]}.weight", flat


PUBLIC = {
    "minicpm3_as_published": Public(gguf.MODEL_ARCH.MINICPM3, _minicpm3, more=_factors),
    "phimoe_longrope": Public(gguf.MODEL_ARCH.PHIMOE, _phimoe, _stacked, _factors),
    "llama4_as_published": Public(gguf.MODEL_ARCH.LLAMA4, _llama4, _from_the_left),
    "gemma4": Public(gguf.MODEL_ARCH.GEMMA4, _gemma4, _scales, _turned),
    "gemma4_moe": Public(gguf.MODEL_ARCH.GEMMA4, _gemma4, _scales, _turned),
    "rwkv7": Public(gguf.MODEL_ARCH.RWKV7, _rwkv7, _mixed),
}


def write_public(name: str, config: Any, folder: Mapping[str, Array], path: Path) -> None:
    """The file of a configuration of transformers' and of the tensors of its folder."""
    public = PUBLIC[name]
    values = config if isinstance(config, dict) else vars(config)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[public.kind])
    writer.add_block_count(values["num_hidden_layers"])
    writer.add_context_length(values.get("max_position_embeddings", 1 << 20))
    writer.add_embedding_length(values["hidden_size"])
    writer.add_head_count(values.get("num_attention_heads", 0))
    if "num_key_value_heads" in values and public.kind != gguf.MODEL_ARCH.GEMMA4:
        writer.add_head_count_kv(values["num_key_value_heads"])
    if "intermediate_size_mlp" not in values and not values.get("use_double_wide_mlp"):
        writer.add_feed_forward_length(values["intermediate_size"])
    public.metadata(writer, config)
    names = gguf.get_tensor_name_map(public.kind, values["num_hidden_layers"])
    for theirs, array in public.tensors(folder):
        found = (
            theirs if theirs.startswith("blk.") else names.get_name(theirs, (".weight", ".bias"))
        )
        assert found is not None, theirs
        if not found.endswith((".weight", ".bias", ".scale")):
            found += ".weight"
        writer.add_tensor(found, np.ascontiguousarray(array, np.float32))
    for found, array in public.more(config).items():
        writer.add_tensor(found, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_written(metadata: dict[str, Any], tensors: dict[str, Array], path: Path) -> None:
    """All that a file has is written, row by row; the factor of PhiMoE's cos and sin is ours."""
    file = read_gguf(path)
    assert tensors.keys() == file.tensors.keys()
    for key, array in tensors.items():
        np.testing.assert_array_equal(array, file.tensors[key].array(), key)
    for key, value in file.metadata.items():
        if key not in ("phimoe.rope.scaling.attn_factor", "phimoe.attention.sliding_window"):
            assert metadata[key] == value, key
