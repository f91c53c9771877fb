"""GGUF files, written here byte by byte: metadata, tensors, both tokenizers, damage."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tokenizers import pre_tokenizers

import luminal as lm
from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.gguf import MAX_ITEMS, GGUFFile, StoredTensor, read_gguf
from luminal.loaders.gguf_tokenizer import gguf_tokenizer
from luminal.models.architectures.gpt2 import GPT2
from luminal.models.gguf.changes import Heads
from luminal.models.gguf.read import architecture_of_file, config_of
from luminal.models.gguf.tensors import hugging_face_tensors
from tests.unit.loaders.gguf_bytes import gguf, text, value

PATH = Path("m.gguf")


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_tensors(tmp_path: Path, version: int) -> None:
    metadata = {
        "a": 3,
        "b": 0.5,
        "c": "word",
        "d": True,
        "e": [1, 2],
        "f": ["x", ""],
        "g": [[1], [2]],
    }
    a = np.arange(6, dtype="<f4").reshape(2, 3)
    tensors = {
        "single": (0, a),
        "half": (1, a.astype("<f2")),
        "brain": (30, a.astype(ml_dtypes.bfloat16)),
    }
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(metadata, tensors, version))
    file = read_gguf(path)
    assert file.metadata == metadata
    for name, (_, expected) in tensors.items():
        found = file.tensors[name].array()
        np.testing.assert_array_equal(found, expected, strict=True)
        assert not found.flags.owndata


def metadata_file(path: Path, *values: bytes) -> Path:
    """A file without tensors whose values are named 0, 1, ..., each given as bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    path.write_bytes(head + b"".join(text(str(n)) + item for n, item in enumerate(values)))
    return path


def test_every_type_of_number(tmp_path: Path) -> None:
    numbers: list[tuple[int, str, float]] = [
        (0, "B", 200), (1, "b", -3), (2, "H", 60000), (3, "h", -300), (4, "I", 2**32 - 1),
        (5, "i", -5), (6, "f", 0.5), (7, "?", True), (10, "Q", 2**64 - 1), (11, "q", -(2**40)),
        (12, "d", 0.1),
    ]  # fmt: skip
    values = [struct.pack(f"<I{code}", kind, number) for kind, code, number in numbers]
    found = read_gguf(metadata_file(tmp_path / "m.gguf", *values)).metadata
    assert [*found.values()] == [number for _, _, number in numbers]


def test_arrays_nest_up_to_eight_deep(tmp_path: Path) -> None:
    def nested(depth: int) -> bytes:
        arrays = struct.pack("<IQ", 9, 1) * (depth - 1)
        return struct.pack("<I", 9) + arrays + struct.pack("<IQB", 0, 1, 7)

    path = tmp_path / "m.gguf"
    assert read_gguf(metadata_file(path, nested(8))).metadata == {"0": [[[[[[[[7]]]]]]]]}
    with pytest.raises(LoadError, match="arrays nest 9 deep and hold 521 values; 8 and 2097152"):
        read_gguf(metadata_file(path, nested(9)))


def test_all_arrays_together_have_so_many_values(tmp_path: Path) -> None:
    def zeros(count: int) -> bytes:
        return struct.pack("<IIQ", 9, 0, count) + bytes(count)

    path = tmp_path / "m.gguf"
    found = read_gguf(metadata_file(path, zeros(3), zeros(MAX_ITEMS - 3))).metadata
    assert len(found["1"]) == MAX_ITEMS - 3
    with pytest.raises(LoadError, match="nest 1 deep and hold 2097153 values"):
        read_gguf(metadata_file(path, zeros(3), zeros(MAX_ITEMS - 2)))


