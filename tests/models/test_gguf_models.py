"""Decoders as GGUF files: what is written is read back, by us and by transformers."""

from __future__ import annotations

import contextlib
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from luminal.base.errors import InputError, LoadError
from luminal.loaders.gguf import StoredTensor, read_gguf
from luminal.loaders.write_gguf import save_gguf
from luminal.models import convert, load
from luminal.models.architectures import decoder_of, records
from luminal.models.checkpoint import Checkpoint, load_checkpoint
from luminal.models.gguf.export import gguf_model
from luminal.models.gguf.metadata import check_same
from luminal.models.gguf.read import is_of
from tests.close import close, close_to_greatest
from tests.fuzz.damaged_models import GGUF_VALUES
from tests.long_share import long_but
from tests.models.decoder_checks import check_logits, expected, made, write_tokenizer
from tests.models.public_gguf import PUBLIC, check_written, write_public
from tests.models.tiny_architectures import SIZES, TEXT_PARTS, TINY, VARIANTS, VOCABULARY, YARN

transformers = pytest.importorskip("transformers")
load_gguf_checkpoint = pytest.importorskip(
    "transformers.modeling_gguf_pytorch_utils"
).load_gguf_checkpoint

Array = np.ndarray[Any, Any]
LETTERS = [chr(0x4E00 + number) for number in range(VOCABULARY)]
TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": LETTERS,
    "tokenizer.ggml.merges": [],
}
REFUSED = {
    "gpt_oss": "GGUF files of gpt-oss cannot say experts=",
    "deepseek_v3": "GGUF files of deepseek2 cannot say layers=",
    "falcon_h1": "GGUF files of falcon-h1 cannot say layers=",
    "dots1": "GGUF files of dots1 cannot say it: .* no layer may have a window",
    "llama4": "GGUF files of llama4 cannot say layers=",
    "minicpm3": "GGUF files of minicpm3 cannot say logit_scale=0.5: it would be read as 8",
    "opt": "'OPTForCausalLM' has no place in GGUF files; these have Apertus",
    "smollm3": "GGUF files of smollm3 cannot say layers=.* read as .*; keep the folder",
    "olmoe_clamped": "GGUF files of olmoe cannot say projection_limit=",
    "llama_dynamic": "GGUF files of llama cannot say layers=",
    "falcon_in_sequence": "post_attention_layernorm.bias: GGUF files of falcon have no name",
}
"""What the format cannot say."""
CLASSES = {record.name for record in records() if record.gguf is not None}
ALL = TINY | VARIANTS
ALL["gpt_oss_as_published"] = ALL["gpt_oss"]._replace(
    options={**ALL["gpt_oss"].options, "swiglu_limit": 7.0}
)
ALL["gpt_oss_without_yarn"] = ALL["gpt_oss_as_published"]._replace(
    options={
        **ALL["gpt_oss_as_published"].options,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
)
ALL["deepseek_v3_as_published"] = ALL["deepseek_v3"]._replace(
    options={
        **ALL["deepseek_v3"].options,
        "rope_parameters": {**YARN, "mscale": 1.2, "mscale_all_dim": 1.2},
    }
)
ALL["dots1_without_windows"] = ALL["dots1"]._replace(
    options={**ALL["dots1"].options, "layer_types": ["full_attention"] * 2}
)
ALL["ministral3_as_published"] = ALL["ministral3"]._replace(
    options={
        **ALL["ministral3"].options,
        "rope_parameters": {
            **ALL["ministral3"].options["rope_parameters"],
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }
)
ALL["minicpm3_as_published"] = ALL["minicpm3"]._replace(
    options={
        **ALL["minicpm3"].options,
        "dim_model_base": 256,
        "v_head_dim": 8,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.5, 2.0],
            "long_factor": [1.5, 2.0],
            "original_max_position_embeddings": 64,
        },
    }
)
ALL["llama4_as_published"] = ALL["llama4"]._replace(
    options={
        **SIZES,
        "head_dim": 16,
        "num_hidden_layers": 4,
        "intermediate_size_mlp": 40,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "interleave_moe_layer_step": 2,
    }
)
SCALES = ("multiplier", "multipliers")
ALL["falcon_h1_with_scales_in_weights"] = ALL["falcon_h1"]._replace(
    options={k: v for k, v in ALL["falcon_h1"].options.items() if not k.endswith(SCALES)}
)
WRITTEN = [name for name, tiny in ALL.items() if tiny.record in CLASSES and name not in REFUSED]
SHIFTED = (
    *("gemma", "gemma2", "gemma3", "nemotron"),
    *("qwen3_next", "qwen3_5", "qwen3_5_moe"),
)
"""Models whose norms are stored plus 1, which rounds."""
READ_BY_TRANSFORMERS = (
    *("llama", "llama_with_biases", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3"),
    *("phi3", "gpt2", "falcon", "starcoder2", "bloom"),
    *("qwen2_moe", "stablelm", "gpt_oss_without_yarn", "mamba"),
    *("nemotron", "lfm2"),
)
NO_DENSE = ("qwen2moe", "qwen3moe", "qwen3next")
"""Names in GGUF files whose models have experts in every layer."""
SHARING = ("llama", "mixtral", "ministral", "olmo3", "falcon_of_two_norms", "falcon_mamba")
"""Models whose name in GGUF files is that of other classes, too."""
STORED_OTHERWISE = ("llama", "gemma2", "gpt2", "bloom", "qwen2_moe", "mamba")
"""Models of which files store some weights otherwise: what we write and read alike may be wrong."""


def written(name: str, folder: Path) -> tuple[Any, Checkpoint, Path]:
    """Transformers' model, its checkpoint, and a GGUF file of it."""
    theirs = made(ALL[name], folder)
    checkpoint = load_checkpoint(folder)
    metadata, tensors = gguf_model(checkpoint)
    path = folder / "m.gguf"
    save_gguf(path, tensors, metadata | TOKENIZER)
    return theirs, checkpoint, path


def test_names_of_architectures_are_those_of_the_format() -> None:
    named = {record.gguf.name for record in records() if record.gguf is not None}
    unknown = named - {*gguf.MODEL_ARCH_NAMES.values()}
    assert unknown == set(), "the gguf package has no architectures of these names"


@pytest.mark.parametrize("name", long_but(WRITTEN, [*WRITTEN][1::6]))
def test_what_is_written_is_read_back(name: str, tmp_path: Path) -> None:
    """The configuration is compared when it is written."""
    _, checkpoint, path = written(name, tmp_path)
    wanted, found = (decoder_of(each).state_dict() for each in (checkpoint, load_checkpoint(path)))
    assert found.keys() == wanted.keys()
    for key, array in wanted.items():
        if name in SHIFTED and "norm" in key:
            # The rounding of 1 + weight, which is at most 2.
            np.testing.assert_allclose(found[key], array, rtol=0, atol=2**-23)
        elif key.endswith("A_log"):  # stored as -exp of it
            np.testing.assert_allclose(found[key], array, rtol=0, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[key], array, strict=True)


@pytest.mark.parametrize("name", long_but(WRITTEN, [*WRITTEN][::14]))
def test_tokens_are_those_of_the_folder(name: str, tmp_path: Path) -> None:
    """The likeliest tokens after a prompt, by the weights of either kind of file."""
    _, _, path = written(name, tmp_path)
    write_tokenizer(tmp_path)
    plain, packed = (load(place, backend="reference", context=16) for place in (tmp_path, path))
    tokens = list(plain.tokens([3, 14, 15, 9, 26], 8))
    assert len(tokens) == 8
    assert tokens == list(packed.tokens([3, 14, 15, 9, 26], 8))


@pytest.mark.parametrize("name", long_but(WRITTEN, SHARING))
def test_a_file_is_of_one_record(name: str, tmp_path: Path) -> None:
    """So that nothing depends on which is asked first."""
    _, _, path = written(name, tmp_path)
    file = read_gguf(path)
    found = [record for record in records() if record.gguf and is_of(file, record.gguf)]
    assert ALL[name].record in {record.name for record in found}
    # Two classes whose files are the same have one form.
    assert len({id(record.gguf) for record in found}) == 1


def test_keys_and_values_apart(tmp_path: Path) -> None:
    """Newer files of latent attention have them so, and say what they keep as one head."""
    _, checkpoint, path = written("deepseek_v3_as_published", tmp_path)
    file = read_gguf(path)
    metadata = dict(file.metadata) | {
        "deepseek2.attention.key_length_mla": 6 + 4,
        "deepseek2.attention.value_length_mla": 5,
        "deepseek2.attention.key_length": 12 + 4,
        "deepseek2.attention.value_length": 12,
        "deepseek2.attention.head_count_kv": 1,
    }
    tensors = {name: each.array() for name, each in file.tensors.items()}
    for layer in range(2):
        whole = tensors.pop(f"blk.{layer}.attn_kv_b.weight").reshape(4, 6 + 5, 12)
        tensors[f"blk.{layer}.attn_k_b.weight"] = whole[:, :6].swapaxes(1, 2)
        tensors[f"blk.{layer}.attn_v_b.weight"] = whole[:, 6:]
    save_gguf(path, tensors, metadata)
    wanted, found = (decoder_of(each) for each in (checkpoint, load_checkpoint(path)))
    check_same(wanted.config, found.config, "deepseek2")
    for name, array in wanted.state_dict().items():
        np.testing.assert_array_equal(found.state_dict()[name], array)


@pytest.mark.parametrize(
    "name", long_but([name for name in PUBLIC if name != "rwkv7"], ["gemma4_moe"])
)
def test_files_as_the_public_converter_writes_them(name: str, tmp_path: Path) -> None:
    """They give the logits of transformers, and what we write is the same and more."""
    theirs = made(ALL[name], tmp_path)
    checkpoint, path = load_checkpoint(tmp_path), tmp_path / "public.gguf"
    folder = {key: np.asarray(array) for key, array in checkpoint.tensors.items()}
    write_public(name, theirs.config, folder, path)
    if name == "phimoe_longrope":  # the file says another factor than the folder
        theirs.config.rope_parameters |= dict.fromkeys(
            ("short_mscale", "long_mscale"), math.sqrt(1 + math.log(1.5) / math.log(64))
        )
    check_logits(theirs, decoder_of(load_checkpoint(path)), "reference")
    check_written(*gguf_model(checkpoint), path)


def test_other_sections_of_positions_are_another_model(tmp_path: Path) -> None:
    made(ALL["Qwen2VL_text"], tmp_path)
    config = decoder_of(load_checkpoint(tmp_path)).config
    rotary = config.layers[0].rotary
    assert rotary is not None
    other = tuple(
        replace(layer, rotary=replace(rotary, sections=(2, 1, 1))) for layer in config.layers
    )
    check_same(config, config, "qwen2vl")
    with pytest.raises(InputError, match="GGUF files of qwen2vl cannot say layers="):
        check_same(config, replace(config, layers=other), "qwen2vl")


@pytest.mark.long
@pytest.mark.parametrize("name", ["gemma3n", "gemma4"])
def test_keys_that_nobody_reads(name: str, tmp_path: Path) -> None:
    """Published files have some in the layers that attend the keys of earlier ones."""
    theirs, _, path = written(name, tmp_path)
    file = read_gguf(path)
    tensors = {key: tensor.array() for key, tensor in file.tensors.items()}
    for part in ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight"):
        tensors[f"blk.3.{part}"] = tensors[f"blk.1.{part}"] + 1
    save_gguf(path, tensors, file.metadata)
    check_logits(theirs, decoder_of(load_checkpoint(path)), "reference")


def less(array: Any) -> Any:
    return -np.exp(array)


STORED: dict[str, tuple[tuple[str, str, Any], ...]] = {
    "nemotron": (
        ("blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight", lambda a: a + 1),
        ("output_norm.weight", "model.norm.weight", lambda a: a + 1),
        ("blk.0.ffn_norm.bias", "model.layers.0.post_attention_layernorm.bias", lambda a: a),
    ),
    "lfm2": (
        ("blk.0.shortconv.conv.weight", "model.layers.0.conv.conv.weight", lambda a: a[:, 0]),
        ("token_embd_norm.weight", "model.embedding_norm.weight", lambda a: a),
    ),
    "jamba": (
        ("blk.0.ssm_a", "model.layers.0.mamba.A_log", less),
        ("blk.0.ssm_conv1d.weight", "model.layers.0.mamba.conv1d.weight", lambda a: a[:, 0]),
    ),
    "granite_hybrid": (
        ("blk.0.ssm_a", "model.layers.0.mamba.A_log", lambda a: less(a)[:, None]),
        ("blk.0.ssm_d", "model.layers.0.mamba.D", lambda a: a[:, None]),
        ("blk.0.ssm_norm.weight", "model.layers.0.mamba.norm.weight", lambda a: a.reshape(2, -1)),
        (
            "blk.0.ffn_up_shexp.weight",
            "model.layers.0.shared_mlp.input_linear.weight",
            lambda a: a[20:],
        ),
    ),
}
"""What files store otherwise, by the format's converters: the tensor, the folder's, and how."""


@pytest.mark.parametrize("name", STORED)
def test_what_files_store_otherwise(name: str, tmp_path: Path) -> None:
    """Beside reading what was written, which would not see a change that both leave out."""
    _, checkpoint, path = written(name, tmp_path)
    file = read_gguf(path)
    for stored, theirs, change in STORED[name]:
        close(file.tensors[stored].array(), change(checkpoint.tensors[theirs]))
    heads = file.metadata[f"{file.metadata['general.architecture']}.attention.head_count_kv"]
    assert heads == (2 if name == "nemotron" else [0, 2])


def side_by_side(array: Array, heads: int) -> Array:
    """Rows that turn together beside each other, as the converter of Llama lays them."""
    return array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)


