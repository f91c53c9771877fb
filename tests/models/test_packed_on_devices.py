"""A small model of packed weights on devices: its perplexity is the CPU's, whatever the kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.backend import Backend
from luminal.base.errors import CompileError, InputError
from luminal.nn.quantization import KINDS
from tests.backends.c_family.dialects import checked
from tests.backends.on_device import compiled_on
from tests.models.text_loss import loss_of
from tests.models.widened import widened

Array = np.ndarray[Any, Any]
LENGTHS = {"opencl": 128, "cuda": 8}
"""Tokens; a shim runs the second's kernels lane by lane."""
BY_BYTES = ("q8_0", "q4_0", "q4_k", "int4")


@pytest.fixture(scope="module")
def folder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return widened(shared_data / "tinystories-656k", tmp_path_factory.mktemp("wide") / "model")


def device(name: str) -> Backend:
    """The device, or CUDA's kernels on the shim; skips the test where there is neither."""
    if name == "cuda":
        return checked("cuda")
    try:
        return registry.find(name)
    except (CompileError, InputError) as error:
        pytest.skip(str(error))


def losses(
    folder: Path, kind: str, backend: Backend, ids: Array, dtype: str | None = None
) -> tuple[float, float]:
    """The mean of -log p(next token) there and on the CPU."""
    model = lm.models.load(folder).model
    lm.quantize(model, kind)
    if dtype is not None:
        model.computing(dtype)
    cx = lm.Graph()
    model(cx.tensor(ids.shape, "int32", "ids")).output("logits")
    there, here = (
        loss_of(np.asarray(compiled_on(each, cx.graph())({"ids": ids})["logits"]), ids)
        for each in (backend, registry.find("cpu"))
    )
    return there, here


def tokens(folder: Path, shared_data: Path, count: int) -> Array:
    """The first tokens of a text."""
    text = (shared_data / "text" / "tinyshakespeare.txt").read_text()[:2000]
    return np.array([lm.models.load(folder).tokenizer.encode(text)[:count]], np.int32)


@pytest.mark.long
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_perplexity_is_that_of_the_cpu(
    kind: str, name: str, folder: Path, shared_data: Path
) -> None:
    ids = tokens(folder, shared_data, LENGTHS[name])
    there, here = losses(folder, kind, device(name), ids)
    # Logits of some 20 are off by the rounding of float32 sums, 1e-6 of them; 1.4e-7 was seen.
    assert abs(np.expm1(there - here)) < 2e-6


@pytest.mark.long
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("kind", BY_BYTES)
def test_perplexity_by_bytes_is_near_that_of_the_cpu(
    kind: str, name: str, folder: Path, shared_data: Path
) -> None:
    """Where a sum is another by the last bit, a byte of the next layer may be another by one."""
    ids = tokens(folder, shared_data, LENGTHS[name])
    there, here = losses(folder, kind, device(name), ids, "int8")
    assert abs(np.expm1(there - here)) < 0.003
