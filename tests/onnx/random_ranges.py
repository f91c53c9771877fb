"""Single nodes some of whose inputs say where, how many or how long, within their range and beyond.

Each such input is an initializer, an input of the model, or computed from one. What comes out is an
array or a refusal: ONNX Runtime and the library agree on which. Left out is where ONNX Runtime
refuses what the standard defines (a reflection that goes around twice, windows of no samples,
sizes of 0), and what ends its process (frames of no samples, outputs beside `num_outputs`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.onnx.random_nodes import Array, Draw, Node

OPSETS = {"TensorScatter": 24, "DFT": 20}
"""Others are of 18: ONNX Runtime lacks some of later versions."""


class Ranges(Draw):
    """Draws one node, of whose inputs all but the first may be out of range."""

    def node(self) -> Node:
        """One of the kinds below."""
        kinds: list[Callable[[], Node]] = [
            self.gather, self.gather_elements, self.gather_nd, self.scatter_elements,
            self.scatter_nd, self.tensor_scatter, self.one_hot, self.reverse, self.expand,
            self.top_k, self.slice, self.split, self.pad, self.range, self.tile, self.cumulative,
            self.suppress, self.regions, self.unpool, self.window, self.constant, self.reshape,
            self.compress, self.transform, self.frames, self.resize, self.recurrent,
            self.parts, self.features, self.diagonal, self.column, self.image,
        ]  # fmt: skip
        return kinds[self._random.integers(len(kinds))]()

    def _places(self, extent: int, *shape: int) -> Array:
        """Positions along an extent; in one of three draws one is just or far out of range."""
        found = self._random.integers(-extent, extent, shape)
        if found.size and self._one(True, False, False):
            wrong = self._one(extent, -extent - 1, extent + 2, 2**31 - 1, -(2**31), 2**40, -(2**63))
            found.reshape(-1)[self._random.integers(found.size)] = wrong
        return found.astype(self._one(np.int64, np.int32)) if _fits(found) else found

    def _number(self, *choices: int) -> Array:
        return np.array(self._one(*choices), np.int64)

    def gather(self) -> Node:
        axis = self._one(0, 1, -1)
        index = self._places((3, 4)[axis], *self._ints(1, 4, self._one(0, 1, 2)))
        return "Gather", [self._floats(3, 4), index], {"axis": axis}

    def gather_elements(self) -> Node:
        axis = self._one(0, 1, -1)
        return "GatherElements", [self._floats(3, 4), self._places((3, 4)[axis], 2, 3)], {
            "axis": axis
        }  # fmt: skip

    def _tuples(self, *extents: int) -> Array:
        each = [self._places(n, 2, 2).astype(np.int64) for n in extents]
        return np.stack(each, -1)

    def gather_nd(self) -> Node:
        width = self._one(1, 2)
        return "GatherND", [self._floats(3, 4, 2), self._tuples(*(3, 4)[:width])], {}

    def scatter_elements(self) -> Node:
        index = self._places(4, 1, 3)
        kind = self._one("none", "add", "mul", "max", "min")
        options = {"axis": 0, "reduction": kind}
        return "ScatterElements", [self._floats(4, 3), index, self._floats(1, 3)], options

    def scatter_nd(self) -> Node:
        kind = self._one("none", "add", "mul", "max", "min")
        at = self._places(4, 1, 1).astype(np.int64)
        return "ScatterND", [self._floats(4, 3), at, self._floats(1, 3)], {"reduction": kind}

    def tensor_scatter(self) -> Node:
        inputs: list[Array | None] = [self._floats(2, 1, 4, 3), self._floats(2, 1, 2, 3)]
        inputs.append(np.array(self._ints(-1, 5, 2)))
        return "TensorScatter", inputs, {"mode": self._one("linear", "circular")}

    def one_hot(self) -> Node:
        """Indices out of range are no fault: their rows are off."""
        index = np.array(self._ints(-6, 6, 4))
        values = np.array([0, 1], np.float32)
        return "OneHot", [index, self._number(-2, 0, 1, 4), values], {}

    def reverse(self) -> Node:
        lengths = np.array(self._ints(self._one(-1, 0), self._one(5, 6), 3))
        options = {"time_axis": 0, "batch_axis": 1}
        return "ReverseSequence", [self._floats(4, 3), lengths], options

    def expand(self) -> Node:
        shapes = [2, -1, 4], [-1], [2, 3, 4], [1], [0], [2, 3, 0], [5, 2, 1, 4], [2, 3, -4]
        return "Expand", [self._floats(2, 3, 4), np.array(self._one(*shapes))], {}

    def top_k(self) -> Node:
        count = np.array(self._one([-1], [0], [2], [4], [5], [1, 2]))
        return "TopK", [self._floats(3, 4), count], {}

    def slice(self) -> Node:
        bounds = [np.array(self._ints(-5, 6, 2)) for _ in range(2)]
        axes = self._one([0, 1], [1, -1], [0, 2], [-3, 0], [0, 0], [1, 2])
        steps = [self._one(-2, -1, 0, 1, 1, 2) for _ in range(2)]
        return "Slice", [self._floats(3, 4), *bounds, np.array(axes), np.array(steps)], {}

    def split(self) -> Node:
        parts = self._one([1, 3], [4], [2, 2], [2, -1, 3], [1, 1], [4, 0], [3, 3], [-1, 5])
        return "Split", [self._floats(3, 4), np.array(parts)], {"axis": 1}

    def pad(self) -> Node:
        mode = self._one("constant", "edge", "wrap")
        amounts = [self._one(-4, -3, -1, 0, 1, 2, 5) for _ in range(4)]
        return "Pad", [self._floats(3, 5) + 3, np.array(amounts)], {"mode": mode}

    def range(self) -> Node:
        numbers = [self._number(0, 3), self._number(-3, 0, 5), self._number(-2, -1, 0, 1, 2)]
        return "Range", [*numbers], {}

    def tile(self) -> Node:
        times = self._one([2, 1], [-1, 1], [0, 2], [2], [1, 1, 2])
        return "Tile", [self._floats(3, 4), np.array(times)], {}

    def cumulative(self) -> Node:
        axis = self._one(0, -2, 2, -3, [1], [0, 1])
        return "CumSum", [self._floats(3, 4), np.array(axis)], {}

    def suppress(self) -> Node:
        boxes = self._random.random((1, 5, 4)).astype(np.float32)
        numbers = [np.array([x], np.float32) for x in (self._one(-0.1, 0, 0.5, 1, 1.1), 0.2)]
        scores = self._random.random((1, 2, 5)).astype(np.float32)
        return "NonMaxSuppression", [boxes, scores, self._number(-1, 0, 3), *numbers], {}

    def regions(self) -> Node:
        boxes = np.sort(self._random.random((3, 4)) * 8 - 1).astype(np.float32)
        pictures = np.array(self._ints(self._one(-1, 0), self._one(2, 3), 3))
        options = {"output_height": 2, "output_width": 3, "sampling_ratio": self._one(0, 2)}
        return "RoiAlign", [self._floats(2, 1, 6, 6), boxes, pictures], options

    def unpool(self) -> Node:
        places = self._random.permutation(16)[:4].reshape(1, 1, 2, 2)
        if self._one(True, False):
            places[0, 0, 0, 0] = self._one(-1, 16, 17)
        options = {"kernel_shape": [2, 2], "strides": [2, 2]}
        return "MaxUnpool", [self._floats(1, 1, 2, 2), places], options

    def window(self) -> Node:
        op = self._one("BlackmanWindow", "HannWindow", "HammingWindow")
        return op, [self._number(-3, 1, 2, 8)], {}

    def constant(self) -> Node:
        return "ConstantOfShape", [np.array(self._one([2, -1], [0, 2], [3, 2], [-2]))], {}

    def reshape(self) -> Node:
        shapes = [-1, 4], [0, 0, -1], [-1, -1], [3, -2], [5, -1], [0, 0, 0], [0, 4, 1], [2, 6]
        return "Reshape", [self._floats(3, 4), np.array(self._one(*shapes))], {}

    def compress(self) -> Node:
        kept = self._random.random(self._one(2, 4, 6)) < 0.5
        return "Compress", [self._floats(3, 4), kept], self._one({"axis": 1}, {})

    def transform(self) -> Node:
        inputs: list[Array | None] = [self._floats(1, 8, 1), self._number(-2, 4, 8, 12)]
        return "DFT", [*inputs, self._number(1, 1, -2, 2, 5, -4)], {}

    def frames(self) -> Node:
        numbers = self._number(-2, 0, 2, 3), None, self._number(-4, 4, 16, 20)
        return "STFT", [self._floats(1, 16, 1), *numbers], {}

    def resize(self) -> Node:
        x, mode = self._floats(1, 2, 4, 5), self._one("nearest", "linear")
        if self._one(True, False):
            return "Resize", [x, None, None, np.array([1, 2, self._one(-3, 2, 7), 5])], {
                "mode": mode
            }  # fmt: skip
        scales = np.array([1, 1, self._one(-1, 0, 0.5, 2), 1], np.float32)
        return "Resize", [x, None, scales], {"mode": mode}

    def recurrent(self) -> Node:
        op, inputs, options = super().recurrent()
        lengths = np.array(self._ints(self._one(-1, 0), self._one(6, 7), 2), np.int32)
        return op, [*inputs[:4], lengths], options

    def parts(self) -> Node:
        sizes = self._one(-1, 1, 3, 9, [1, 3], [4], [2, 2, 2], [1, 1], [-1, 5])
        return "SplitToSequence", [self._floats(3, 4), np.array(sizes)], {"axis": 1}

    def features(self) -> Node:
        index = np.array(self._ints(self._one(-1, 0), self._one(4, 5), 2))
        return "ArrayFeatureExtractor", [self._floats(3, 4), index], {}

    def diagonal(self) -> Node:
        return "Trilu", [self._floats(3, 4), self._number(-9, -1, 0, 2, 9)], {}

    def column(self) -> Node:
        axes = self._one([0], [1], [2], [-3], [0, 3], [1, 2], [4], [-5])
        return self._one("Unsqueeze", "Squeeze", "ReduceSum"), [
            self._floats(1, 3, 1), np.array(axes)
        ], {}  # fmt: skip

    def image(self) -> Node:
        image = np.array(self._one([4, 4], [5, 5], [4, -4], [1, 1]))
        block = np.array(self._one([2, 2], [-2, 2], [3, 3], [2, 3]))
        return "Col2Im", [self._floats(1, 4, 9), image, block], {}

    def one_of_two(self) -> bool:
        """Yes or no."""
        return bool(self._one(True, False))

    def way(self, number: int) -> str:
        """How an input reaches the node."""
        return self._one("initializer", "input", "Add", "Cast", "Shape") if number else "input"


def _fits(array: Array) -> bool:
    return bool((np.abs(array.astype(np.float64)) < 2**31).all())


def random_range(seed: int) -> tuple[ModelProto, dict[str, Array]]:
    """A model whose node takes such inputs, and the model's inputs."""
    draw = Ranges(seed)
    op, inputs, attributes = draw.node()
    made = _Made(is_open=draw.one_of_two())
    names = ["" if x is None else made.of(x, f"x{k}", draw.way(k)) for k, x in enumerate(inputs)]
    count = 2 if op in ("LSTM", "GRU", "RNN", "TopK") else 1
    if op == "Split" and inputs[1] is not None:
        count = len(inputs[1])
    outputs = [f"y{k}" for k in range(count)]
    domain = "ai.onnx.ml" if op == "ArrayFeatureExtractor" else ""
    nodes = [*made.nodes, helper.make_node(op, names, outputs, domain=domain, **attributes)]
    if op == "SplitToSequence":
        typed = [helper.make_tensor_sequence_value_info("y0", TensorProto.FLOAT, None)]
    else:
        typed = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "range", made.inputs, typed, made.initial)
    imports = [helper.make_opsetid("", OPSETS.get(op, 18)), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), made.arrays