@pytest.mark.long
def test_files_of_the_third_ministral(tmp_path: Path) -> None:
    """They are called as those of Mistral Small, which have no temperature."""
    theirs, checkpoint, path = written("ministral3_as_published", tmp_path)
    file = read_gguf(path)
    assert file.metadata["general.architecture"] == "mistral3"
    assert file.metadata["mistral3.attention.temperature_scale"] == 0.5
    assert file.metadata["mistral3.rope.scaling.yarn_log_multiplier"] == 1
    tensors = {name: each.array() for name, each in file.tensors.items()}
    for part, heads in (("q", 4), ("k", 2)):
        folder = checkpoint.tensors[f"model.layers.1.self_attn.{part}_proj.weight"]
        found = tensors[f"blk.1.attn_{part}.weight"]
        np.testing.assert_array_equal(found, side_by_side(np.asarray(folder), heads))
    check_logits(theirs, decoder_of(load_checkpoint(path)), "reference")
    metadata = dict(file.metadata)
    del metadata["mistral3.attention.temperature_scale"]
    save_gguf(path, tensors, metadata)
    found = [record.name for record in records() if record.gguf and is_of(file, record.gguf)]
    assert found == ["Ministral3ForCausalLM"]
    read = load_checkpoint(path)
    assert read.config["architectures"] == ["MistralForCausalLM"]
    assert decoder_of(read).config.layers[0].temperature is None


