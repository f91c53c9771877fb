"""Types of blocks whose scales are fitted: errors, extremes, and which matrices take which type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.ggml.blocks import fields, packed_fields
from luminal.loaders.ggml.fitting import centered, fitted, fitted_from_least
from luminal.loaders.ggml.k_quantizers import QUANTIZERS
from luminal.loaders.ggml.mixes import MIXES, types_of, why_not
from luminal.loaders.ggml.quantize import quantized
from luminal.loaders.ggml.types import BLOCKS, unpacked

gguf = pytest.importorskip("gguf")
Array = np.ndarray[Any, Any]
THEIRS = {
    "IQ4_NL": (0.07632, 0.07592),
    "Q2_K": (0.29729, 0.29557),
    "Q3_K": (0.15109, 0.15050),
    "Q4_K": (0.07155, 0.07111),
    "Q5_K": (0.03622, 0.03604),
    "Q6_K": (0.01778, 0.01768),
}
"""The rms error of llama.cpp's quantizers (0.3.36 of its Python package, without statistics of
activations) over the values': of normal numbers, and of tinystories-656k's matrices."""


def rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def share(kind: str, values: Array) -> float:
    """The rms error over the values'."""
    found = unpacked(quantized("w", values, kind))
    return rms(found.astype(np.float64) - values) / rms(values)


def test_kinds() -> None:
    assert {*THEIRS} == {*QUANTIZERS}