class _Made:
    """The ways of inputs to a node."""

    def __init__(self, *, is_open: bool) -> None:
        self._is_open = is_open  # the first dim of the first input
        self.nodes: list[NodeProto] = []
        self.inputs: list[Any] = []
        self.initial: list[TensorProto] = []
        self.arrays: dict[str, Array] = {}

    def of(self, x: Array, name: str, way: str) -> str:
        """The name of a value that holds the elements of `x`."""
        number = helper.np_dtype_to_tensor_dtype(x.dtype)
        if way == "initializer":
            self.initial.append(numpy_helper.from_array(x, name))
            return name
        shape: list[int | str] = list(x.shape)
        if name == "x0" and self._is_open and x.ndim:
            shape[0] = "n"
        self.inputs.append(helper.make_tensor_value_info(name, number, shape))
        self.arrays[name] = x
        if way == "input" or x.dtype.kind != "i":
            return name
        self._computed(name, number, way)
        return f"{name}.made"

    def _computed(self, name: str, number: int, way: str) -> None:
        zero = f"{name}.zero"
        if way == "Cast":  # through a float, where none is lost, or a wider integer
            self.initial.append(numpy_helper.from_array(np.array(1, np.int64), zero))
            self._node("Cast", [name], f"{name}.wide", to=TensorProto.INT64)
            self._node("Mul", [f"{name}.wide", zero], f"{name}.same")
        elif way == "Add":
            self.initial.append(numpy_helper.from_array(np.array(0, np.int64), zero))
            self._node("Cast", [name], f"{name}.wide", to=TensorProto.INT64)
            self._node("Add", [f"{name}.wide", zero], f"{name}.same")
        else:  # the shape of the first input less itself
            self._node("Size", ["x0"], f"{name}.size")
            self._node("Sub", [f"{name}.size", f"{name}.size"], zero)
            self._node("Cast", [name], f"{name}.wide", to=TensorProto.INT64)
            self._node("Add", [f"{name}.wide", zero], f"{name}.same")
        self._node("Cast", [f"{name}.same"], f"{name}.made", to=number)

    def _node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
