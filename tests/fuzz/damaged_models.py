"""Small whole models in every format that is read, and the same with one file damaged."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from tokenizers import pre_tokenizers

import luminal as lm
from luminal.loaders.safetensors_file import DTYPES
from luminal.models import Llama, LlamaConfig
from tests.fuzz.damage import (
    INTEGERS,
    Field,
    damaged_bytes,
    damaged_fields,
    damaged_json,
    dumped,
    joined,
    replace_file,
)

VOCABULARY = 300
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 4, "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64, "tie_word_embeddings": True, "hidden_act": "silu",
    "attention_bias": False, "rope_theta": 10000.0, "bos_token_id": 0, "eos_token_id": [1],
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}  # fmt: skip
GENERATION = {"bos_token_id": 0, "eos_token_id": [1, 2], "max_length": 64}
SETTINGS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "model_max_length": 1e30}


@dataclass(frozen=True, slots=True)
class Damaged:
    """A damaged file and how it is read: "model", "arrays" or "tokenizer"."""

    reader: str
    path: Path
    damage: str
    tokenizer: Path | None = None


# --- whole files ----------------------------------------------------------------------------------


@functools.cache
def weights() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    sizes = LlamaConfig(
        hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4, vocab_size=VOCABULARY, tie_word_embeddings=True,
    )  # fmt: skip
    shapes = {name: each.shape for name, each in Llama(sizes).named_parameters()}
    return {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def tokenizer(kind: str = "BPE") -> dict[str, Any]:
    """A tokenizer.json; special tokens are 0 to 2."""
    special = ["<s>", "</s>", "<pad>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*special, *letters, "ab", "abc"]
    vocab: Any = {piece: number for number, piece in enumerate(pieces)}
    model: dict[str, Any] = {"type": kind, "vocab": vocab, "unk_token": "<pad>"}
    if kind == "BPE":
        model |= {"merges": [["a", "b"], ["ab", "c"]], "byte_fallback": False, "fuse_unk": False}
    elif kind == "WordPiece":
        model |= {"continuing_subword_prefix": "", "max_input_chars_per_word": 100}
    elif kind == "Unigram":
        listed = [[piece, -float(n)] for n, piece in enumerate(pieces)]
        model = {"type": kind, "vocab": listed, "unk_id": 2, "byte_fallback": False}
    added = [
        {"id": n, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for n, text in enumerate(special)
    ]  # fmt: skip
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    digits = {"type": "Digits", "individual_digits": True}
    split = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}
    a_text = {"Sequence": {"id": "A", "type_id": 0}}
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 9, "strategy": "LongestFirst",
                       "stride": 0},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": 8,
                    "pad_id": 2, "pad_type_id": 0, "pad_token": "<pad>"},
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"String": "zz"}, "content": "z"},
            {"type": "Prepend", "prepend": "a"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, split, level]},
        "post_processor": {"type": "TemplateProcessing", "single": [bos, a_text], "pair": [a_text],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            level, {"type": "Replace", "pattern": {"String": "z"}, "content": "y"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": model,
    }  # fmt: skip


def write_folder(folder: Path, sharded: bool = False) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))
    (folder / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    if not sharded:
        lm.save(folder / "model.safetensors", weights())
        return
    names = list(weights())
    files = {name: f"model-{n % 3}.safetensors" for n, name in enumerate(names)}
    for file in set(files.values()):
        part = {name: weights()[name] for name in names if files[name] == file}
        lm.save(folder / file, part)
    index = {"metadata": {"total_size": 1}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm", "mlp.up_proj": "ffn_up",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.down_proj": "ffn_down", "model.embed_tokens": "token_embd", "model.norm": "output_norm",
}  # fmt: skip


def gguf_metadata(byte_level: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "general.architecture": "llama", "general.alignment": 32, "llama.embedding_length": 8,
        "llama.block_count": 2, "llama.feed_forward_length": 12, "llama.context_length": 64,
        "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True, "general.tags": [["a", "b"], ["c"]],
    }  # fmt: skip
    bytes_ = [f"<0x{n:02X}>" for n in range(256)]
    if byte_level:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokens = ["<unk>", "<s>", "</s>", *letters, "ab"]
        more: dict[str, Any] = {
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
            "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.token_type": [3, 3, 3] + [1] * 257,
        }  # fmt: skip
    else:
        tokens = ["<unk>", "<s>", "</s>", *bytes_, "\u2581", "a", "b", "ab"]
        more = {
            "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [-float(n) for n in range(len(tokens))],
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 4,
        }  # fmt: skip
    return found | more


def gguf_fields(metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> list[Field]:
    """The file piece by piece; its text fields are a length and bytes.

    `shapes`: what the header says of some tensors instead of the truth.
    """
    fields = [
        Field("s", b"GGUF"),
        Field("I", 3),
        Field("Q", len(weights())),
        Field("Q", len(metadata)),
    ]
    for key, value in metadata.items():
        fields += [*_text(key), *_value(value)]
    offset, data = 0, []
    for name, array in weights().items():
        stem = name.removesuffix(".weight")
        layer, _, short = stem.removeprefix("model.layers.").partition(".")
        named = GGUF_NAMES.get(stem) or f"blk.{layer}.{GGUF_NAMES[short]}"
        shape = shapes.get(stem, array.shape)
        fields += [*_text(named + ".weight"), Field("I", len(shape))]
        fields += [Field("Q", extent) for extent in reversed(shape)]
        fields += [Field("I", 0), Field("Q", offset)]
        data.append(array.tobytes() + bytes(-array.nbytes % 32))
        offset += len(data[-1])
    fields.append(Field("s", bytes(-len(joined(fields)) % 32)))
    return [*fields, Field("s", b"".join(data))]


def _text(text: str) -> list[Field]:
    return [Field("Q", len(text.encode())), Field("s", text.encode())]


def _value(value: Any) -> list[Field]:
    if isinstance(value, list):
        items = [_value(item) for item in value] or [[Field("I", 8)]]
        return [
            Field("I", 9),
            items[0][0],
            Field("Q", len(value)),
            *(f for i in items for f in i[1:]),
        ]
    if isinstance(value, str):
        return [Field("I", 8), *_text(value)]
    if isinstance(value, int) and not 0 <= value < 1 << 32:
        return [Field("I", 10), Field("Q", value % (1 << 64))]
    kind, code = {bool: (7, "B"), int: (4, "I"), float: (6, "f")}[type(value)]
    return [Field("I", kind), Field(code, value)]


def llama2c_fields() -> list[Field]:
    sizes = (8, 12, 2, 2, 1, VOCABULARY, 64)
    layers = 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 96)
    count = VOCABULARY * 8 + layers + 8 + 2 * 64 * 2
    data = np.random.default_rng(0).standard_normal(count, np.float32).tobytes()
    return [*(Field("i", size) for size in sizes), Field("s", data)]


def llama2c_tokenizer_fields() -> list[Field]:
    pieces = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % n for n in range(256)), b" ", b"a", b"ab"]
    fields = [Field("I", 8)]
    for number, piece in enumerate(pieces):
        fields += [Field("f", -float(number)), Field("i", len(piece)), Field("s", piece)]
    return fields


def arrays() -> dict[str, Any]:
    """One array of each dtype that a safetensors file can hold, of several ranks."""
    shapes = ((3, 5), (), (0, 4), (7,))
    return {
        f"{dtype.name}.{n}": np.ones(shapes[n % 4], dtype)
        for n, dtype in enumerate(DTYPES.values())
    }


# --- damaged ones ---------------------------------------------------------------------------------


def damaged(number: int, folder: Path) -> Damaged:
    """The damaged file of this number, written into an empty folder."""
    rng = random.Random(f"damaged file {number}")
    return KINDS[number % len(KINDS)](folder, rng)


def whole(folder: Path) -> Iterator[Damaged]:
    """Every file that is damaged below as it is before; each must load."""
    for number, kind in enumerate(KINDS):
        place = folder / str(number)
        place.mkdir()
        yield kind(place, None)


def _rewrite_json(path: Path, rng: random.Random, key: str = "") -> str:
    """Damages JSON as a tree or as text."""
    if rng.random() < 0.2:
        path.write_bytes(damaged_bytes(path.read_bytes(), rng))
        return f"bytes of {path.name}"
    path.write_bytes(dumped(damaged_json(json.loads(path.read_bytes()), rng, key)))
    return f"values in {path.name}"


def _rewrite_safetensors(path: Path, rng: random.Random) -> str:
    """Damages bytes anywhere, or the header's values under a length that fits."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    if rng.random() < 0.4:
        fields = [Field("Q", start - 8), Field("s", data[8:start]), Field("s", data[start:])]
        spoil = damaged_fields(fields, rng) if rng.random() < 0.5 else damaged_bytes(data, rng)
        path.write_bytes(spoil)
        return f"bytes of {path.name}"
    text = dumped(damaged_json(json.loads(data[8:start]), rng))
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[start:])
    return f"header of {path.name}"


