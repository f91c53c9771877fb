"""Transposed convolutions whose results are as large as their strides say."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import luminal.onnx
from luminal.onnx.errors import UnsupportedError
from tests.close import close

MODEL = """<ir_version: 9, opset_import: ["": 17]>
g (float[1, 2, 5] x, float[2, 3, {kernel}] w) => (float[1, 3, length] y) {{
    y = ConvTranspose <auto_pad = "{pad}", strides = [{step}], output_padding = [{more}]> (x, w)
}}"""


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "step", "more"), [(2, 2, 0), (3, 2, 0), (5, 2, 1), (2, 3, 1)])
def test_padding_by_strides(kernel: int, step: int, more: int, pad: str) -> None:
    """A kernel that is as long as a stride, with what is added, is the shortest that covers all."""
    text = MODEL.format(kernel=kernel, pad=pad, step=step, more=more)
    model = onnx.parser.parse_model(text).SerializeToString()
    draw = np.random.default_rng(kernel)
    x, w = (draw.standard_normal(s).astype(np.float32) for s in ((1, 2, 5), (2, 3, kernel)))
    (wanted,) = onnxruntime.InferenceSession(model).run(None, {"x": x, "w": w})
    close(luminal.onnx.load(model)(x=x, w=w)["y"], wanted)


def test_a_kernel_within_a_stride_is_refused() -> None:
    model = onnx.parser.parse_model(MODEL.format(kernel=1, pad="SAME_UPPER", step=2, more=0))
    x, w = np.ones((1, 2, 5), np.float32), np.ones((2, 3, 1), np.float32)
    with pytest.raises(UnsupportedError, match="steps beyond the kernel"):
        luminal.onnx.load(model.SerializeToString())(x=x, w=w)
