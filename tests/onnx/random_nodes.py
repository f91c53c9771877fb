"""Single nodes with drawn options: operators whose meaning lies in their options.

Left out is where ONNX Runtime departs from the standard: `auto_pad` of dilated pools,
`align_corners` by scales, floats cast beyond the range of integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Node = tuple[str, list[Array | None], dict[str, Any]]

OPSET = 18


class Draw:
    """Draws one node, its inputs and its attributes."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def node(self) -> Node:
        """One of the kinds below."""
        kinds: list[Callable[[], Node]] = [
            self.resize, self.pool, self.convolution, self.transposed, self.pad, self.slice,
            self.cumulative, self.scatter, self.gather, self.grid, self.recurrent, self.quantise,
            self.beyond,
        ]  # fmt: skip
        return kinds[self._random.integers(len(kinds))]()

    def _one(self, *choices: Any) -> Any:
        return choices[int(self._random.integers(len(choices)))]

    def _ints(self, low: int, high: int, count: int) -> list[int]:
        return self._random.integers(low, high, count).tolist()

    def _floats(self, *shape: int) -> Array:
        return self._random.standard_normal(shape).astype(np.float32)

    def resize(self) -> Node:
        x = self._floats(1, 2, *self._ints(2, 7, 2))
        mode = self._one("nearest", "linear", "cubic")
        place = self._one("half_pixel", "asymmetric", "pytorch_half_pixel")
        options = {"mode": mode, "coordinate_transformation_mode": place}
        if mode == "nearest":
            options["nearest_mode"] = self._one("round_prefer_floor", "floor", "ceil")
        scales = np.array([1, 1, self._one(0.5, 1.5, 2), self._one(0.5, 0.8, 3)], np.float32)
        return "Resize", [x, None, scales], options

    def pool(self) -> Node:
        kernel = self._ints(1, 4, 2)
        options: dict[str, Any] = {"kernel_shape": kernel, "strides": self._ints(1, 4, 2)}
        options["pads"] = [int(self._random.integers(n)) for n in kernel * 2]
        op = self._one("MaxPool", "AveragePool", "LpPool")
        if op == "LpPool":
            options["p"] = self._one(1, 2, 3)
        elif op == "MaxPool":
            options |= {"ceil_mode": self._one(0, 1), "dilations": self._ints(1, 3, 2)}
        else:
            options["count_include_pad"] = self._one(0, 1)
        if self._one(True, False, False):
            del options["pads"]
            options |= {"auto_pad": self._one("SAME_UPPER", "SAME_LOWER", "VALID")}
            options |= {"strides": [min(n, 2) for n in kernel], "dilations": [1, 1]}
            options = {k: n for k, n in options.items() if op == "MaxPool" or k != "dilations"}
        return op, [self._floats(1, 2, *self._ints(6, 10, 2))], options

    def beyond(self) -> Node:
        """A window that may span more than the input and its border: then it is refused."""
        kernel = self._ints(2, 8, 2)
        options: dict[str, Any] = {"kernel_shape": kernel, "strides": self._ints(1, 3, 2)}
        options["pads"] = [int(self._random.integers(2)) for _ in kernel * 2]
        x = self._floats(1, 2, *self._ints(2, 6, 2))
        op = self._one("MaxPool", "AveragePool", "LpPool", "Conv")
        return op, [x] if op != "Conv" else [x, self._floats(2, 2, *kernel)], options

    def convolution(self) -> Node:
        rank, groups = self._one(1, 2, 3), self._one(1, 2, 4)
        weight = self._floats(8, 4 // groups, *self._ints(1, 4, rank))
        options = {"strides": self._ints(1, 4, rank), "group": groups}
        if self._one(True, False):
            options["auto_pad"] = self._one("SAME_UPPER", "SAME_LOWER", "VALID")
        else:
            options |= {"pads": self._ints(0, 3, 2 * rank), "dilations": self._ints(1, 3, rank)}
        x = self._floats(2, 4, *self._ints(5, 8, rank))
        return "Conv", [x, weight, self._floats(8)], options

    def transposed(self) -> Node:
        groups, steps = self._one(1, 2), self._ints(1, 4, 2)
        options = {"strides": steps, "group": groups, "pads": self._ints(0, 2, 4)}
        options["output_padding"] = [int(self._random.integers(n)) for n in steps]
        options["dilations"] = self._ints(1, 3, 2)
        weight = self._floats(4, 3, *self._ints(2, 4, 2))
        x = self._floats(1, 4, *self._ints(3, 6, 2))
        return "ConvTranspose", [x, weight, self._floats(3 * groups)], options

    def pad(self) -> Node:
        amounts = np.array([int(self._random.integers(n)) for n in (3, 3, 3) * 2])
        mode = self._one("constant", "edge", "reflect")
        return "Pad", [self._floats(3, 5, 4), amounts], {"mode": mode}

    def slice(self) -> Node:
        steps = np.array([self._one(-3, -2, -1, 1, 2, 3) for _ in range(3)])
        bounds = [np.array(self._ints(-8, 8, 3)) for _ in range(2)]
        return "Slice", [self._floats(5, 6, 4), *bounds, np.arange(3), steps], {}

    def cumulative(self) -> Node:
        options = {"exclusive": self._one(0, 1), "reverse": self._one(0, 1)}
        return "CumSum", [self._floats(3, 4), np.array(self._one(0, 1, -1))], options

    def scatter(self) -> Node:
        index = np.stack([self._random.permutation(4)[:2] for _ in range(3)], 1)
        options = {"axis": 0, "reduction": self._one("none", "add", "mul", "max", "min")}
        return "ScatterElements", [self._floats(4, 3), index, self._floats(2, 3)], options

    def gather(self) -> Node:
        batch, width = self._one(0, 1), self._one(1, 2)
        extents = (3, 4, 5)[batch : batch + width]
        index = np.stack([self._random.integers(-n, n, (3, 2)) for n in extents], -1)
        return "GatherND", [self._floats(3, 4, 5), index], {"batch_dims": batch}

    def grid(self) -> Node:
        places = (self._random.random((1, 3, 4, 2)) * 2.6 - 1.3).astype(np.float32)
        options = {
            "mode": self._one("bilinear", "nearest", "bicubic"),
            "padding_mode": self._one("zeros", "border", "reflection"),
            "align_corners": self._one(0, 1),
        }
        return "GridSample", [self._floats(1, 2, 4, 5), places], options

    def recurrent(self) -> Node:
        op, gates = self._one(("LSTM", 4), ("GRU", 3), ("RNN", 1))
        direction, count = self._one(("forward", 1), ("reverse", 1), ("bidirectional", 2))
        weights = [self._floats(count, gates * 3, 4), self._floats(count, gates * 3, 3)]
        inputs = [self._floats(5, 2, 4), *weights, self._floats(count, 2 * gates * 3)]
        if self._one(True, False):
            inputs.append(np.array([5, 3], np.int32))
        return op, inputs, {"hidden_size": 3, "direction": direction}

    def quantise(self) -> Node:
        zero = np.array(self._one(0, 3, 100), self._one(np.uint8, np.int8))
        scale = np.array(self._one(0.1, 0.03), np.float32)
        return "QuantizeLinear", [self._floats(3, 4) * 3, scale, zero], {}


def random_node(seed: int) -> tuple[ModelProto, dict[str, Array]]:
    """A model of one node, whose first input is the model's, and that input."""
    op, inputs, attributes = Draw(seed).node()
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    first = inputs[0]
    assert first is not None
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "node",
        [helper.make_tensor_value_info("x0", 1, first.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(x, name)
            for name, x in zip(names[1:], inputs[1:], strict=True)
            if x is not None
        ],
    )
    imports = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9), {"x0": first}