def _rewrite_fields(path: Path, fields: list[Field], rng: random.Random) -> str:
    spoil = damaged_fields if rng.random() < 0.8 else _of_bytes
    path.write_bytes(spoil(fields, rng))
    return f"fields of {path.name}"


def _of_bytes(fields: list[Field], rng: random.Random) -> bytes:
    return damaged_bytes(joined(fields), rng)


def _in_folder(file: str, sharded: bool = False) -> Callable[..., Damaged]:
    def kind(folder: Path, rng: random.Random | None) -> Damaged:
        write_folder(folder, sharded)
        path = folder / file
        if rng is None:
            damage = "none"
        elif path.suffix == ".json":
            damage = _rewrite_json(path, rng)
        else:
            damage = _rewrite_safetensors(path, rng)
        return Damaged("model", folder, damage)

    return kind


def _another_file(folder: Path, rng: random.Random | None) -> Damaged:
    """Something that is no file in a file's place."""
    sharded = rng is None or rng.random() < 0.5
    write_folder(folder, sharded)
    damage = "none"
    if rng is not None:
        path = rng.choice(sorted(folder.iterdir()))
        damage = f"{replace_file(path, rng)} as {path.name}"
    return Damaged("model", folder, damage)


GGUF_VALUES: tuple[Any, ...] = (
    True, False, 0, 1, 3, 64, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 0.5, 0.0, -1.0, float("nan"),
    1e38, "", "a", "llama", "\ud800".encode("utf-8", "surrogatepass").decode("latin1"), "x" * 1000,
    [], [0], [[]], [[[[["a"]]]]], ["a"], ["a"] * 300, [0.5] * 300, [1] * 300, [True] * 263,
    [2**40] * 263,
)  # fmt: skip


