"""Small Llamas packed as other programs pack them, and the values that each format's definition
gives: in float64, by bits of NumPy, without the product's code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import luminal as lm
from luminal.models.llama import Llama, LlamaConfig
from tests.fuzz.damaged_models import tokenizer

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
VOCABULARY = 300
SIZES = LlamaConfig(64, 96, 1, 4, 2, 16, VOCABULARY, 64, tie_word_embeddings=False)
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": VOCABULARY, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
    "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
SIZE = 32  # columns of a group


@dataclass(frozen=True)
class Form:
    """A variant of a format: what `config.json` says, and what makes the tensors of a matrix, by
    the ends of their names, and its values. `kept`: the kind that it can stay, None where it must
    be decoded.
    """

    section: Mapping[str, Any]
    pack: Callable[[np.random.Generator, int, int], tuple[Tensors, Array]]
    kept: str | None = None
    files: Mapping[str, Any] = field(default_factory=dict)


def words(codes: Array, bits: int) -> Array:
    """Codes (..., n) as a stream of bits, the lowest first, in int32 (..., n * bits / 32)."""
    stream = (codes.astype(np.uint8)[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    stream = stream.reshape(*codes.shape[:-1], -1)
    return np.packbits(stream, axis=-1, bitorder="little").view("<i4")


def scales_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, bits: int) -> Array:
    return (rng.uniform(0.5, 1.5, shape) / (4 << bits)).astype(dtype)


def integers(
    rng: np.random.Generator, shape: tuple[int, int], bits: int, size: int, sym: bool
) -> tuple[Array, Array]:
    """Codes (rows, columns) and zero points (rows, groups), all codes and zeros among them."""
    count = -(-shape[1] // size)
    codes = rng.integers(0, 1 << bits, shape)
    zeros = rng.integers(0, 1 << bits, (shape[0], count))
    zeros[0, 0], zeros[-1, -1] = 0, (1 << bits) - 1
    return codes, np.full_like(zeros, 1 << (bits - 1)) if sym else zeros


# --- the formats


def gptq(
    bits: int, size: int = SIZE, sym: bool = False, v2: bool = False, order: bool = False,
    said: Mapping[str, Any] | None = None,
) -> Form:  # fmt: skip
    """qweight, qzeros, scales and g_idx."""

    def pack(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
        length = columns if size < 0 else size
        codes, zeros = integers(rng, (rows, columns), bits, length, sym)
        scales = scales_of(rng, zeros.shape, np.float16, bits)
        groups = np.arange(columns, dtype=np.int32) // length
        groups = rng.permutation(groups) if order else groups
        stored = zeros if v2 else (zeros - 1) & ((1 << bits) - 1)
        tensors = {
            "qweight": np.ascontiguousarray(words(np.ascontiguousarray(codes), bits).T),
            "qzeros": words(np.ascontiguousarray(stored.T), bits),
            "scales": np.ascontiguousarray(scales.T),
            "g_idx": groups,
        }
        values = (codes - zeros[:, groups]) * scales[:, groups].astype(np.float64)
        return tensors, values

    section = {
        "quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": order, "sym": sym,
        "checkpoint_format": "gptq_v2" if v2 else "gptq",
    }  # fmt: skip
    if said is not None:
        section = dict(said)
    width = 4 if bits == 3 else bits
    kept = not order and (size < 0 or size == SIZE)
    return Form(section, pack, f"grouped{width}" if kept else None)


def awq(size: int = SIZE) -> Form:
    """Words of eight outputs, whose codes lie as 0, 2, 4, 6, 1, 3, 5, 7."""

    def in_words(codes: Array) -> Array:
        octets = codes.reshape(len(codes), -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]]
        return words(octets.reshape(len(codes), -1), 4)

    def pack(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
        length = columns if size < 0 else size
        codes, zeros = integers(rng, (rows, columns), 4, length, False)
        scales = scales_of(rng, zeros.shape, np.float16, 4)
        tensors = {
            "qweight": in_words(np.ascontiguousarray(codes.T)),
            "qzeros": in_words(np.ascontiguousarray(zeros.T)),
            "scales": np.ascontiguousarray(scales.T),
        }
        groups = np.arange(columns) // length
        return tensors, (codes - zeros[:, groups]) * scales[:, groups].astype(np.float64)

    section = {
        "quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm",
        "zero_point": True, "modules_to_not_convert": ["lm_head"],
    }  # fmt: skip
    return Form(section, pack, "grouped4")


FORMS: dict[str, Form] = {
    "gptq 4 bits": gptq(4),
    "gptq 4 bits, symmetric": gptq(4, sym=True),
    "gptq 4 bits, v2": gptq(4, v2=True),
    "gptq 4 bits, another order": gptq(4, order=True),
    "gptq 4 bits, a group a row": gptq(4, size=-1),
    "gptq 4 bits, a shorter last group": gptq(4, size=60),
    "gptq 8 bits": gptq(8),
    "gptq 8 bits, symmetric": gptq(8, sym=True),
    "gptq 3 bits": gptq(3),
    "gptq 2 bits, v2": gptq(2, v2=True),
    "awq": awq(),
    "awq, a group a row": awq(size=-1),
}


# --- a folder


def tensors_of(form: Form, seed: int = 0) -> tuple[Tensors, Tensors]:
    """The tensors of a Llama whose matrices but for embedding and head are so packed; its values
    by the names of floats, float64.
    """
    lm.manual_seed(seed)
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    values: Tensors = {}
    for name, held in Llama(SIZES).named_parameters():
        if "_proj." in name:
            parts, values[name] = form.pack(rng, *held.shape)
            module = name.removesuffix(".weight")
            tensors |= {f"{module}.{part}": array for part, array in parts.items()}
        else:
            tensors[name] = held.numpy().astype(ml_dtypes.bfloat16)
            values[name] = tensors[name].astype(np.float64)
    return tensors, values


def write(folder: Path, tensors: Tensors, section: Any, files: Mapping[str, Any] = {}) -> None:
    """A folder of these tensors. A section of None is not said in `config.json`."""
    said = {} if section is None else {"quantization_config": section}
    lm.save(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **said}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))


def saved(folder: Path, form: Form) -> Tensors:
    """A folder of a form; the values of its weights."""
    tensors, values = tensors_of(form)
    write(folder, tensors, form.section, form.files)
    return values
