"""Checkpoints and tokenizer files of llama2.c (legacy export, version 0).

A checkpoint is 7 int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len) and
f32 weights in a fixed order; a negative vocab_size means that the output matrix is its own.
https://github.com/karpathy/llama2.c/blob/master/export.py
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import processors

from luminal.base.errors import LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.mapped import Array, array_at, map_file
from luminal.loaders.row_pairs import rotated_halves
from luminal.loaders.sentencepiece import SPACE, Kind, Piece, sentencepiece
from luminal.loaders.tokenizer import HuggingFaceTokenizer, library_errors, panics_unheard

_BOS, _EOS = 1, 2
_HEADER = struct.Struct("<7i")
_VERSIONED_MAGIC = 0x616B3432  # "ak42": exports of version 1 and later


def read_llama2c(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """What a `config.json` would say, and the weights under Hugging Face's names.

    They are views of the mapped file, but for those of queries and keys: the file has the rows that
    are rotated together side by side. The norm's epsilon and the rotary base, which it does not
    hold, are llama2.c's constants.
    """
    data = map_file(path)
    config = _read_config(data, path)
    layout = _layout(config)
    end = _HEADER.size
    for name, shape in layout:  # before anything is listed: the header may say any sizes
        end += 4 * math.prod(shape)
        if end > len(data):
            raise LoadError(
                f"{path}: truncated: {name} ends at byte {end}, the file has {len(data)}; "
                "download it again"
            )
    if end != len(data):
        raise LoadError(f"{path}: {len(data) - end} bytes too long; not a llama2.c checkpoint")
    weights: dict[str, Array] = {}
    offset = _HEADER.size
    for name, shape in layout:
        if name.startswith("model.layers.*."):
            stacked = array_at(data, offset, "<f4", shape)
            for index in range(shape[0]):
                weights[name.replace("*", str(index))] = _in_halves(name, stacked[index], config)
        # The tables of cosines are computed anew, as for every model.
        elif name != "rotary tables":
            weights[name] = array_at(data, offset, "<f4", shape)
        offset += 4 * math.prod(shape)
    return config, weights


def read_llama2c_tokenizer(path: Path) -> HuggingFaceTokenizer:
    """The tokenizer in a llama2.c `tokenizer.bin`: longest piece's length, then every piece.

    A piece is an f32 score, an i32 length and its bytes. The file has no names for its special
    pieces: 0 is unknown, 1 begins and 2 ends a text, 3 .. 258 are the bytes.
    """
    data = map_file(path)
    pieces: list[Piece] = []
    # The longest length is for C programs, which reserve memory by it.
    position = 4
    while position < len(data):
        if position + 8 > len(data):
            raise LoadError(f"{path}: truncated in piece {len(pieces)}; download it again")
        score, length = struct.unpack_from("<fi", data, position)
        position += 8
        if length < 0 or position + length > len(data):
            raise LoadError(
                f"{path}: truncated or not a llama2.c tokenizer: piece {len(pieces)} has length "
                f"{length}, {len(data) - position} bytes are left"
            )
        text = bytes(data[position : position + length])
        pieces.append(_piece(len(pieces), text, score))
        position += length
    if len(pieces) < 259:
        raise LoadError(f"{path}: {len(pieces)} pieces; a llama2.c tokenizer has at least 259")
    with panics_unheard(), library_errors(path):
        inner = sentencepiece(pieces)
        # llama2.c begins every text with it, and its tokenizer file has no word for that.
        begin = pieces[_BOS].text
        inner.post_processor = processors.TemplateProcessing(
            single=[begin, "$A"], special_tokens=[(begin, _BOS)]
        )
        return HuggingFaceTokenizer(inner, _BOS, frozenset((_BOS, _EOS)), path)


def _piece(index: int, text: bytes, score: float) -> Piece:
    if index < 3:
        return Piece(("<unk>", "<s>", "</s>")[index], score, Kind.CONTROL)
    if index < 259:
        return Piece(f"<0x{index - 3:02X}>", score, Kind.BYTE)
    # The export has turned SentencePiece's mark into a space, which is turned back.
    return Piece(text.decode("utf-8", "replace").replace(" ", SPACE), score, Kind.TEXT)


def _read_config(data: memoryview, path: Path) -> dict[str, Any]:
    if len(data) < _HEADER.size:
        raise LoadError(f"{path}: truncated: {len(data)} bytes, the header has {_HEADER.size}")
    dim, hidden, layers, heads, kv_heads, vocab, length = _HEADER.unpack_from(data)
    if dim == _VERSIONED_MAGIC:
        raise LoadError(
            f"{path}: a llama2.c export of version {hidden}; only version 0 (legacy f32) is "
            f"supported: export with --version 0"
        )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": dim,
        "intermediate_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": dim // max(heads, 1),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": abs(vocab),
        "max_position_embeddings": length,
        "tie_word_embeddings": vocab > 0,
    }
    fields = Fields(config, path, "the header")
    for name, value in config.items():
        if type(value) is int:
            fields.integer(name)
    return config


def _in_halves(name: str, array: Array, config: Mapping[str, Any]) -> Array:
    if name == "model.layers.*.self_attn.q_proj.weight":
        return rotated_halves(array, config["num_attention_heads"])
    if name == "model.layers.*.self_attn.k_proj.weight":
        return rotated_halves(array, config["num_key_value_heads"])
    return array


def _layout(config: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """The blocks of the file in order; `*` stands for the layer, the leading dim of the block."""
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    inner, head_dim = config["intermediate_size"], config["head_dim"]
    q_rows = config["num_attention_heads"] * head_dim
    kv_rows = config["num_key_value_heads"] * head_dim
    blocks: list[tuple[str, tuple[int, ...]]] = [
        ("model.embed_tokens.weight", (config["vocab_size"], hidden)),
        ("model.layers.*.input_layernorm.weight", (layers, hidden)),
        ("model.layers.*.self_attn.q_proj.weight", (layers, q_rows, hidden)),
        ("model.layers.*.self_attn.k_proj.weight", (layers, kv_rows, hidden)),
        ("model.layers.*.self_attn.v_proj.weight", (layers, kv_rows, hidden)),
        ("model.layers.*.self_attn.o_proj.weight", (layers, hidden, q_rows)),
        ("model.layers.*.post_attention_layernorm.weight", (layers, hidden)),
        ("model.layers.*.mlp.gate_proj.weight", (layers, inner, hidden)),
        # The file's order is w1, w2, w3, of which w2 is the way down.
        ("model.layers.*.mlp.down_proj.weight", (layers, hidden, inner)),
        ("model.layers.*.mlp.up_proj.weight", (layers, inner, hidden)),
        ("model.norm.weight", (hidden,)),
        ("rotary tables", (2, config["max_position_embeddings"], head_dim // 2)),
    ]
    if not config["tie_word_embeddings"]:
        blocks.append(("lm_head.weight", (config["vocab_size"], hidden)))
    return blocks
