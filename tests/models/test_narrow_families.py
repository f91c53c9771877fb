"""Families whose files have 16-bit weights: computed in 32 bits, close to what 32-bit ones give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.models.families import read_model

torch = pytest.importorskip("torch")
files = pytest.importorskip("safetensors.torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL.Image")
families, parakeet, t5, vision, whisper, yolo = (
    pytest.importorskip(f"tests.models.small_{name}")
    for name in ("encoders", "parakeet", "t5", "vision", "whisper", "yolo")
)

DRAWN = np.random.default_rng(0)
IMAGES = DRAWN.standard_normal((2, 3, 24, 24)).astype(np.float32)
IDS = DRAWN.integers(3, 30, (2, 8)).astype(np.int32)
LENGTHS = np.array([8, 5], np.int32)
FRAMES = DRAWN.standard_normal((2, 20, 100)).astype(np.float32)
SPECTRA = DRAWN.standard_normal((2, 40, 16)).astype(np.float32)
MODELS: dict[str, tuple[Callable[[Path], Any], list[Any]]] = {
    "bert": (lambda folder: families.saved("bert", folder), [IDS, LENGTHS]),
    "clip": (vision.saved_clip, [IMAGES, IDS, LENGTHS]),
    "convnext": (lambda folder: vision.saved("convnext", folder), [IMAGES]),
    "parakeet": (parakeet.saved, [SPECTRA, LENGTHS * 5]),
    "resnet": (lambda folder: vision.saved("resnet", folder), [IMAGES]),
    "t5": (lambda folder: t5.saved("flan", folder), [IDS, IDS, LENGTHS]),
    "vit": (lambda folder: vision.saved("vit", folder), [IMAGES]),
    "whisper": (whisper.saved, [FRAMES, IDS]),
}


def output(folder: Path, inputs: list[Any]) -> Any:
    graph = lm.Graph()
    tensors = [graph.tensor(x.shape, x.dtype, f"x{n}") for n, x in enumerate(inputs)]
    read_model(folder)(*tensors).output("y")
    return graph.compile("cpu")({f"x{n}": x for n, x in enumerate(inputs)})["y"]


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_narrow_weights(name: str, dtype: str, tmp_path: Path) -> None:
    save, inputs = MODELS[name]
    save(tmp_path)
    wanted = output(tmp_path, inputs)
    path = tmp_path / "model.safetensors"
    weights = files.load_file(path)
    kind = getattr(torch, dtype)
    narrow = {key: x.to(kind) if x.is_floating_point() else x for key, x in weights.items()}
    files.save_file(narrow, tmp_path / "narrow")
    (tmp_path / "narrow").replace(path)  # the first model's views stay
    found = output(tmp_path, inputs)
    assert found.dtype == np.float32
    bound = {"float16": 4e-3, "bfloat16": 4e-2}[dtype]  # some times their precision
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound * np.abs(wanted).max())
    assert (found != wanted).any()