@pytest.mark.parametrize("kind", THEIRS)
def test_errors_are_as_small_as_the_formats_own(kind: str, shared_data: Any) -> None:
    normal = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
    weights = lm.load(shared_data / "tinystories-656k" / "model.safetensors").values()
    flat = np.concatenate([each.reshape(-1) for each in weights if each.ndim == 2])
    trained = flat[: len(flat) // 256 * 256].reshape(-1, 256).astype(np.float32)
    for values, theirs in zip((normal, trained), THEIRS[kind], strict=True):
        assert share(kind, values) <= theirs * 1.005


@pytest.mark.parametrize("kind", THEIRS)
def test_the_package_reads_them(kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((5, 512)).astype(np.float32)
    blocks = quantized("w", values, kind)
    raw = np.ascontiguousarray(blocks).view(np.uint8).reshape(5, -1)
    theirs = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(unpacked(blocks), theirs)
    most = {"Q2_K": 0.4, "Q3_K": 0.2, "Q4_K": 0.1, "IQ4_NL": 0.1, "Q5_K": 0.05, "Q6_K": 0.025}
    assert rms(theirs - values) < most[kind]


@pytest.mark.parametrize("kind", THEIRS)
def test_extremes(kind: str) -> None:
    """No value of a block may spoil others more than its scale does, and nothing is lost."""
    size = BLOCKS[kind].size
    spike = np.zeros((1, size), np.float32)
    spike[0, 7] = -3
    for values in (np.zeros((2, size), np.float32), spike, -spike):
        found = unpacked(quantized("w", values, kind))
        # the block's own step: of 4 bits by a table, or finer
        np.testing.assert_allclose(found, values, atol=0.03 if kind == "IQ4_NL" else 3e-3)
    same = np.full((1, size), 0.75, np.float32)
    for values in (same, -same):
        found = unpacked(quantized("w", values, kind))
        # scales are float16 and below: a hundredth is one step
        np.testing.assert_allclose(found, values, rtol=0.01)
    ramp = np.linspace(-1, 1, size, dtype=np.float32)[None]
    for scale in (1e-3, 1.0, 1e3):
        assert share(kind, ramp * np.float32(scale)) < 0.2
    for scale in (1e12, 1e30, 3e38):
        with pytest.raises(InputError, match=rf"w: holds .*, for which {kind.lower()} has no scal"):
            quantized("w", ramp * np.float32(scale), kind)
    with pytest.raises(InputError, match=rf"w: has infinite values .* {kind} cannot hold"):
        quantized("w", np.full((1, size), np.nan, np.float32), kind)


@pytest.mark.parametrize(("bits", "run"), [(1, 1), (1, 32), (2, 32), (2, 4), (4, 8), (4, 64)])
def test_fields_and_back(bits: int, run: int) -> None:
    data = np.random.default_rng(2).integers(0, 256, (3, 64), dtype=np.uint8)
    np.testing.assert_array_equal(packed_fields(fields(data, bits, run), bits, run), data)


def test_scales_are_near_the_best() -> None:
    """Those found by a fine search are hardly better."""
    values = np.random.default_rng(3).standard_normal((200, 16)).astype(np.float32)
    levels, trials = centered(3), np.linspace(0.05, 1.5, 2000, dtype=np.float32)
    turned = levels(values[:, None] / np.concatenate([trials, -trials])[:, None])
    explained = np.square((values[:, None] * turned).sum(-1))
    best = (explained / np.square(turned).sum(-1).clip(1e-9)).max(1)
    scale = fitted(values, levels, [*np.linspace(-4.9, -3.1, 9)])
    error = np.square(values - scale * levels(values / scale)).sum(-1)
    assert rms(values) ** 2 * 16 - best.mean() >= error.mean() * 0.97
    scale, least = fitted_from_least(values, 3, [*np.linspace(2.25, 4, 9)])
    codes = np.rint((values + least) / scale).clip(0, 3)
    assert rms(scale * codes - least - values) < 0.27


class TestMixes:
    """Which matrices take which type."""

    NAMES = (
        "model.layers.{}.self_attn.v_proj.weight", "model.layers.{}.mlp.down_proj.weight",
        "model.layers.{}.self_attn.q_proj.weight",
    )  # fmt: skip

    def test_finer_ones(self) -> None:
        rows = {name.format(k): 512 for k in range(16) for name in self.NAMES}
        found = types_of("Q4_K_M", rows | {"model.embed_tokens.weight": 512})
        finer = [name for name, kind in found.items() if kind == "Q6_K"]
        layers = [0, 1, 4, 7, 10, 13, 14, 15]
        assert finer == [
            *(name.format(k) for k in layers for name in self.NAMES[:2]),
            "model.embed_tokens.weight",
        ]
        assert {*found.values()} == {"Q4_K", "Q6_K"}
        outputs = {"model.embed_tokens.weight": 512, "lm_head.weight": 512}
        assert [*types_of("Q4_K_M", outputs).values()] == ["Q4_K", "Q6_K"]
        theirs = {"token_embd.weight": 512, "blk.15.attn_v.weight": 512, "blk.1.ffn_up.weight": 512}
        assert [*types_of("Q3_K_M", theirs).values()] == ["Q5_K", "Q5_K", "Q3_K"]

    @pytest.mark.parametrize(
        ("choice", "kind"),
        [("Q4_K", "Q5_0"), ("Q2_K", "IQ4_NL"), ("Q6_K", "Q8_0"), ("Q4_0", "Q4_0")],
    )
    def test_rows_that_are_no_whole_blocks(self, choice: str, kind: str) -> None:
        assert types_of(choice, {"a": 96, "b": 100}) == {"a": kind}

    def test_routers_stay(self) -> None:
        names = "blk.0.ffn_gate_inp.weight", "model.layers.0.mlp.gate.weight", "a.mlp.router.weight"
        assert types_of("Q4_K", dict.fromkeys([*names, "a.mlp.gate_proj.weight"], 256)) == {
            "a.mlp.gate_proj.weight": "Q4_K"
        }
        assert why_not(names[0], 256) == "chooses experts"

    @pytest.mark.parametrize("choice", MIXES)
    def test_modules(self, choice: str) -> None:
        model = lm.nn.Sequential(lm.nn.Linear(256, 96), lm.nn.Linear(96, 32), lm.nn.Linear(9, 2))
        report = lm.quantize(model, choice.lower())
        first, second, _ = model
        usual = MIXES[choice][0]
        short = {"Q3_K": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1"}[usual]
        assert isinstance(first.weight, Packed)
        assert isinstance(second.weight, Packed)
        assert (first.weight.kind, second.weight.kind) == (usual, short)
        assert report.kept["2.weight"] == "its rows of 9 are no whole blocks of 32"
        told = f"2 weights as {choice.lower()} (1 {usual.lower()}, 1 {short.lower()}): "
        assert report.total.startswith(told)
