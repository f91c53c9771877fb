"""Exported networks beside ONNX Runtime: the ten of `torch_models`, and a small one for digits; the
one of 3 x 3 convolutions also with relaxed numerics, where these are multiplied in tiles.

Both take NumPy arrays and run in turns of blocks. ONNX Runtime's idle threads do not spin, or they
would run beside ours.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import nn
from torch.onnx import symbolic_helper, utils

import luminal.onnx
from bench.block import Call
from bench.pair import compare
from bench.row import Row
from bench.torch_models import NETWORKS, Network

OPSET = 17
TOLERANCE = 2e-3


def _digits() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 14 * 14, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


DIGITS = Network("digits, 5 layers", _digits, lambda: (torch.randn(1, 1, 28, 28),))


def rows() -> Iterator[Row]:
    """One row a network, their geometric mean, the small one, and one with relaxed numerics."""
    found = []
    for network in NETWORKS:
        row = measured(network, 1.0)
        yield row
        found.append(row.measured)
    mean = statistics.geometric_mean(found)
    spread = min(found), max(found)
    yield Row("ONNX Runtime: ten networks", mean, 1.2, "x", spread, "geometric mean")
    yield measured(DIGITS, 1.1)
    (resnet,) = (network for network in NETWORKS if network.name == "ResNet-18")
    yield measured(resnet, 1.2, "relaxed")


def measured(network: Network, target: float, numerics: str = "standard") -> Row:
    """ONNX Runtime's time over ours."""
    torch.manual_seed(0)
    model, arguments = network.make().eval(), network.arguments()
    arrays = [argument.numpy() for argument in arguments]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(model, arguments, path)
        name = network.name + (f", {numerics} numerics" if numerics != "standard" else "")
        peers = {"ONNX Runtime": _theirs(path, arrays)}
        ours = _ours(path, arrays, numerics)
        return compare(f"ONNX: {name}", ours, peers, target, tolerance=TOLERANCE)


def export(model: nn.Module, arguments: tuple[torch.Tensor, ...], path: Path) -> None:
    """Writes the model as PyTorch traces it."""
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")  # it prefers another exporter
        utils.register_custom_op_symbolic("aten::rms_norm", _rms_norm, OPSET)
        torch.onnx.export(model, arguments, str(path), dynamo=False, opset_version=OPSET)


@symbolic_helper.parse_args("v", "is", "v", "none")
def _rms_norm(g: Any, x: Any, shape: list[int], weight: Any, eps: Any) -> Any:
    """x / sqrt(mean(x * x) + eps) * weight in operators of opset 17, for the default eps."""
    epsilon = g.op("Constant", value_t=torch.tensor(torch.finfo(torch.float32).eps))
    squares = g.op("ReduceMean", g.op("Mul", x, x), axes_i=[*range(-len(shape), 0)])
    return g.op("Mul", g.op("Div", x, g.op("Sqrt", g.op("Add", squares, epsilon))), weight)


def _ours(path: Path, arrays: list[np.ndarray], numerics: str) -> Call:
    model = luminal.onnx.load(path).compile(numerics=numerics)
    return lambda: next(iter(model(*arrays).values()))


def _theirs(path: Path, arrays: list[np.ndarray]) -> Call:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    given = dict(zip(names, arrays, strict=True))
    return partial(_first, session, given)


def _first(session: Any, given: dict[str, np.ndarray]) -> Any:
    return session.run(None, given)[0]
