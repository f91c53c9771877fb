"""The nodes of a model in the making, and the names of their outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from luminal.base.dtypes import DType
from luminal.onnx.values import NUMBERS

OPSET = 21
IR_VERSION = 10
"""The first one with operator set 21."""


class Writer:
    """Nodes of one graph; a Loop's body has a Writer of its own, inside of another's names.

    `taken`: names of inputs and outputs.
    """

    def __init__(self, outer: Writer | None = None, taken: Iterable[str] = ()) -> None:
        self.nodes: list[NodeProto] = []
        self.root: Writer = self if outer is None else outer.root
        self.initializers: list[TensorProto] = []  # of the root
        self._taken = set(taken)  # of the root, as is what follows
        self._count = 0
        self._made: dict[Any, str] = {} if outer is None else dict(outer._made)

    def name(self, stem: str = "v") -> str:
        """A name that no other value has."""
        self.root._count += 1
        return self._free(f"{stem}{self.root._count}")

    def _free(self, name: str) -> str:
        """`name`, or one like it that no other value has."""
        taken = self.root._taken
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The output of a node, or a list of several; equal nodes are one."""
        key = (kind, inputs, outputs, repr(sorted(attributes.items())))
        if "body" in attributes:
            return self._node(kind, inputs, outputs, attributes)
        if key not in self._made:
            self._made[key] = self._node(kind, inputs, outputs, attributes)
        return self._made[key]

    def _node(
        self, kind: str, inputs: Sequence[str], outputs: int, attributes: dict[str, Any]
    ) -> Any:
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array: Any, name: str | None = None) -> str:
        """An initializer with these elements."""
        array = np.asarray(array, order="C")
        key = None if name else ("constant", array.dtype, array.shape, array.tobytes())
        if key in self.root._made:
            return self.root._made[key]
        name = self._free(name) if name else self.name("c")
        self.root.initializers.append(numpy_helper.from_array(array, name))
        if key is not None:
            self.root._made[key] = self._made[key] = name
        return name

    def ints(self, *numbers: int) -> str:
        """A vector of int64."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: Any, dtype: DType) -> str:
        """One number of a dtype."""
        return self.constant(np.array(number).astype(dtype.numpy))

    def cast(self, x: str, dtype: DType) -> str:
        """`x` in another dtype."""
        return str(self.op("Cast", x, to=NUMBERS[dtype.numpy]))
