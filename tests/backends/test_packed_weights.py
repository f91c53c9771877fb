"""Packed weights on devices: the same values, and one copy of their bytes there."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.base.errors import CompileError, InputError
from luminal.loaders.ggml.packed import RECORDED, packed
from tests.close import close
from tests.long_share import long_but, long_rows
from tests.numerics.byte_products import in_bytes, recorded
from tests.numerics.packed_blocks import blocks_of, values_of

Array = np.ndarray[Any, Any]


@pytest.fixture(params=["interpreted", "opencl"])
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    try:
        registry.find(name)
    except (CompileError, InputError) as error:
        pytest.skip(str(error))
    return name


@pytest.mark.parametrize("kind", long_but(RECORDED, [*RECORDED][::2]))
def test_values_are_those_of_the_package(kind: str, device: str) -> None:
    blocks = blocks_of(kind, 3, 256)
    cx = lm.Graph()
    (cx.weight_of(packed(blocks)) * 1).output("w")
    found = lm.compile(cx, backend=device)({})["w"]
    np.testing.assert_array_equal(found, values_of(kind, blocks))


@pytest.mark.parametrize(
    ("kind", "rows"),
    long_rows(itertools.product(("Q8_0", "Q4_K"), (1, 3, 40)), [("Q8_0", 40), ("Q4_K", 3)]),
)
def test_products(kind: str, rows: int, device: str) -> None:
    """They read blocks, of which the device holds one copy, whatever reads them as what."""
    blocks = blocks_of(kind, 16, 256)
    x = np.random.default_rng(1).standard_normal((rows, 256)).astype(np.float32)
    cx = lm.Graph()
    (cx.tensor((rows, 256), name="x") @ cx.weight_of(packed(blocks)).mT).output("y")
    exe = lm.compile(cx, backend=device)
    want = x.astype(np.float64) @ values_of(kind, blocks).T.astype(np.float64)
    close(exe({"x": x})["y"], want, ulp=8)
    assert exe.memory_report().derived_bytes == blocks.nbytes


@pytest.mark.parametrize(
    ("kind", "outputs"),
    long_rows(itertools.product(("Q8_0", "Q4_K"), (1, 16)), [("Q8_0", 16), ("Q4_K", 1)]),
)
def test_products_of_bytes(kind: str, outputs: int, device: str) -> None:
    """The lanes of a group share blocks, or what is summed of each, not both at once."""
    blocks = blocks_of(kind, outputs, 768)
    x = np.random.default_rng(1).standard_normal((3, 768)).astype(np.float32)
    found = lm.compile(recorded(packed(blocks), x.shape), backend=device)({"x": x})["y"]
    want = in_bytes(x) @ values_of(kind, blocks).T.astype(np.float64)
    close(found, want)


@pytest.mark.parametrize("kind", ["q4_k", "int8", "int4"])
def test_modules(kind: str, device: str) -> None:
    """Loaded anew, moved and quantised there."""
    lm.manual_seed(5)
    layers = lm.nn.Sequential(lm.nn.Linear(256, 8), lm.nn.Linear(8, 256))
    other = lm.nn.Sequential(lm.nn.Linear(256, 8), lm.nn.Linear(8, 256))
    x = np.random.default_rng(2).standard_normal((2, 256)).astype(np.float32)
    with lm.device(device):
        for model in (layers, other.to(device)):
            lm.quantize(model, kind, skip="1.")
        run = lm.jit(layers)
        for model in (layers, other):
            layers.load_state_dict(model.state_dict())
            hidden = x.astype(np.float64)
            for each in model:
                hidden = hidden @ each.weight.numpy().T.astype(np.float64) + each.bias.numpy()
            close(run(x), hidden, ulp=8)


@pytest.mark.long
def test_a_model_writes_the_same_text(device: str, shared_data: Path, tmp_path: Path) -> None:
    if device == "interpreted":
        pytest.skip("takes minutes there")
    lm.models.convert(shared_data / "tinystories-656k", tmp_path / "m.gguf", "q4_k_m")
    texts = [
        lm.models.load(tmp_path / "m.gguf", backend=each, keep_quantized=True).generate(
            "Once upon a time", max_tokens=20
        )
        for each in ("cpu", device)
    ]
    assert texts[0] == texts[1]