def test_numbers_of_an_activation_are_metadata(tmp_path: Path) -> None:
    _, checkpoint, path = written("apertus", tmp_path)
    file = read_gguf(path)
    for key in ("alpha_p", "alpha_n", "beta", "eps"):
        names = [f"model.layers.{layer}.mlp.act_fn.{key}" for layer in range(2)]
        wanted = [float(checkpoint.tensors[name].reshape(())) for name in names]
        close(np.float32(file.metadata[f"xielu.{key}"]), np.float32(wanted))


def test_heads_of_values_lie_by_their_number(tmp_path: Path) -> None:
    """Of linear attention: the first head of values of every head of keys, then the second ones.

    https://github.com/ggml-org/llama.cpp/pull/19468
    """
    _, checkpoint, path = written("qwen3_5", tmp_path)
    tensors = {name: each.array() for name, each in read_gguf(path).tensors.items()}
    layer = "model.layers.0.linear_attn."
    folder = {name.removeprefix(layer): array for name, array in checkpoint.tensors.items()}
    groups, members, width, keys = 2, 2, 5, 2 * 2 * 6
    for key in range(groups):
        for member in range(members):
            here, there = key * members + member, member * groups + key
            mine, theirs = (slice(width * n, width * (n + 1)) for n in (here, there))
            for name, file in (
                ("in_proj_b.weight", "ssm_beta.weight"),
                ("in_proj_a.weight", "ssm_alpha.weight"),
                ("dt_bias", "ssm_dt.bias"),
            ):
                np.testing.assert_array_equal(tensors[f"blk.0.{file}"][there], folder[name][here])
            rate = -np.exp(folder["A_log"][here])
            close(tensors["blk.0.ssm_a"][there], rate)
            pairs = (
                (tensors["blk.0.attn_gate.weight"][theirs], folder["in_proj_z.weight"][mine]),
                (tensors["blk.0.ssm_out.weight"][:, theirs], folder["out_proj.weight"][:, mine]),
                (
                    tensors["blk.0.attn_qkv.weight"][keys:][theirs],
                    folder["in_proj_qkv.weight"][keys:][mine],
                ),
                (
                    tensors["blk.0.ssm_conv1d.weight"][keys:][theirs],
                    folder["conv1d.weight"][keys:, 0][mine],
                ),
            )
            for found, wanted in pairs:
                np.testing.assert_array_equal(found, wanted)


