"""Weights that stay packed: their values are the gguf package's, bit for bit, wherever they are
read, and no program keeps floats of them.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.compiler.dump import Dump
from luminal.loaders.ggml.packed import RECORDED, packed
from tests.close import close
from tests.long_share import long_rows
from tests.numerics.packed_blocks import blocks_of, values_of

BACKENDS = ("reference", "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", RECORDED)
def test_values_are_those_of_the_package(kind: str, backend: str) -> None:
    blocks = blocks_of(kind, 5, 512)
    weight = packed(blocks)
    cx = lm.Graph()
    (cx.weight_of(weight) * 1).output("w")
    found = lm.compile(cx, backend=backend)({})["w"]
    np.testing.assert_array_equal(found, values_of(kind, blocks))
    np.testing.assert_array_equal(weight.numpy(), values_of(kind, blocks))


@pytest.mark.parametrize(
    ("kind", "rows"),
    long_rows(
        itertools.product(RECORDED, (1, 3, 40)), [*zip(RECORDED, itertools.cycle((1, 3, 40)))]
    ),
)
def test_products_read_the_blocks(kind: str, rows: int) -> None:
    blocks = blocks_of(kind, 96, 1024)
    x = np.random.default_rng(1).standard_normal((rows, 1024)).astype(np.float32)
    cx = lm.Graph()
    y = cx.tensor((rows, 1024), name="x") @ cx.weight_of(packed(blocks)).mT
    y.output("y")
    exe = lm.compile(cx)
    want = x.astype(np.float64) @ values_of(kind, blocks).T.astype(np.float64)
    found = exe({"x": x})["y"]
    # 1,024 terms in float32 against float64: 17 ulp of the largest, of which 15 are seen
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-6 * np.abs(want).max())
    assert exe.memory_report().derived_bytes == 0
    assert exe.memory_report().weight_bytes == blocks.nbytes
    assert exe.memory_report().arena_bytes < want.nbytes + x.nbytes


def test_rows_enough_share_what_is_decoded() -> None:
    blocks = blocks_of("Q4_0", 96, 256)
    cx = lm.Graph()
    (cx.tensor((64, 256), name="x") @ cx.weight_of(packed(blocks)).mT).output("y")
    text = Dump(cx.graph(), registry.find("cpu")).text("tile")
    decoding, _, product = text.rpartition("store s0")
    assert "Shr" in decoding
    assert "contract" in product
    assert "Shr" not in product


def test_lanes_of_a_block_are_folded_once() -> None:
    """Not after every block: the fold stands outside of the loop over blocks."""
    blocks = blocks_of("Q4_0", 96, 2048)
    cx = lm.Graph()
    (cx.tensor((1, 2048), name="x") @ cx.weight_of(packed(blocks)).mT).output("y")
    text = Dump(cx.graph(), registry.find("cpu")).text("tile")
    depths = {
        word: len(line) - len(line.lstrip())
        for line in text.splitlines()
        for word in ("reduce", "contract")
        if word in line
    }
    assert depths["reduce"] <= depths["contract"] - 4, text


def test_layers_in_a_loop_decode_in_its_body() -> None:
    """Rolled, the weights are streams of the body, which keeps no floats of them either."""
    lm.manual_seed(0)
    layers = [lm.nn.Linear(128, 128) for _ in range(12)]
    for layer in layers:
        lm.quantize(layer, "q8_0")
    cx = lm.Graph()
    y = cx.tensor((64, 128), name="x")
    for layer in layers:
        y = layer(y).relu()
    y.output("y")
    text = Dump(cx.graph(), registry.find("cpu")).text("program")
    assert "loop" in text, text
    exe = lm.compile(cx)
    values = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    want = values.astype(np.float64)
    for layer in layers:
        assert layer.bias is not None
        want = np.maximum(want @ layer.weight.numpy().T + layer.bias.numpy(), 0)
    found = exe({"x": values})["y"]
    close(found, want, ulp=8)
    report = exe.memory_report()
    assert report.derived_bytes == 0
    assert report.arena_bytes <= 3 * values.nbytes
