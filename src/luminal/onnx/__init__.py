"""ONNX: models in and out. Needs the extra `onnx`.

model = luminal.onnx.load("model.onnx")
outputs = model(x)
luminal.onnx.export(module, "module.onnx", ("batch", 8))
"""

from typing import TYPE_CHECKING

from luminal.base import installation, lazy

if TYPE_CHECKING:
    from luminal.onnx.exporting import export

try:
    from luminal.onnx.backend import Backend
    from luminal.onnx.errors import OnnxError, UnsupportedError
    from luminal.onnx.model import Model, load
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "onnx":
        raise
    raise ModuleNotFoundError(
        f"luminal.onnx: the package onnx is not installed; {installation.hint('onnx')}"
    ) from None

__all__ = ["Backend", "Model", "OnnxError", "UnsupportedError", "export", "load"]


def __getattr__(name: str) -> object:
    if name == "export":  # late: who loads a model writes none
        return lazy.found("luminal.onnx.exporting:export")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