def test_queries_keys_and_values_lie_by_kind(tmp_path: Path) -> None:
    """Folders of Qwen3-Next have them, and gates, by their heads of keys."""
    _, checkpoint, path = written("qwen3_next", tmp_path)
    tensors = {name: each.array() for name, each in read_gguf(path).tensors.items()}
    whole = checkpoint.tensors["model.layers.0.linear_attn.in_proj_qkvz.weight"].reshape(2, 32, -1)
    parts = np.split(whole, (6, 12, 22), 1)
    q, k, v, gate = (part.reshape(-1, whole.shape[2]) for part in parts)
    np.testing.assert_array_equal(tensors["blk.0.attn_qkv.weight"], np.concatenate((q, k, v)))
    np.testing.assert_array_equal(tensors["blk.0.attn_gate.weight"], gate)


NOT_OF_ANY_WINDOWS = {
    *("gemma3n", "gemma4", "gemma4_moe", "llama4_as_published", "llama_with_biases"),
}
LISTED = ([True, False], [False, True], [False, False], [True, True], [0, 1])


def windows_of(path: Path, window: int, pattern: Any) -> list[int | None] | None:
    """Of the layers of a file that says so; None where it is refused for that."""
    file = read_gguf(path)
    prefix = f"{file.metadata['general.architecture']}.attention.sliding_window"
    tensors = {name: each.array() for name, each in file.tensors.items()}
    save_gguf(path, tensors, {**file.metadata, prefix: window, f"{prefix}_pattern": pattern})
    try:
        return [layer.window for layer in decoder_of(load_checkpoint(path)).config.layers]
    except LoadError as error:
        if re.search("sliding_window_pattern is .*; in a .* may have a window", str(error)):
            return None
        raise