@pytest.mark.parametrize(
    ("number", "shape", "message"),
    [
        (4, (32,), "'w' has type number 4, which is not known; known are F32, F16, Q4_0,"),
        (12, (2, 128), r"'w' has the shape \[2, 128\]; its last dim must be whole blocks of 256"),
        (8, (), r"'w' has the shape \[\]; its last dim must be whole blocks of 32, as it is Q8_0"),
        (41, (2**31, 2**31 - 128), "'w': no memory holds the shape"),
        (12, (3, 256), r"truncated: tensor 'w' ends at byte 528, the file has \d+"),
    ],
    ids=["unknown", "part_of_a_block", "scalar", "beyond_memory", "truncated"],
)
def test_a_type_that_does_not_fit(
    tmp_path: Path, number: int, shape: tuple[int, ...], message: str
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf({}, {"w": (number, np.zeros(1, "<f4"), shape)}))
    with pytest.raises(LoadError, match=message):
        read_gguf(path)


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    whole = gguf({"key": "word"}, {"w": (0, np.zeros((4, 8), "<f4"))})
    path.write_bytes(whole)
    assert read_gguf(path).tensors["w"].shape == (4, 8)
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(LoadError, match=r"m\.gguf: (truncated|not a GGUF file)"):
            read_gguf(path)
    path.write_bytes(b"GGUF" + struct.pack("<I", 1) + bytes(16))
    with pytest.raises(LoadError, match="GGUF version 1 is not supported; 2 and 3 are"):
        read_gguf(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99))
    with pytest.raises(LoadError, match="unknown metadata type 99"):
        read_gguf(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * (text("k") + value(True)))
    with pytest.raises(LoadError, match="the metadata has 'k' twice; the file is damaged"):
        read_gguf(path)


LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.embedding_length": 8,
    "llama.block_count": 2,
    "llama.feed_forward_length": 12,
    "llama.context_length": 64,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 0.5,
}


def stored(**shapes: tuple[int, ...]) -> dict[str, StoredTensor]:
    """Tensors of zeros; `__` stands for a dot."""
    return {
        name.replace("__", "."): StoredTensor("F32", shape, np.zeros(shape, np.float32))
        for name, shape in shapes.items()
    }


def config(metadata: dict[str, Any], tensors: dict[str, StoredTensor]) -> dict[str, Any]:
    file = GGUFFile(metadata, tensors)
    return config_of(file, architecture_of_file(file, PATH), PATH)


def test_another_architecture_is_refused() -> None:
    for name in ("other", None):
        with pytest.raises(LoadError, match=f"architecture {name!r} is not supported; .* llama, "):
            config({"general.architecture": name}, {})


def test_a_llama_has_its_sizes_from_the_metadata() -> None:
    embedding = stored(token_embd__weight=(16, 8))
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "rms_norm_eps": 0.5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "vocab_size": 16,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
    }
    assert config(LLAMA, embedding) == expected
    more = {
        "llama.attention.head_count_kv": 1,
        "llama.attention.key_length": 6,
        "llama.rope.freq_base": 500.0,
        "llama.rope.dimension_count": 3,
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 16,
        "llama.attention.sliding_window": 0,
        "tokenizer.ggml.eos_token_id": 3,
    }
    own = embedding | stored(output__weight=(16, 8), blk__0__attn_q__bias=(12,))
    assert config(LLAMA | more, own) == expected | {
        "num_key_value_heads": 1,
        "head_dim": 6,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "partial_rotary_factor": 0.5,
        },
        "tie_word_embeddings": False,
        "attention_bias": True,
        "eos_token_id": 3,
    }


def test_a_llama_with_experts_or_a_window_is_another_class() -> None:
    embedding = stored(token_embd__weight=(16, 8))
    found = config(LLAMA | {"llama.expert_count": 4, "llama.expert_used_count": 2}, embedding)
    assert found["architectures"] == ["MixtralForCausalLM"]
    assert (found["num_local_experts"], found["num_experts_per_tok"]) == (4, 2)
    assert config(LLAMA | {"llama.expert_count": 0}, embedding)["model_type"] == "llama"
    slides = {
        "llama.attention.sliding_window": 7,
        "llama.attention.sliding_window_pattern": [True, False],
    }
    found = config(LLAMA | slides, embedding)
    assert (found["model_type"], found["sliding_window"]) == ("ministral", 7)
    assert found["layer_types"] == ["sliding_attention", "full_attention"]
    slides["llama.attention.sliding_window_pattern"] = [True]
    with pytest.raises(LoadError, match="must be a flag for each of 2 layers"):
        config(LLAMA | slides, embedding)


def test_layers_that_guess_further_tokens_are_left_out() -> None:
    metadata = {key.replace("llama.", "glm4moe."): value for key, value in LLAMA.items()}
    more = {"general.architecture": "glm4moe", "glm4moe.nextn_predict_layers": 1}
    tensors = stored(token_embd__weight=(16, 8), blk__1__nextn__eh_proj__weight=(8, 16))
    found = config(metadata | more, tensors)
    assert found["num_hidden_layers"] == 1
    architecture = architecture_of_file(GGUFFile(more, tensors), PATH)
    weights = hugging_face_tensors(tensors, architecture, Heads(2, 2))
    assert [*weights] == ["model.embed_tokens.weight"]