def _damaged_metadata(
    metadata: dict[str, Any], rng: random.Random
) -> tuple[str, dict[str, tuple[int, ...]]]:
    """Values of other types and sizes, or none; or other shapes of a tensor, in a sound file."""
    if rng.random() < 0.25:
        stem = rng.choice(list(weights())).removesuffix(".weight")
        rank = rng.choice((0, 1, 2, 3, 64, 65, 1000))
        extents = [rng.choice((0, 1, 1, 1, *INTEGERS)) % (1 << 64) for _ in range(rank)]
        return f"shape of {stem}", {stem: tuple(extents)}
    for _ in range(rng.choice((1, 1, 2))):
        key = rng.choice(list(metadata))
        if rng.random() < 0.2:
            del metadata[key]
        else:
            metadata[key] = _damaged_value(metadata[key], rng)
    return "values in m.gguf", {}


def _damaged_value(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list) and rng.random() < 0.5:
        changed = list(value)
        del changed[rng.randrange(len(value))]
        return changed * rng.choice((0, 1, 1, 2))
    return rng.choice(GGUF_VALUES)


def _gguf(byte_level: bool) -> Callable[..., Damaged]:
    def kind(folder: Path, rng: random.Random | None) -> Damaged:
        path, metadata = folder / "m.gguf", gguf_metadata(byte_level)
        fields = gguf_fields(metadata, {})
        path.write_bytes(joined(fields))
        if rng is None:
            return Damaged("model", path, "none")
        if rng.random() < 0.5:
            damage, shapes = _damaged_metadata(metadata, rng)
            path.write_bytes(joined(gguf_fields(metadata, shapes)))
            return Damaged("model", path, damage)
        if rng.random() < 0.05:
            return Damaged("model", path, replace_file(path, rng))
        return Damaged("model", path, _rewrite_fields(path, fields, rng))

    return kind