@pytest.mark.parametrize(
    "name", long_but(sorted({*WRITTEN} - NOT_OF_ANY_WINDOWS), sorted(WRITTEN)[::8])
)
def test_windows_are_those_that_the_file_lists(name: str, tmp_path: Path) -> None:
    """Or the file is refused, where the class has no such layers; one without windows never is.

    Those of the name llama that have windows have no biases; Gemma 3n's and Llama 4's four layers,
    and Gemma 4's other heads where they have none.
    """
    _, _, path = written(name, tmp_path)
    for flags in LISTED:
        found = windows_of(path, 5, flags)
        assert found == [5 if flag else None for flag in flags] or (found is None and any(flags))
    assert windows_of(path, 5, 1) == [None, None]  # of one layer the last has none
    with pytest.raises(
        LoadError, match=r"pattern is \[True\]; it must be a flag for each of 2 layers"
    ):
        windows_of(path, 5, [True])


@pytest.mark.parametrize("name", ["ministral", "qwen2", "qwen3", "gemma2", "olmo3", "cohere2"])
def test_windows_of_any_layers(name: str, tmp_path: Path) -> None:
    _, _, path = written(name, tmp_path)
    for flags in LISTED:
        assert windows_of(path, 5, flags) == [5 if flag else None for flag in flags]
    assert windows_of(path, 5, 2) == [5, None]
    assert windows_of(path, 5, 0) == [5, 5]