def test_factors_of_frequencies_are_part_of_the_configuration() -> None:
    tensors = stored(token_embd__weight=(16, 8), rope_freqs__weight=(2,))
    tensors["rope_freqs.weight"].data[:] = (1, 8)
    assert config(LLAMA, tensors)["rope_parameters"] == {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 8.0],
        "long_factor": [1.0, 8.0],
        "attention_factor": 1.0,
    }


def test_weights_have_the_names_of_hugging_face() -> None:
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output.weight": "lm_head.weight",
        "blk.10.attn_v.bias": "model.layers.10.self_attn.v_proj.bias",
        "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
        "blk.0.odd.weight": "blk.0.odd.weight",
        "odd": "odd",
    }
    tensors = {
        name: StoredTensor("F32", (n,), np.zeros(n, np.float32)) for n, name in enumerate(names)
    }
    architecture = architecture_of_file(GGUFFile(LLAMA, tensors), PATH)
    found = hugging_face_tensors(tensors, architecture, Heads(2, 2))
    assert [*found] == [*names.values()]
    assert all(found[new] is tensors[old].data for old, new in names.items())


def test_rows_of_queries_are_turned_together_in_halves() -> None:
    rows = np.arange(12, dtype=np.float32)[:, None]
    tensors = {
        "blk.0.attn_q.weight": StoredTensor("F32", (12, 1), rows),
        "blk.0.attn_k.weight": StoredTensor("F32", (6, 1), rows[:6]),
        "rope_freqs.weight": StoredTensor("F32", (3,), rows[:3, 0]),
    }
    architecture = architecture_of_file(GGUFFile(LLAMA, tensors), PATH)
    found = hugging_face_tensors(tensors, architecture, Heads(2, 1))
    assert {name: array.ravel().tolist() for name, array in found.items()} == {
        "model.layers.0.self_attn.q_proj.weight": [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11],
        "model.layers.0.self_attn.k_proj.weight": [0, 2, 4, 1, 3, 5],
    }
    with pytest.raises(LoadError, match=r"\(12, 1\) for 8 heads.* must be a multiple of 16"):
        hugging_face_tensors(tensors, architecture, Heads(8, 1))


def test_fewer_features_than_heads() -> None:
    fields = Fields({"n_embd": 3, "n_head": 4, "n_layer": 1, "vocab_size": 8}, PATH)
    with pytest.raises(LoadError, match="3 features are fewer than 4 heads"):
        GPT2.config(fields)


def test_halves_of_a_weight_must_fit_each_other() -> None:
    tensors = stored(blk__0__ffn_gate_exps__weight=(2, 3, 4), blk__0__ffn_up_exps__weight=(2, 3, 5))
    architecture = architecture_of_file(GGUFFile({"general.architecture": "granitemoe"}, {}), PATH)
    with pytest.raises(LoadError, match=r"cannot be read from \(2, 3, 4\), \(2, 3, 5\)"):
        hugging_face_tensors(tensors, architecture, Heads(2, 1))
    del tensors["blk.0.ffn_up_exps.weight"]
    assert hugging_face_tensors(tensors, architecture, Heads(2, 1)) == {}


def test_a_llama_without_a_matrix_of_embeddings_is_refused() -> None:
    for tensors in ({}, stored(token_embd__weight=(16,))):
        with pytest.raises(LoadError, match=r"'token_embd\.weight' is missing or no matrix"):
            config(LLAMA, tensors)


