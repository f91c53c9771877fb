"""ONNX: models in and out. Needs the extra `luminal[onnx]`.

model = luminal.onnx.load("model.onnx")
outputs = model(x)
luminal.onnx.export(module, "module.onnx", ("batch", 8))
"""

from luminal.onnx.backend import Backend
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.exporting import export
from luminal.onnx.model import Model, load

__all__ = ["Backend", "Model", "OnnxError", "UnsupportedError", "export", "load"]