def test_experts_whose_weights_are_added_up_without_a_word(tmp_path: Path) -> None:
    """Published files of Qwen3-MoE do not say that weights of experts are normalised."""
    _, _, path = written("qwen3_moe_normalised", tmp_path)
    file = read_gguf(path)
    tensors = {name: each.array() for name, each in file.tensors.items()}
    metadata = dict(file.metadata)
    for said in (metadata.pop("qwen3moe.expert_weights_norm"), False):
        save_gguf(path, tensors, metadata)
        experts = decoder_of(load_checkpoint(path)).config.experts
        assert experts is not None
        assert experts.normalize == said
        metadata["qwen3moe.expert_weights_norm"] = False


def test_numbers_that_are_listed_for_each_layer(tmp_path: Path) -> None:
    """One for all where they are the same."""
    _, checkpoint, path = written("llama", tmp_path)
    file = read_gguf(path)
    tensors = {name: each.array() for name, each in file.tensors.items()}
    keys = ("feed_forward_length", "attention.head_count", "attention.head_count_kv")
    lists = {f"llama.{key}": [file.metadata[f"llama.{key}"]] * 2 for key in keys}
    save_gguf(path, tensors, {**file.metadata, **lists})
    found = decoder_of(load_checkpoint(path))
    check_same(decoder_of(checkpoint).config, found.config, "llama")
    for listed in ([2, 1], [2], [2, 2, 2]):
        save_gguf(path, tensors, {**file.metadata, "llama.attention.head_count_kv": listed})
        with pytest.raises(LoadError, match=r"head_count_kv is \[.*\], it must be an integer"):
            load_checkpoint(path)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_format_cannot_say_is_refused(name: str, tmp_path: Path) -> None:
    made(ALL[name], tmp_path)
    with pytest.raises(InputError, match=REFUSED[name]):
        gguf_model(load_checkpoint(tmp_path))


