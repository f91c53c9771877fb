"""Models that find things: the layouts of what they give, read or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from luminal.base.errors import InputError
from luminal.cli.onnx_detector import OnnxDetector
from luminal.models.detect import Detection

SIZE = 64
PLACES = 8 * 8 + 4 * 4 + 2 * 2
CLASSES = ["cat", "dog", "cow"]

Array = np.ndarray


def _rows(places: int, classes: int = 3) -> Array:
    """(places, 5 + classes): centres in the image, sizes, objectness, scores."""
    random = np.random.default_rng(places)
    centres, sizes = random.uniform(8, 56, (places, 2)), random.uniform(4, 12, (places, 2))
    shares = random.uniform(0, 1, (places, 1 + classes))
    return np.concatenate((centres, sizes, shares), 1, dtype=np.float32)


def _without_objectness(rows: Array) -> Array:
    return np.concatenate((rows[:, :4], rows[:, 4:5] * rows[:, 5:]), 1)


def _found(folder: Path, output: Array, names: list[str] | None) -> list[Detection]:
    """What a model finds that gives this output for every image."""
    image = pytest.importorskip("PIL.Image")
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]>\n'
        f"g (float[1, 3, {SIZE}, {SIZE}] images) => (float y) {{ y = Identity(w) }}"
    )
    model.graph.initializer.append(numpy_helper.from_array(output.astype(np.float32), "w"))
    if names is not None:
        helper.set_model_props(model, {"names": str(dict(enumerate(names)))})
    onnx.save(model, folder / "model.onnx")
    detector = OnnxDetector(folder / "model.onnx", "fast", "reference")
    return detector.detect(image.new("RGB", (SIZE, SIZE)), 0.3, 0.5)


@pytest.mark.parametrize("names", [CLASSES, None], ids=["names", "numbers"])
def test_layouts_of_the_same_boxes(tmp_path: Path, names: list[str] | None):
    rows = _rows(3 * PLACES)
    found = _found(tmp_path, rows[None], names)
    assert {each.label for each in found} == ({*CLASSES} if names else {"0", "1", "2"})
    best = (rows[:, 4:5] * rows[:, 5:]).max()
    assert found[0].score == pytest.approx(best, rel=1e-6)  # 8 ulp: one product of two float32
    fewer = _rows(PLACES)
    plain = _without_objectness(fewer)
    wanted = _found(tmp_path, plain.T[None], names)
    assert wanted
    # 8 ulp: one product of two float32
    assert wanted[0].score == pytest.approx(plain[:, 4:].max(), rel=1e-6)
    if names is not None:  # how many classes there are decides what the numbers are
        assert _found(tmp_path, fewer[None], names) == wanted
        assert _found(tmp_path, plain[None], names) == wanted


@pytest.mark.parametrize(
    ("output", "names", "message"),
    [
        (_rows(PLACES)[None], None, r"gives \(1, 84, 8\); it must be .* `names` in its metadata"),
        (_rows(3 * PLACES)[None], ["cat"], r"\(1, 252, 8\); .* for the 1 classes of its metadata"),
        (_rows(PLACES, 37).T[None], CLASSES, r"gives \(1, 42, 84\); it must be"),
        (_rows(300, 1)[None], None, r"gives \(1, 300, 6\); it must be \(1, 4 \+ classes, places\)"),
        (_rows(252)[None, None], CLASSES, r"gives \(1, 1, 252, 8\); it must be"),
        (_rows(252)[None] * ([8.0] * 4 + [9.0] * 4), None, "objectness and scores are from .* to"),
        (_rows(252)[None] / SIZE, CLASSES, "no centre of a box lies beyond 0.87.* of 64 pixels"),
    ],
    ids=["unknown", "one", "masks", "ends", "grids", "logits", "shares"],
)
def test_what_is_refused(tmp_path: Path, output: Array, names: list[str] | None, message: str):
    with pytest.raises(InputError, match=message):
        _found(tmp_path, output, names)
