"""ONNX: models in and out. Needs the extra `luminal[onnx]`.

model = luminal.onnx.load("model.onnx")
outputs = model(x)
"""

from luminal.onnx.backend import Backend
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.model import Model, load

__all__ = ["Backend", "Model", "OnnxError", "UnsupportedError", "load"]
