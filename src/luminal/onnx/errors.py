"""What goes wrong with a model: errors that name the node."""

from __future__ import annotations

from luminal.base.errors import LuminalError


class OnnxError(LuminalError, ValueError):
    """A model, or one node of it, breaks a rule of ONNX or is beyond what is supported."""


class UnsupportedError(OnnxError, NotImplementedError):
    """The node is right, but there is no way to run it here."""
