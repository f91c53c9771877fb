"""`luminal.onnx` beside ONNX Runtime: the ten networks of `torch_models` and a small one, as files.

Both run in turns; a block is a pause, an untimed call and the median of several calls.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.row import Row, Skipped
from bench.torch_models import NETWORKS, Network
from luminal import onnx
from luminal.onnx.runtime import runner

BLOCKS, BLOCK, PAUSE = 6, 0.3, 0.2  # number of blocks; seconds
OPSET = 17
THREADS = 2
TOLERANCE = 2e-3
Call = Callable[[], Any]


def rows() -> Iterator[Row | Skipped]:
    """One row a network and their geometric mean."""
    ratios = []
    for network in (*NETWORKS, _small()):
        row = _network(network)
        yield row
        if isinstance(row, Row):
            ratios.append(row.measured)
    mean = statistics.geometric_mean(ratios)
    yield Row("ONNX: all of them", mean, 1.2, "x", (min(ratios), max(ratios)), "geometric mean")


def _small() -> Network:
    """Five layers for MNIST."""

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 10),
        )  # fmt: skip

    return Network("MNIST, 5 layers", make, lambda: (torch.randn(1, 1, 28, 28),))


def _network(network: Network) -> Row | Skipped:
    name = f"ONNX: {network.name}"
    torch.manual_seed(0)
    arrays = [x.numpy() for x in network.arguments()]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            _export(network, path)
        except torch.onnx.errors.UnsupportedOperatorError as error:
            return Skipped(name, str(error).splitlines()[0])
        model = onnx.load(path)
        given = dict(zip(model.input_names, arrays, strict=True))
        other = runner(path, given, THREADS)
        if other is None:
            return Skipped(name, "onnxruntime is not installed")
        calls: dict[str, Call] = {"luminal": partial(model, given), "onnxruntime": other}
        found, expected = model(given)["out"], other()[0]
        apart = float(np.abs(found - expected).max() / np.abs(expected).max())
        if not apart <= TOLERANCE:
            raise AssertionError(f"{name}: differs from ONNX Runtime by {apart:.1e}")
        times: dict[str, list[float]] = {each: [] for each in calls}
        for _ in range(BLOCKS):
            for each, call in calls.items():
                times[each].append(_block(call))
    ours, theirs = (statistics.median(times[each]) for each in calls)
    spread = [b / a for a, b in zip(*times.values(), strict=True)]
    target = 1.1 if network.name.startswith("MNIST") else 1.0
    detail = f"{ours * 1e3:.3g} ms against {theirs * 1e3:.3g} ms"
    return Row(name, theirs / ours, target, "x", (min(spread), max(spread)), detail)


def _rms_norm(g: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    """What the exporter has no spelling of, over the last dim."""
    if eps.node().mustBeNone():
        eps = g.op("Constant", value_t=torch.tensor(torch.finfo(torch.float32).eps))
    square = g.op("ReduceMean", g.op("Mul", x, x), axes_i=[-1], keepdims_i=1)
    root = g.op("Sqrt", g.op("Add", square, g.op("CastLike", eps, x)))
    return g.op("Mul", g.op("Div", x, root), weight)


def _export(network: Network, path: Path) -> None:
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")  # of the older exporter, which needs no other package
        exporter: Any = torch.onnx  # the name is exported, but not to type checkers
        exporter.register_custom_op_symbolic("aten::rms_norm", _rms_norm, OPSET)
        arguments = network.arguments()
        torch.onnx.export(
            network.make().eval(), arguments, str(path), dynamo=False, opset_version=OPSET,
            input_names=[f"x{k}" for k in range(len(arguments))], output_names=["out"],
        )  # fmt: skip


def _block(call: Call) -> float:
    """The median seconds of a block of calls."""
    time.sleep(PAUSE)
    call()
    seconds: list[float] = []
    end = time.perf_counter() + BLOCK
    while (start := time.perf_counter()) < end or not seconds:
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
