"""GGUF files, written here byte by byte: metadata, tensors, both tokenizers, damage."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tokenizers import pre_tokenizers

from luminal.errors import LoadError
from luminal.loaders.gguf import GGUFFile, read_gguf
from luminal.loaders.gguf_llama import gguf_tokenizer, llama_config

PATH = Path("m.gguf")


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """One metadata value with its type number in front."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    items = [value(i) for i in item]
    return (
        struct.pack("<I", 9)
        + items[0][:4]
        + struct.pack("<Q", len(items))
        + b"".join(i[4:] for i in items)
    )


def gguf(
    metadata: dict[str, Any], tensors: dict[str, tuple[int, np.ndarray[Any, Any]]], version: int = 3
) -> bytes:
    """A file; tensors are given with their GGUF type number."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, item in metadata.items():
        head += text(key) + value(item)
    data = b""
    for name, (kind, array) in tensors.items():
        dims = array.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", kind, len(data))
        data += array.tobytes() + bytes(-array.nbytes % 32)
    return head + bytes(-len(head) % 32) + data


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
        np.testing.assert_array_equal(file.tensors[name], expected, strict=True)
        assert not file.tensors[name].flags.owndata


def test_an_unsupported_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf({}, {"w": (12, np.zeros(32, "<f4"))}))
    with pytest.raises(LoadError, match="'w' has type Q4_K; supported are F32, F16, BF16"):
        read_gguf(path)


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    whole = gguf({"key": "word"}, {"w": (0, np.zeros((4, 8), "<f4"))})
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


def test_another_architecture_is_refused() -> None:
    with pytest.raises(LoadError, match="architecture 'falcon' is not supported; 'llama' is"):
        llama_config(GGUFFile({"general.architecture": "falcon"}, {}), PATH)
    with pytest.raises(LoadError, match="scaled rotary frequencies are not supported in GGUF"):
        llama_config(
            GGUFFile({"general.architecture": "llama", "llama.rope.scaling.type": "yarn"}, {}), PATH
        )


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
        assert (tokenizer.bos_id, tokenizer.eos_ids) == (258, {259})
    with pytest.raises(LoadError, match="pre-tokenizer 'odd' is not supported"):
        gguf_tokenizer(metadata | {"tokenizer.ggml.pre": "odd"}, PATH)


def test_another_tokenizer_is_refused() -> None:
    with pytest.raises(LoadError, match="tokenizer 'bert' is not supported"):
        gguf_tokenizer({"tokenizer.ggml.model": "bert"}, PATH)
