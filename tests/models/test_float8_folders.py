"""Folders of Hugging Face whose matrices are float8_e4m3fn with scales: `quant_method` "fp8"."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import LoadError
from luminal.frontend.matrices.packed import Packed
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import load_checkpoint
from luminal.models.llama import Llama, LlamaConfig
from tests.close import close_to_greatest
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
BLOCK = 128
SIZES = LlamaConfig(256, 384, 2, 4, 2, 64, 300, 32, tie_word_embeddings=False)
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 384,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "vocab_size": 300, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
}  # fmt: skip


def spread(scales: Array, shape: tuple[int, ...]) -> Array:
    """The scale of each element."""
    if scales.size == 1:
        return np.full(shape, scales.reshape(-1)[0])
    rows, columns = (np.arange(n) // BLOCK for n in shape)
    return scales[rows][:, columns]


def saved(folder: Path, side: list[int] | None, change: Callable[[Tensors], Any] = len) -> Tensors:
    """A folder of a Llama, whose matrices but for embedding and head are so packed; the values."""
    lm.manual_seed(0)
    values: Tensors = {}
    tensors: Tensors = {}
    for name, held in Llama(SIZES).named_parameters():
        values[name] = array = held.numpy()
        tensors[name] = array.astype(ml_dtypes.bfloat16)
        if array.ndim == 2 and "proj" in name:
            grid = (-(-array.shape[0] // BLOCK), -(-array.shape[1] // BLOCK))
            scales = np.linspace(0.5e-3, 2e-3, grid[0] * grid[1]).reshape(grid).astype(np.float32)
            scales = np.float32(1e-3).reshape(()) if side is None else scales
            codes = (array / spread(scales, array.shape)).astype(ml_dtypes.float8_e4m3fn)
            tensors |= {name: codes, f"{name}_scale_inv": scales}
            tensors[name.replace("weight", "activation_scale")] = np.ones((), np.float32)
            values[name] = codes.astype(np.float32) * spread(scales, array.shape)
        else:
            values[name] = tensors[name].astype(np.float32)
    change(tensors)
    lm.save(folder / "model.safetensors", tensors)
    said = {"quant_method": "fp8", "weight_block_size": side, "activation_scheme": "static"}
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": said}))
    return values


def logits(model: Any) -> Array:
    cx = lm.Graph()
    model(cx.tensor((2, 9), lm.int32, "ids")).output("logits")
    ids = np.random.default_rng(0).integers(0, 300, (2, 9), np.int32)
    return np.asarray(lm.compile(cx)(ids=ids)["logits"])


@pytest.mark.parametrize("side", mostly_long([[128, 128], None], 1), ids=["blocks", "tensor"])
def test_they_are_read_and_kept(side: list[int] | None, tmp_path: Path) -> None:
    values = saved(tmp_path, side)
    plain, kept = (
        decoder_of(load_checkpoint(tmp_path, keep_quantized=keeps)) for keeps in (False, True)
    )
    state = plain.state_dict()
    assert state.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(np.asarray(state[name], np.float32), value, name)
    held = dict(kept.named_parameters())
    packed = {name for name, each in held.items() if isinstance(each, Packed)}
    assert packed == {name for name in values if "proj" in name}
    for name in packed:
        assert held[name].kind == f"float8_e4m3fn_{'tensor' if side is None else 'block'}"
        assert held[name].nbytes < 1.01 * values[name].size
        np.testing.assert_array_equal(held[name].numpy(), values[name], name)
    lm.manual_seed(0)
    floats = Llama(SIZES).eval()
    floats.load_state_dict(values)
    for model in (plain, kept):
        close_to_greatest(logits(model), logits(floats), 1e-5)


def test_rows_of_no_whole_blocks_are_decoded(tmp_path: Path) -> None:
    def narrow(tensors: Tensors) -> None:
        name = "model.layers.0.mlp.down_proj.weight"
        tensors[name] = np.ascontiguousarray(tensors[name][:, :300])
        for other in ("gate_proj", "up_proj"):
            other = name.replace("down_proj", other)
            tensors[other] = np.ascontiguousarray(tensors[other][:300])

    values = saved(tmp_path, [128, 128], narrow)
    tensors = load_checkpoint(tmp_path, keep_quantized=True, with_tokenizer=False).tensors
    down, up = (f"model.layers.0.mlp.{name}_proj.weight" for name in ("down", "up"))
    np.testing.assert_array_equal(tensors[down], values[down][:, :300])
    assert isinstance(tensors[up], Packed)
    np.testing.assert_array_equal(tensors[up].numpy(), values[up][:300])


NAME = "model.layers.1.self_attn.q_proj.weight"
SCALE = f"{NAME}_scale_inv"
DAMAGED: dict[str, tuple[list[int] | None, Callable[[Tensors], Any], str]] = {
    "no scale": ([128, 128], lambda t: t.pop(SCALE), r"there is no tensor '.*weight_scale_inv'"),
    "no codes": ([128, 128], lambda t: t.pop(NAME), r"q_proj.weight_scale_inv', and no float8"),
    "codes of floats": (
        [128, 128], lambda t: t.update({NAME: t[NAME].astype(np.float32)}), "must be float8_e4m3fn"
    ),
    "a row of scales": (
        [128, 128], lambda t: t.update({SCALE: t[SCALE][:1]}), r"\[1, 2\]: it must have .* \[2, 2\]"
    ),
    "scales of blocks": (
        None, lambda t: t.update({SCALE: np.ones((2, 2), np.float32)}), r"must have .* \[256, 1\]"
    ),
    "one scale": (
        [128, 128], lambda t: t.update({SCALE: np.ones((), np.float32)}), r"must have .* \[2, 2\]"
    ),
    "integers": (
        [128, 128], lambda t: t.update({SCALE: np.ones((2, 2), np.int32)}), r"int32\[2, 2\]: it mu"
    ),
    "a vector": (
        [128, 128], lambda t: t.update({NAME: t[NAME][0]}), r"fn\[256\]: it must have .*any, any"
    ),
    "no numbers": (
        None, lambda t: t.update({SCALE: np.float32(np.nan).reshape(())}), "holds NaN or infinity"
    ),
    "two scales": (
        None, lambda t: t.update({f"{NAME}_scale": np.ones((), np.float32)}), "not be there beside"
    ),
    "other blocks": ([64, 128], len, r"it must have the shape \[4, 3\]"),
    "no size": ([128], len, r"weight_block_size is \[128\]; it must be two numbers"),
    "a size of 0": ([0, 128], len, r"weight_block_size is \[0, 128\]; it must be two numbers"),
    "a great size": ([128, 10**12], len, r"weight_block_size is .*; it must be two numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_ones_are_refused(name: str, tmp_path: Path) -> None:
    side, change, message = DAMAGED[name]
    saved(tmp_path, side, change)
    with pytest.raises(LoadError, match=message):
        load_checkpoint(tmp_path)