@pytest.mark.parametrize("name", long_but(WRITTEN, [*WRITTEN][::4]))
def test_names_are_those_of_the_format(name: str, tmp_path: Path) -> None:
    _, checkpoint, path = written(name, tmp_path)
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    numbers = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}
    blocks = reader.fields[f"{architecture}.block_count"].contents()
    names = gguf.get_tensor_name_map(numbers[architecture], blocks)
    found = {tensor.name for tensor in reader.tensors} - {"rope_freqs.weight"}
    found |= {name.rpartition(".")[0] for name in found}  # as gpt-oss calls experts
    for theirs in checkpoint.tensors:
        if theirs.startswith(("visual.", "model.visual.")):
            continue  # in the mmproj file
        whole = re.sub(r"\.(experts|altup_\w+)\.\d+\.", r".\1.", theirs)
        whole = whole.replace("model.language_model.", "model.")
        if architecture in NO_DENSE and re.search(r"mlp\.\w+_proj", whole):
            continue  # they have layers without experts, the format's have none
        if re.search("input_linear|experts.gate_up_proj|in_proj_qkvz|act_fn", whole):
            continue  # two tensors, or numbers of the metadata
        if re.search(r"router\.(per_expert_)?scale", whole):
            continue  # no names of the package; see tests/models/public_gguf.py
        if name == "granite_hybrid_dense" and ".shared_mlp." in whole:
            continue  # of a model with experts
        # Converters rename these before they look for them.
        whole = whole.replace(".dt_bias", ".dt_proj.bias")
        stems = whole.removesuffix("_bias"), *map(whole.removeprefix, ("transformer.", "model."))
        assert found & {names.get_name(stem, (".weight", ".bias")) for stem in stems}, theirs


@pytest.mark.parametrize("name", long_but(READ_BY_TRANSFORMERS, STORED_OTHERWISE))
def test_transformers_reads_the_same_weights(name: str, tmp_path: Path) -> None:
    theirs, _, path = written(name, tmp_path)
    found = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=theirs)["tensors"]
    wanted = theirs.state_dict()
    assert len(found) > len(wanted) / 2
    for key, array in found.items():
        # The rounding of 1 + weight, and of logarithms; all others are equal.
        tolerance = 1e-6 if key.endswith("A_log") else 2**-23
        np.testing.assert_allclose(array, wanted[key], rtol=0, atol=tolerance)


@pytest.mark.long
@pytest.mark.parametrize("name", WRITTEN)
def test_transformers_reads_the_folder_of_a_gguf_file(name: str, tmp_path: Path) -> None:
    """Its configuration is one, and says what the first one said."""
    (tmp_path / "first").mkdir()
    theirs, _, path = written(name, tmp_path / "first")
    convert(path, tmp_path / "again")
    # Of a model that sees, the text part is in the file.
    kind = ALL[name].model if name in TEXT_PARTS else "AutoModelForCausalLM"
    again, found = getattr(transformers, kind).from_pretrained(
        tmp_path / "again", dtype="float32", output_loading_info=True
    )
    assert not [key for key in found["missing_keys"] if ".visual." not in key]
    assert not any(found[f"{kind}_keys"] for kind in ("unexpected", "mismatched"))
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (1, 19))
    close_to_greatest(expected(again.eval(), ids), expected(theirs, ids))


@pytest.mark.long
@pytest.mark.parametrize("name", WRITTEN)
def test_damaged_files_are_refused_by_name(name: str, tmp_path: Path) -> None:
    """Other values in the metadata, other shapes, tensors that are gone."""
    _, _, path = written(name, tmp_path)
    file, rng = read_gguf(path), random.Random(name)
    for _ in range(60):
        metadata, tensors = dict(file.metadata), dict(file.tensors)
        key, tensor = rng.choice([*metadata]), rng.choice([*tensors])
        if rng.random() < 0.7:
            metadata[key] = rng.choice(GGUF_VALUES)
        elif rng.random() < 0.4:
            del tensors[tensor]
        else:
            shape = [rng.choice((0, 1, 3, 32)) for _ in range(rng.choice((0, 1, 2, 3)))]
            tensors[tensor] = StoredTensor("F32", tuple(shape), np.ones(shape, np.float32))
        with contextlib.suppress(InputError, LoadError):
            save_gguf(path, tensors, metadata)
            load(path, backend="reference")