def _llama2c(folder: Path, rng: random.Random | None) -> Damaged:
    model, pieces = folder / "m.bin", folder / "tok.bin"
    model.write_bytes(joined(llama2c_fields()))
    pieces.write_bytes(joined(llama2c_tokenizer_fields()))
    damage = "none"
    if rng is not None and rng.random() < 0.6:
        damage = _rewrite_fields(model, llama2c_fields(), rng)
    elif rng is not None:
        damage = _rewrite_fields(pieces, llama2c_tokenizer_fields(), rng)
    return Damaged("model", model, damage, pieces)


def _tokenizer(folder: Path, rng: random.Random | None) -> Damaged:
    path = folder / "tokenizer.json"
    kind = "BPE" if rng is None else rng.choice(("BPE", "BPE", "Unigram", "WordPiece", "WordLevel"))
    path.write_text(json.dumps(tokenizer(kind)))
    if rng is None:
        return Damaged("tokenizer", path, "none")
    # Three quarters of a tokenizer are its vocabulary, and few things can be wrong there.
    part = rng.choice(("", "", "post_processor", "normalizer", "pre_tokenizer", "decoder", "model"))
    return Damaged("tokenizer", path, f"{kind}: {_rewrite_json(path, rng, part)}")


def _saved(folder: Path, rng: random.Random | None) -> Damaged:
    """What `lm.save` and `lm.save_gguf` write, and formats that are only refused."""
    form = "safetensors" if rng is None else rng.choice(("safetensors", "gguf", "npz", "model"))
    path, damage = folder / f"m.{form}", "none"
    if form == "gguf":
        lm.save_gguf(path, {"a": np.ones((3, 4), np.float32), "b": np.ones(5, ml_dtypes.bfloat16)})
    elif form == "safetensors":
        lm.save(path, arrays(), {"format": "pt"})
    elif form == "npz":
        np.savez(path, a=np.ones(3))
    else:  # a protocol buffer of SentencePiece
        path.write_bytes(b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02" * 20)
    if rng is not None and form == "safetensors":
        damage = _rewrite_safetensors(path, rng)
    elif rng is not None:
        path.write_bytes(damaged_bytes(path.read_bytes(), rng))
        damage = f"bytes of {path.name}"
    return Damaged("arrays", path, damage)


KINDS: tuple[Callable[..., Damaged], ...] = (
    _in_folder("config.json"),
    _in_folder("model.safetensors"),
    _gguf(byte_level=False),
    _tokenizer,
    _in_folder("model.safetensors.index.json", sharded=True),
    _in_folder("model-1.safetensors", sharded=True),
    _gguf(byte_level=True),
    _in_folder("generation_config.json"),
    _llama2c,
    _saved,
    _tokenizer,
    _another_file,
    _in_folder("tokenizer_config.json"),
    _in_folder("config.json"),
    _in_folder("tokenizer.json"),
)
