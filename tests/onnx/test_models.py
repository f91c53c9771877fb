"""The two models of the shared data: as ONNX Runtime runs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

import luminal.onnx
from luminal.loaders.idx import read_idx
from tests.close import close


def test_mnist_scores_98_percent(shared_data: Path):
    images = read_idx(shared_data / "mnist" / "t10k-images-idx3-ubyte.gz")[:1000]
    labels = read_idx(shared_data / "mnist" / "t10k-labels-idx1-ubyte.gz")[:1000]
    model = luminal.onnx.load(shared_data / "onnx" / "mnist-8.onnx")
    right = 0
    for image, label in zip(images, labels, strict=True):
        scores = model(image.reshape(1, 1, 28, 28).astype(np.float32))["Plus214_Output_0"]
        right += int(scores.argmax() == label)
    assert right >= 980


def test_silero_with_its_state_fed_back(shared_data: Path):
    path = shared_data / "onnx" / "silero_vad.onnx"
    model, oracle = luminal.onnx.load(path), onnxruntime.InferenceSession(path)
    draw = np.random.default_rng(0)
    state = expected_state = np.zeros((2, 1, 128), np.float32)
    rate = np.array(16000)
    for _ in range(200):
        chunk = draw.standard_normal((1, 576)).astype(np.float32) * 0.1
        found = model(chunk, state, rate)
        output, expected_state = oracle.run(
            None, {"input": chunk, "state": expected_state, "sr": rate}
        )
        state = found["stateN"]
        close(found["output"], output, ulp=1024)
        # states that go on through three chunks of sums in another order
        np.testing.assert_allclose(state, expected_state, atol=1e-4)
