"""Resize with the attributes that exporters write for every mode, as ONNX Runtime runs it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import luminal.onnx
from luminal.onnx.errors import OnnxError
from tests.close import close
from tests.long_share import long_but

EVERY_ATTRIBUTE = (
    'coordinate_transformation_mode = "half_pixel", cubic_coeff_a = -0.75, '
    'nearest_mode = "floor", extrapolation_value = 1.0'
)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", ["1, 1, 2, 2", "1, 1, 1.5, 0.5"], ids=["twice", "uneven"])
def test_attributes_of_other_modes(mode: str, scales: str) -> None:
    text = f"""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[1, 2, 4, 6] x) => (float[a, b, c, d] y) <float[4] s = {{{scales}}}> {{
          y = Resize<mode = "{mode}", {EVERY_ATTRIBUTE}>(x, , s)
        }}
    """
    proto = parser.parse_model(text)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 6), np.float32)
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    found = luminal.onnx.load(proto)(x)["y"]
    close(found, wanted, ulp=16)


@pytest.mark.parametrize("mode", long_but(["nearest", "linear", "cubic"], ("cubic", "nearest")))
@pytest.mark.parametrize(
    "transform",
    long_but(
        ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"],
        ("pytorch_half_pixel", "align_corners"),
    ),
)
def test_extents_down_to_none(mode: str, transform: str) -> None:
    """One element, and none: what is left is as long as ONNX Runtime says."""
    for extent, scale in [(1, 0.5), (1, 0.3), (8, 0.1), (3, 0.4), (1, 1.0), (1, 2.0), (4, 0.25)]:
        for shape, scales in [((2, 1, extent, 2), (1, 1, scale, 2)), ((extent, 2), (scale, 2))]:
            text = f"""
                <ir_version: 9, opset_import: ["" : 17]>
                g (float[{",".join(map(str, shape))}] x)
                => (float[{",".join("abcd"[: len(shape)])}] y)
                <float[{len(shape)}] s = {{{",".join(map(str, map(float, scales)))}}}> {{
                  y = Resize<mode="{mode}", coordinate_transformation_mode="{transform}">(x, , s)
                }}
            """
            proto = parser.parse_model(text)
            x = np.random.default_rng(0).standard_normal(shape, np.float32)
            session = onnxruntime.InferenceSession(proto.SerializeToString())
            (wanted,) = session.run(None, {"x": x})
            found = luminal.onnx.load(proto)(x)["y"]
            assert found.shape == wanted.shape, text
            close(found, wanted, ulp=16, err_msg=text)


def test_nothing_cannot_be_stretched() -> None:
    text = """
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[1, 1, 0] x) => (float[a, b, c] y) <int64[3] n = {1, 1, 4}> {
          y = Resize<mode="linear", coordinate_transformation_mode="asymmetric">(x, , , n)
        }
    """
    model = luminal.onnx.load(parser.parse_model(text))
    with pytest.raises(OnnxError, match="dim 2 has no elements to make 4 of"):
        model(np.zeros((1, 1, 0), np.float32))


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("width", [4, 11, 12])
def test_the_nearest_pixel_of_every_rounding(nearest: str, width: int) -> None:
    """Of 8 pixels; with each transformation some places lie midway between two."""
    for transform in ("half_pixel", "asymmetric", "align_corners"):
        text = f"""
            <ir_version: 9, opset_import: ["" : 17]>
            g (float[1, 1, 1, 8] x) => (float[a, b, c, d] y)
            <int64[4] s = {{1, 1, 1, {width}}}> {{
              y = Resize<mode = "nearest", nearest_mode = "{nearest}",
                         coordinate_transformation_mode = "{transform}">(x, , , s)
            }}
        """
        proto = parser.parse_model(text)
        x = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
        (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
        np.testing.assert_array_equal(luminal.onnx.load(proto)(x)["y"], wanted)
