"""Resize with the attributes that exporters write for every mode, as ONNX Runtime runs it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import luminal.onnx

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
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
