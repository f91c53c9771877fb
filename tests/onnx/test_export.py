"""Graphs and modules as ONNX: the checker takes them, ONNX Runtime and we compute the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import luminal as lm
import luminal.onnx
from luminal import nn
from luminal.base.errors import GraphError, InputError
from luminal.onnx import UnsupportedError, export
from luminal.onnx.exporting import model_of
from luminal.onnx.source import Source
from luminal.onnx.translate import Translation
from tests.close import close
from tests.long_share import mostly_long
from tests.onnx.random_models import random_model

DIMS = {"b": 3, "s": 5}


def _agree(proto: onnx.ModelProto, inputs: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    """Checked by ONNX; equal in ONNX Runtime, here, and to what is wanted."""
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    named = dict(zip([each.name for each in proto.graph.input], inputs, strict=True))
    theirs, ours = session.run(None, named), luminal.onnx.load(proto)(named).values()
    for a, b, c in zip(theirs, ours, wanted, strict=True):
        assert a.shape == b.shape == c.shape
        for found in (a, b):
            close(found, c, ulp=16)


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), [("b", 8)]),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        ),
        [(2, 3, 8, 8)],
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        [("b", "s", 16)],
    ),
    "lstm": (lambda: nn.LSTM(4, 8), [(5, 2, 4)]),
    "embedding": (lambda: nn.Embedding(10, 4), [(("b", "s"), "int64")]),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, tmp_path: Path):
    make, shapes = MODULES[name]
    lm.manual_seed(0)
    module = make().eval()
    path = tmp_path / "module.onnx"
    proto = export(module, path, *shapes)
    assert onnx.load(path) == proto
    draw = np.random.default_rng(0)
    inputs = []
    for shape in shapes:
        whole = isinstance(shape[0], tuple)
        extents = [DIMS.get(n, n) for n in (shape[0] if whole else shape)]
        inputs.append(
            draw.integers(0, 10, extents) if whole
            else draw.standard_normal(extents).astype(np.float32)
        )  # fmt: skip
    found = lm.jit(module)(*inputs)
    flat = [found] if not isinstance(found, tuple) else [found[0], *found[1]]
    _agree(proto, inputs, [np.asarray(each) for each in flat])


def test_a_graph_of_integers_and_bits():
    cx = lm.Graph()
    x, y = cx.tensor((4, 6), lm.int64, "x"), cx.tensor((6,), lm.int64, "y")
    (x // 3).output("quotient")
    (x % -4).output("rest")
    (x & 5).output("bits")
    x.flip(1)[1:3, ::2].output("part")
    lm.pad(x, (1, 2)).output("padded")
    x.sort(1).values.output("sorted")
    lm.cat([x, x + 1], 0).output("joined")
    x.cumsum(1).output("sums")
    x.take(y, 1).output("taken")
    x.any(0).output("any")
    (x.float() * 1.5).clip(-2, 2).int().output("cut")
    arrays = [np.arange(-12, 12).reshape(4, 6), np.array([0, 5, 2, 2, 1, -1])]
    wanted = lm.compile(cx)({"x": arrays[0], "y": arrays[1]})
    _agree(export(cx), arrays, list(wanted.values()))


def test_what_has_no_model(tmp_path: Path):
    cx = lm.Graph()
    x = cx.tensor((4,), name="x")
    state = cx.state((4,), name="total")
    cx.assign(state, state + x)
    x.output("y")
    with pytest.raises(UnsupportedError, match="assigns States; make them inputs and outputs"):
        export(cx)
    with pytest.raises(GraphError, match="nothing to compute"):
        export(lm.Graph())
    with pytest.raises(InputError, match="a Graph has its inputs"):
        export(cx, None, (3,))
    with pytest.raises(InputError, match="cannot be written"):
        export(nn.Linear(2, 2), tmp_path / "no" / "m.onnx", (1, 2))
    cz = lm.Graph()
    cz.tensor((3,), name="x").exp().output("x")
    with pytest.raises(GraphError, match=r"\['x'\] name inputs and outputs"):
        export(cz)
    cy = lm.Graph()
    (cy.tensor((3,), lm.int32, "n") << 2).output("y")
    with pytest.raises(UnsupportedError, match="shifts of int32"):
        export(cy)


def _round_trip(seed: int) -> None:
    """A random model, recorded here and written again."""
    proto, inputs = random_model(seed)
    graph = lm.Graph()
    given = {name: graph.tensor(x.shape, name=name) for name, x in inputs.items()}
    source = Source.of(proto)
    for name, x in zip(source.outputs, Translation(source, graph, ()).run(given), strict=True):
        x.output(name)
    written = model_of(graph.graph(), "again")
    read = [each.name for each in written.graph.input]
    wanted = luminal.onnx.load(proto)(inputs)
    _agree(written, [inputs[name] for name in read], list(wanted.values()))


@pytest.mark.parametrize("seed", mostly_long(range(5), 2))
def test_random_models_come_back(seed: int):
    _round_trip(seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(8))
def test_more_random_models_come_back(block: int):
    for seed in range(10 * (block + 1), 10 * (block + 2)):
        _round_trip(seed)


STARTED = """
import sys
import luminal
assert "importlib.metadata" not in sys.modules
import luminal.onnx
assert "luminal.onnx.exporting" not in sys.modules
from luminal.onnx import export
assert export is luminal.onnx.exporting.export
"""


def test_who_loads_models_does_not_wait_for_what_writes_them() -> None:
    subprocess.run([sys.executable, "-c", STARTED], check=True, timeout=60)
