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


def bnb8() -> Form:
    """A row is its greatest size times codes / 127."""

    def pack(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
        codes = rng.integers(-127, 128, (rows, columns)).astype(np.int8)
        greatest = rng.uniform(0.05, 0.1, rows).astype(np.float32)
        tensors = {"weight": codes, "SCB": greatest, "weight_format": np.zeros((), np.uint8)}
        return tensors, codes * greatest[:, None].astype(np.float64) / 127

    section = {
        "quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False,
        "llm_int8_skip_modules": ["lm_head"],
    }  # fmt: skip
    return Form(section, pack, "grouped8")


NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]  # fmt: skip
"""Dettmers et al., arXiv 2305.14314, appendix E."""
FP4 = [0, 0.0625 / 12, 8 / 12, 1, 4 / 12, 6 / 12, 2 / 12, 3 / 12]


def bnb4(
    kind: str = "nf4", size: int = SIZE, nested: bool = False, storage: Any = np.uint8
) -> Form:
    """Codes of a table, of which blocks share a scale, which may be codes of a table too. The bytes
    of codes may be stored as those of numbers of another dtype.
    """

    def pack(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
        table = np.array(NF4 if kind == "nf4" else [*FP4, *(-x for x in FP4)], np.float32)
        codes = rng.integers(0, 16, rows * columns)
        count = -(-len(codes) // size)
        state = {"quant_type": kind, "blocksize": size, "dtype": "bfloat16",
                 "shape": [rows, columns]}  # fmt: skip
        tensors: Tensors = {
            "weight": (codes[::2] << 4 | codes[1::2]).astype(np.uint8).view(storage)[:, None],
            "weight.quant_map": table,
        }
        if nested:
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.06}
            stored = rng.integers(0, 256, count).astype(np.uint8)
            outer = np.linspace(-1, 1, 256).astype(np.float32)
            wide = rng.uniform(0.02, 0.04, -(-count // 256)).astype(np.float32)
            tensors |= {"weight.absmax": stored, "weight.nested_quant_map": outer,
                        "weight.nested_absmax": wide}  # fmt: skip
            product = outer[stored].astype(np.float64) * wide[np.arange(count) // 256]
            scales = product + float(np.float32(0.06))
        else:
            tensors["weight.absmax"] = rng.uniform(0.05, 0.1, count).astype(np.float32)
            scales = tensors["weight.absmax"].astype(np.float64)
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        tensors[f"weight.quant_state.bitsandbytes__{kind}"] = text
        values = table[codes].astype(np.float64) * scales[np.arange(len(codes)) // size]
        return tensors, values.reshape(rows, columns)

    section = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
               "bnb_4bit_use_double_quant": nested}  # fmt: skip
    return Form(section, pack, "table4" if size == SIZE else None)


def compressed(layout: str, weights: Mapping[str, Any], pack: Any, kept: str | None) -> Form:
    """What llm-compressor's `config.json` says."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    section = {"quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"],
               "config_groups": {"group_0": group}}  # fmt: skip
    return Form(section, pack, kept)


def ct_packed(bits: int, size: int = SIZE, sym: bool = True, dtype: Any = None) -> Form:
    def pack(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
        length = columns if size < 0 else size
        codes, zeros = integers(rng, (rows, columns), bits, length, sym)
        scales = scales_of(rng, zeros.shape, dtype or ml_dtypes.bfloat16, bits)
        tensors = {
            "weight_packed": words(codes, bits),
            "weight_scale": scales,
            "weight_shape": np.array([rows, columns], np.int64),
        }
        if not sym:
            tensors["weight_zero_point"] = np.ascontiguousarray(
                words(np.ascontiguousarray(zeros.T), bits).T
            )
        groups = np.arange(columns) // length
        return tensors, (codes - zeros[:, groups]) * scales[:, groups].astype(np.float64)

    weights = {"num_bits": bits, "type": "int", "symmetric": sym, "group_size": size,
               "strategy": "channel" if size < 0 else "group"}  # fmt: skip
    kept = None if not sym and dtype is np.float32 else f"grouped{bits}"
    return compressed("pack-quantized", weights, pack, kept)


def ct_int8(sym: bool = True) -> Form:
    def pack(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
        codes = rng.integers(-128, 128, (rows, columns)).astype(np.int8)
        scales = scales_of(rng, (rows, 1), ml_dtypes.bfloat16, 8)
        tensors = {"weight": codes, "weight_scale": scales}
        zeros = np.zeros((rows, 1), np.int8)
        if not sym:
            zeros = rng.integers(-128, 128, (rows, 1)).astype(np.int8)
            tensors["weight_zero_point"] = zeros
        return tensors, (codes.astype(np.int64) - zeros) * scales.astype(np.float64)

    weights = {"num_bits": 8, "type": "int", "symmetric": sym, "strategy": "channel"}
    return compressed("int-quantized", weights, pack, "grouped8")


def float8_codes(rng: np.random.Generator, rows: int, columns: int) -> Array:
    return rng.uniform(-200, 200, (rows, columns)).astype(ml_dtypes.float8_e4m3fn)


def by_rows(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
    codes = float8_codes(rng, rows, columns)
    scales = rng.uniform(1e-4, 1e-3, (rows, 1)).astype(np.float32)
    tensors = {"weight": codes, "weight_scale": scales, "input_scale": np.ones(1, np.float32)}
    return tensors, codes.astype(np.float64) * scales


def by_tensor(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
    codes = float8_codes(rng, rows, columns)
    scale = np.array([7e-4], np.float32)
    return {"weight": codes, "weight_scale": scale}, codes.astype(np.float64) * scale


def by_blocks(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
    codes = float8_codes(rng, rows, columns)
    scales = rng.uniform(1e-4, 1e-3, (-(-rows // 16), -(-columns // 40))).astype(np.float32)
    spread = scales[np.arange(rows) // 16][:, np.arange(columns) // 40]
    return {"weight": codes, "weight_scale": scales}, codes.astype(np.float64) * spread


def renamed(pack: Any) -> Any:
    """Scales as DeepSeek's files call them."""

    def inverse(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
        tensors, values = pack(rng, rows, columns)
        return {
            k.replace("weight_scale", "weight_scale_inv"): v for k, v in tensors.items()
        }, values

    return inverse


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def nvfp4(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
    codes = rng.integers(0, 16, (rows, columns))
    scales = rng.uniform(20, 400, (rows, columns // 16)).astype(ml_dtypes.float8_e4m3fn)
    of_all = np.array([9000], np.float32)
    tensors = {
        "weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8),
        "weight_scale": scales,
        "weight_global_scale": of_all,
    }
    steps = np.repeat(scales.astype(np.float64) / 9000, 16, 1)
    return tensors, E2M1[codes] * steps


def mxfp4(rng: np.random.Generator, rows: int, columns: int) -> tuple[Tensors, Array]:
    codes = rng.integers(0, 16, (rows, columns))
    scales = rng.integers(118, 123, (rows, columns // 32)).astype(np.uint8)
    tensors = {
        "weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8),
        "weight_scale": scales,
    }
    return tensors, E2M1[codes] * np.repeat(2.0 ** (scales.astype(int) - 127), 32, 1)


def _float_weights(**more: Any) -> dict[str, Any]:
    return {"num_bits": 8, "type": "float", "symmetric": True, **more}


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
    "bitsandbytes 8 bits": bnb8(),
    "bitsandbytes nf4": bnb4(),
    "bitsandbytes nf4, nested": bnb4(nested=True),
    "bitsandbytes fp4": bnb4("fp4"),
    "bitsandbytes nf4, stored as bfloat16": bnb4(storage=ml_dtypes.bfloat16),
    "bitsandbytes nf4, blocks over rows": bnb4(size=80),
    "fp8 by tensor": Form({"quant_method": "fp8"}, by_tensor, "float8_e4m3fn_tensor"),
    "fp8 by row": Form({"quant_method": "fbgemm_fp8"}, by_rows, "float8_e4m3fn"),
    "fp8 by blocks": Form(
        {"quant_method": "fp8", "weight_block_size": [16, 40]}, renamed(by_blocks), None
    ),
    "compressed int4": ct_packed(4),
    "compressed int4, asymmetric": ct_packed(4, sym=False),
    "compressed int4, float32 scales": ct_packed(4, sym=False, dtype=np.float32),
    "compressed int4, a group a row": ct_packed(4, size=-1),
    "compressed int8, packed": ct_packed(8),
    "compressed int8": ct_int8(),
    "compressed int8, asymmetric": ct_int8(sym=False),
    "compressed fp8 by row": compressed(
        "float-quantized", _float_weights(strategy="channel"), by_rows, "float8_e4m3fn"
    ),
    "compressed fp8 by tensor": compressed(
        "float-quantized", _float_weights(strategy="tensor"), by_tensor, "float8_e4m3fn_tensor"
    ),
    "compressed fp8 by blocks": compressed(
        "float-quantized",
        _float_weights(strategy="block", block_structure=[16, 40]),
        by_blocks,
        None,
    ),
    "compressed nvfp4": compressed(
        "nvfp4-pack-quantized",
        _float_weights(num_bits=4, strategy="tensor_group", group_size=16),
        nvfp4,
        "nvfp4",
    ),
    "compressed mxfp4": compressed(
        "mxfp4-pack-quantized",
        _float_weights(num_bits=4, strategy="group", group_size=32),
        mxfp4,
        "mxfp4",
    ),
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
