"""ONNX Runtime, for comparisons; it is no dependency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def runner(path: Path, arrays: Mapping[str, Any], threads: int) -> Callable[[], Any] | None:
    """A call that runs the model there once; None where it is not installed."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = dict(arrays)
    return lambda: session.run(None, inputs)