def test_sentencepiece_tokenizer() -> None:
    bytes_ = [f"<0x{n:02X}>" for n in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, "\u2581", "a", "ab", "b", "unused"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, 1, 1, 4, 1, 5],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    tokenizer = gguf_tokenizer(metadata, PATH)
    assert tokenizer.encode("a\né") == [1, 259, 260, 3 + 10, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.encode("ab") == [1, 261]  # "ab" is cut out before a space is put in front
    assert tokenizer.decode([1, 259, 260, 3 + 10, 263, 2]) == "a\n"
    bare = {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_space_prefix": False}
    assert gguf_tokenizer(metadata | bare, PATH).encode("ab") == [261]
    with pytest.raises(LoadError, match="264 tokens, 1 scores and 264 types; it must have as many"):
        gguf_tokenizer(metadata | {"tokenizer.ggml.scores": [0.0]}, PATH)


def test_what_has_no_piece_is_unknown() -> None:
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a"],
        "tokenizer.ggml.scores": [0.0] * 4,
        "tokenizer.ggml.token_type": [2, 3, 3, 1],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": False,
    }
    assert gguf_tokenizer(metadata, PATH).encode("aé") == [1, 3, 0]
    other = metadata | {"tokenizer.ggml.unknown_token_id": 2}
    assert gguf_tokenizer(other, PATH).encode("aé") == [1, 3, 2]


def test_byte_level_tokens_meet_in_the_words_of_their_model() -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*letters, "!a", "12", "123", "1234"],
        "tokenizer.ggml.merges": ["! a", "1 2", "12 3", "123 4"],
        "tokenizer.ggml.bos_token_id": 0,
    }
    one, four, mark, a = (letters.index(letter) for letter in "14!a")
    for cut, start, expected in (
        ("gpt-2", [], [mark, a, 259]),
        ("smollm", [], [mark, a, one, one + 1, one + 2, four]),
        ("llama-bpe", [0], [256, 258, four]),
        ("llama3", [0], [256, 258, four]),
        ("llama-v3", [0], [256, 258, four]),
    ):
        tokenizer = gguf_tokenizer(metadata | {"tokenizer.ggml.pre": cut}, PATH)
        assert tokenizer.encode("!a1234") == start + expected, cut
    del metadata["tokenizer.ggml.bos_token_id"]
    tokenizer = gguf_tokenizer(metadata | {"tokenizer.ggml.pre": "llama-bpe"}, PATH)
    assert tokenizer.encode("!a") == [256]


def test_byte_level_tokenizer() -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, "ab", "\u0120ab", "<|begin|>", "<|end|>"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": ["a b", "\u0120 ab"],
        "tokenizer.ggml.token_type": [1] * 258 + [3, 3],
        "tokenizer.ggml.bos_token_id": 258,
        "tokenizer.ggml.eos_token_id": 259,
        "tokenizer.ggml.add_bos_token": True,
    }
    for cut in ("gpt-2", "llama-bpe", "smollm"):
        tokenizer = gguf_tokenizer(metadata | {"tokenizer.ggml.pre": cut}, PATH)
        assert tokenizer.encode("ab ab") == [258, 256, 257]
        assert tokenizer.decode([258, 256, 257, 259]) == "ab ab"
        assert tokenizer.decode(tokenizer.encode("né 日 1234\n")) == "né 日 1234\n"
        assert (tokenizer.bos_id, tokenizer.eos_ids) == (258, frozenset((259,)))
    with pytest.raises(LoadError, match="pre-tokenizer 'odd' is not supported"):
        gguf_tokenizer(metadata | {"tokenizer.ggml.pre": "odd"}, PATH)


def test_another_tokenizer_is_refused() -> None:
    with pytest.raises(LoadError, match="tokenizer 'rwkv' is not supported; 'llama', 'gpt2', 'b"):
        gguf_tokenizer({"tokenizer.ggml.model": "rwkv"}, PATH)


# --- what is refused by its first bytes, its keys and its name ------------------------------------


def test_a_big_endian_file_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    with pytest.raises(LoadError, match=r"m\.gguf: a big-endian GGUF file; .* gguf-convert-endian"):
        read_gguf(path)


def test_an_empty_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf({"": 1}, {}))
    with pytest.raises(LoadError, match="the metadata has an empty key; the file is damaged"):
        read_gguf(path)


def test_load_takes_the_first_of_several_files_and_no_other(tmp_path: Path) -> None:
    for k in (1, 2):
        tensors = {f"w{k}": (0, np.full(2, k, np.float32))}
        file = gguf({"split.count": 2, "split.no": k - 1}, tensors)
        (tmp_path / f"m-0000{k}-of-00002.gguf").write_bytes(file)
    found = lm.load(tmp_path / "m-00001-of-00002.gguf")
    assert {name: array.tolist() for name, array in found.items()} == {"w1": [1, 1], "w2": [2, 2]}
    with pytest.raises(LoadError, match=r"is one of 2 files; pass the first, .*-00001-of-00002"):
        lm.load(tmp_path / "m-00002-of-00002.gguf")
