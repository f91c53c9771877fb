"""Random ONNX models: DAGs of operators over small shapes, valid by construction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

UNARY = ("Abs", "Ceil", "Cos", "Elu", "Erf", "Floor", "HardSigmoid", "HardSwish", "Identity",
         "LeakyRelu", "Neg", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus",
         "Softsign", "Tanh", "ThresholdedRelu")  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Mean", "PRelu")
REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
              "ReduceSum", "ReduceSumSquare")  # fmt: skip


class Maker:
    """Draws one model; `values` are the float tensors so far, with their shapes."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.inputs: dict[str, Array] = {}
        self.values: list[tuple[str, tuple[int, ...]]] = []
        self._count = 0

    def model(self) -> tuple[ModelProto, dict[str, Array]]:
        """A model of opset 17 and inputs for it; every value that nobody reads is an output."""
        for _ in range(int(self.draw.integers(1, 4))):
            name = self._name("x")
            self.inputs[name] = self._array(self._shape())
            self.values.append((name, self.inputs[name].shape))
        steps: list[Callable[[], None]] = [
            self.unary, self.binary, self.reduction, self.movement, self.product, self.windows,
            self.selection, self.normalization, self.comparison, self.joined, self.padding,
        ]  # fmt: skip
        for _ in range(int(self.draw.integers(3, 12))):
            steps[self.draw.integers(len(steps))]()
        read = {name for node in self.nodes for name in node.input}
        ends = [name for name, _ in self.values if name not in read and name not in self.inputs]
        if not ends:
            self.unary()
            ends = [self.values[-1][0]]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info(n, 1, a.shape) for n, a in self.inputs.items()],
            [helper.make_tensor_value_info(n, 1, dict(self.values)[n]) for n in ends],
            self.initializers,
        )
        imports = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9), self.inputs

    # --- pieces

    def _name(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def _shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.draw.integers(1, 6, self.draw.integers(1, 5)))

    def _array(self, shape: tuple[int, ...]) -> Array:
        return self.draw.standard_normal(shape).astype(np.float32)

    def _pick(self, rank: int = 0) -> tuple[str, tuple[int, ...]]:
        """A value of at least this rank: of the newest as a rule, else a new constant."""
        fits = [value for value in self.values if len(value[1]) >= rank]
        if not fits:
            shape = tuple(int(n) for n in self.draw.integers(2, 6, max(rank, 1)))
            return self._constant(self._array(shape)), shape
        return fits[int(len(fits) * np.sqrt(self.draw.random()))]

    def _constant(self, array: Array) -> str:
        name = self._name("c")
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def _ints(self, *numbers: int) -> str:
        return self._constant(np.array(numbers, np.int64))

    def _node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = self._name()
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def _keep(self, name: str, shape: Any) -> None:
        self.values.append((name, tuple(int(n) for n in shape)))

    # --- steps

    def unary(self) -> None:
        name, shape = self._pick()
        self._keep(self._node(str(self.draw.choice(UNARY)), [name]), shape)

    def binary(self) -> None:
        name, shape = self._pick()
        same = [other for other, its in self.values if its == shape]
        if same and self.draw.random() < 0.5:
            other = same[self.draw.integers(len(same))]
        else:
            cut = shape[self.draw.integers(len(shape) + 1) :]
            other = self._constant(self._array(tuple(
                n if self.draw.random() < 0.7 else 1 for n in cut)))  # fmt: skip
        self._keep(self._node(str(self.draw.choice(BINARY)), [name, other]), shape)

    def reduction(self) -> None:
        name, shape = self._pick(1)
        axis, keep = int(self.draw.integers(len(shape))), int(self.draw.integers(2))
        op = str(self.draw.choice(REDUCTIONS))
        if op == "ReduceSum":
            found = self._node(op, [name, self._ints(axis)], keepdims=keep)
        else:
            found = self._node(op, [name], axes=[axis], keepdims=keep)
        left = [n for k, n in enumerate(shape) if k != axis or keep]
        self._keep(found, [1 if keep and k == axis else n for k, n in enumerate(left)])

    def movement(self) -> None:
        name, shape = self._pick(1)
        match int(self.draw.integers(6)):
            case 0:
                order = [int(k) for k in self.draw.permutation(len(shape))]
                found = self._node("Transpose", [name], perm=order)
                self._keep(found, [shape[k] for k in order])
            case 1:
                self._keep(self._node("Reshape", [name, self._ints(-1)]), [int(np.prod(shape))])
            case 2:
                axis = int(self.draw.integers(len(shape) + 1))
                found = self._node("Unsqueeze", [name, self._ints(axis)])
                self._keep(found, [*shape[:axis], 1, *shape[axis:]])
            case 3:
                axis = int(self.draw.integers(len(shape)))
                start, stop = sorted(self.draw.integers(0, shape[axis] + 1, 2).tolist())
                stop = max(stop, start + 1) if start < shape[axis] else shape[axis]
                start = min(start, shape[axis] - 1)
                bounds = [self._ints(n) for n in (start, stop, axis)]
                length = [*shape]
                length[axis] = stop - start
                self._keep(self._node("Slice", [name, *bounds]), length)
            case 4:
                times = self.draw.integers(1, 3, len(shape))
                self._keep(self._node("Tile", [name, self._ints(*times)]), times * np.array(shape))
            case _:
                axis = int(self.draw.integers(len(shape)))
                bounds = [self._ints(n) for n in (-1, -(2**62), axis, -1)]
                self._keep(self._node("Slice", [name, *bounds]), shape)

    def product(self) -> None:
        name, shape = self._pick(2)
        width = int(self.draw.integers(1, 7))
        if self.draw.random() < 0.5:
            other = self._constant(self._array((shape[-1], width)))
            self._keep(self._node("MatMul", [name, other]), [*shape[:-1], width])
            return
        flat = self._node("Flatten", [name], axis=len(shape) - 1)
        weight = self._constant(self._array((width, shape[-1])))
        bias = self._constant(self._array((width,)))
        found = self._node("Gemm", [flat, weight, bias], transB=1, alpha=0.5, beta=2.0)
        self._keep(found, [np.prod(shape[:-1]), width])

    def windows(self) -> None:
        shape = (int(self.draw.integers(1, 3)), 4, *self.draw.integers(4, 8, 2).tolist())
        name = self._constant(self._array(shape))
        for other, its in self.values:
            if len(its) == 4 and its[1] % 2 == 0 and min(its[2:]) >= 3:
                name, shape = other, its
        groups = 2 if shape[1] % 2 == 0 and self.draw.random() < 0.5 else 1
        stride = int(self.draw.integers(1, 3))
        extents = [(n + 2 - 3) // stride + 1 for n in shape[2:]]
        options = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [1, 1, 1, 1]}
        op = str(self.draw.choice(["Conv", "MaxPool", "AveragePool"]))
        if op == "Conv":
            weight = self._constant(self._array((6, shape[1] // groups, 3, 3)))
            bias = self._constant(self._array((6,)))
            found = self._node(op, [name, weight, bias], group=groups, **options)
            self._keep(found, [shape[0], 6, *extents])
        else:
            self._keep(self._node(op, [name], **options), [*shape[:2], *extents])

    def selection(self) -> None:
        name, shape = self._pick(1)
        axis = int(self.draw.integers(len(shape)))
        count = int(self.draw.integers(1, 5))
        index = self.draw.integers(-shape[axis], shape[axis], count)
        found = self._node("Gather", [name, self._ints(*index)], axis=axis)
        self._keep(found, [*shape[:axis], count, *shape[axis + 1 :]])

    def normalization(self) -> None:
        name, shape = self._pick(1)
        if self.draw.random() < 0.5:
            op = str(self.draw.choice(["Softmax", "LogSoftmax"]))
            axis = int(self.draw.integers(-len(shape), len(shape)))
            self._keep(self._node(op, [name], axis=axis), shape)
            return
        scale, bias = (self._constant(self._array(shape[-1:])) for _ in range(2))
        found = self._node("LayerNormalization", [name, scale, bias], epsilon=1e-3)
        self._keep(found, shape)

    def comparison(self) -> None:
        name, shape = self._pick()
        other = self._constant(self._array(()))
        mask = self._node(str(self.draw.choice(["Greater", "LessOrEqual"])), [name, other])
        found = self._node("Where", [mask, name, self._constant(self._array(()))])
        self._keep(found, shape)

    def joined(self) -> None:
        name, shape = self._pick(1)
        axis = int(self.draw.integers(len(shape)))
        more = [*shape]
        more[axis] = int(self.draw.integers(1, 4))
        other = self._constant(self._array(tuple(more)))
        found = self._node("Concat", [name, other, name], axis=axis)
        more[axis] += 2 * shape[axis]
        self._keep(found, more)

    def padding(self) -> None:
        name, shape = self._pick(1)
        mode = str(self.draw.choice(["constant", "edge"]))
        amounts = self.draw.integers(0, 3, 2 * len(shape))
        inputs = [name, self._ints(*amounts)]
        if mode == "constant":
            inputs.append(self._constant(np.float32(1.5)))
        pairs = amounts.reshape(2, -1).sum(0)
        self._keep(self._node("Pad", inputs, mode=mode), pairs + np.array(shape))


def random_model(seed: int) -> tuple[ModelProto, dict[str, Array]]:
    """A model and its inputs: the same for the same seed."""
    return Maker(seed).model()
