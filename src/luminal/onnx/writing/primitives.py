"""Every primitive of HLIR in operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_letters
from typing import Any

import numpy as np
from onnx import TypeProto, helper

from luminal.base import dtypes
from luminal.hlir.attributes import (
    AxisAttrs,
    CastAttrs,
    ConstantAttrs,
    GatherAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    ScanAttrs,
    ScatterAttrs,
    StateAttrs,
    ViewAttrs,
    WeightAttrs,
)
from luminal.hlir.graph import topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.types import TensorType
from luminal.onnx.errors import UnsupportedError
from luminal.onnx.values import NUMBERS
from luminal.onnx.writing.expressions import Expressions
from luminal.onnx.writing.views import axes_of, flat_positions, read_at, write_view
from luminal.onnx.writing.writer import Writer
from luminal.shape.expression import TRUE, Expression

_SAME = {
    "Exp": "Exp", "Log": "Log", "Sin": "Sin", "Cos": "Cos", "Sqrt": "Sqrt", "Recip": "Reciprocal",
    "Floor": "Floor", "Add": "Add", "Mul": "Mul", "Div": "Div", "Maximum": "Max",
    "LessThan": "Less", "Equal": "Equal", "Select": "Where",
}  # fmt: skip
_BITS = {"And": "BitwiseAnd", "Or": "BitwiseOr", "Xor": "BitwiseXor"}


class Block:
    """The nodes of a graph or of a Loop's body while they are written; `names` of values so far."""

    def __init__(
        self, writer: Writer, dims: Mapping[str, str], names: dict[Value, str] | None = None
    ) -> None:
        self.writer = writer
        self.dims = dims
        self.at = Expressions(writer, dims)
        self.names: dict[Value, str] = {} if names is None else names

    def write(self, roots: Sequence[Value]) -> list[str]:
        """The names of the roots, with all nodes below them. Raises UnsupportedError."""
        order = [node for node in topological(roots) if node.value not in self.names]
        hidden = self._inside_products(order, roots)
        for node in order:
            if node in hidden or node.value in self.names:
                continue
            results = self._node(node)
            for k, name in enumerate([results] if isinstance(results, str) else results):
                self.names[Value(node, k)] = name
        return [self.names[root] for root in roots]

    def _inside_products(self, order: Sequence[Node], roots: Sequence[Value]) -> set[Node]:
        """Nodes that are written as a part of the sum of products that alone reads them."""
        readers: dict[Node, list[Node]] = {}
        for node in order:
            for arg in node.args:
                readers.setdefault(arg.node, []).append(node)
        ends = {root.node for root in roots}
        hidden: set[Node] = set()
        for node in reversed(order):
            by = readers.get(node, [])
            if node in ends or len(by) != 1:
                continue
            (reader,) = by
            summed = reader.op.name == "Sum" and node.types[0].dtype.is_float
            factor = reader in hidden and reader.op.name == "Mul"
            if (summed and _product_below(node) is not None) or (factor and _is_axes_view(node)):
                hidden.add(node)
        return hidden

    # --- nodes

    def _node(self, node: Node) -> Any:
        name, attrs, dtype = node.op.name, node.attrs, node.types[0].dtype
        writer = self.writer
        if name == "Sum" and node.types[0].dtype.is_float and _product_below(node) is not None:
            return self._einsum(node)
        args = [self._operand(arg) for arg in node.args]
        if name in _SAME:
            return writer.op(_SAME[name], *args)
        if name in _OTHERS:
            return _OTHERS[name](self, node, args)
        match attrs:
            case ConstantAttrs():
                return writer.constant(attrs.array)
            case WeightAttrs(name=label, parameter=parameter):
                return writer.constant(parameter.numpy(), label)
            case StateAttrs(state=state):
                return writer.constant(state.numpy(), state.name)
            case InputAttrs(name=label):
                return label
            case IotaAttrs(expr=expr, shape=shape, dtype=dtype):
                expanded = writer.op("Expand", self.at.over(expr, shape), self.at.shape(shape))
                return writer.cast(expanded, dtype)
            case CastAttrs(dtype=dtype) if name == "Cast":
                return self._cast(node, args[0])
            case ViewAttrs(view=view):
                return write_view(writer, self.at, args[0], node.args[0].shape, view, dtype)
            case AxisAttrs(axis=axis) if name in ("Sum", "Max"):
                kind = "ReduceSum" if name == "Sum" else "ReduceMax"
                return writer.op(kind, args[0], writer.ints(axis), keepdims=0)
            case AxisAttrs(axis=axis):
                count = self.at.shape([node.types[0].shape[axis]])
                return writer.op("TopK", args[0], count, outputs=2, axis=axis, largest=0)
            case ScanAttrs(kind="add", axis=axis):
                return writer.op("CumSum", args[0], writer.op("Squeeze", writer.ints(axis)))
            case GatherAttrs(map=entries, shape=shape):
                places = [self._place(entry, args[1:]) for entry in entries]
                return read_at(
                    writer, self.at, args[0], node.args[0].shape, places, TRUE, shape, dtype
                )
            case ScatterAttrs():
                return self._scatter(node, args)
            case LoopAttrs():
                return self._loop(node)
        raise UnsupportedError(f"export: operator set 21 has nothing for {node!r}")

    def _operand(self, value: Value) -> str:
        return self.names[value]

    def _place(self, entry: Any, indices: Sequence[str]) -> Any:
        """An entry of an index map: an Expression, or the name of a tensor of int64."""
        if isinstance(entry, Expression):
            return entry
        return self.writer.cast(indices[entry], dtypes.int64)

    def _cast(self, node: Node, x: str) -> str:
        """Floats saturate on their way to integers here, and NaN is 0."""
        source, target = node.args[0].dtype, node.types[0].dtype
        writer = self.writer
        if source.is_float and target.is_int:
            x = writer.op("Where", writer.op("IsNaN", x), writer.scalar(0, source), x)
            if target.size > 4:
                return writer.cast(x, target)
            ends = (writer.scalar(n, dtypes.float64) for n in (target.lowest, target.largest))
            wide = writer.op("Clip", writer.cast(x, dtypes.float64), *ends)
            return writer.cast(writer.cast(wide, dtypes.int64), target)
        return writer.cast(x, target)

    # --- sums of products

    def _einsum(self, node: Node) -> str:
        """Sums over a product of two as one Einsum, whose letters do what plain views do."""
        product = _product_below(node)
        assert product is not None
        letters = ascii_letters[: len(product.types[0].shape)]
        kept = letters
        for axis in _axes_above(node, product):
            kept = kept[:axis] + kept[axis + 1 :]
        terms, operands = [], []
        for arg in product.args:
            view = arg.node
            if view.value not in self.names and _is_axes_view(view):
                axes = axes_of(view.attrs.view, view.args[0].shape)
                assert axes is not None
                name = self._operand(view.args[0])
                gone = [k for k, place in enumerate(axes.places) if place is None]
                if gone:
                    name = self.writer.op("Squeeze", name, self.writer.ints(*gone))
                terms.append("".join(letters[k] for k in axes.places if k is not None))
            else:
                name = self._operand(arg)
                terms.append(letters)
            operands.append(name)
        used = set("".join(terms))
        if set(letters) - used:  # a dim that neither operand has
            shape = product.types[0].shape
            missing = [k for k, letter in enumerate(letters) if letter not in used]
            ones = self.writer.op(
                "Expand",
                self.writer.scalar(1, product.types[0].dtype),
                self.at.shape([shape[k] for k in missing]),
            )
            terms.append("".join(letters[k] for k in missing))
            operands.append(ones)
        equation = f"{','.join(terms)}->{kept}"
        return str(self.writer.op("Einsum", *operands, equation=equation))

    # --- memory

    def _scatter(self, node: Node, args: Sequence[str]) -> str:
        """Into the flattened destination, which has one more element for what is outside."""
        attrs: ScatterAttrs = node.attrs
        writer = self.writer
        if attrs.mode == "set" and any(
            not isinstance(position, Expression) for position in attrs.map
        ):
            raise UnsupportedError(
                "export: writing at indices, of which the last one counts where they are equal; "
                "ONNX leaves that open"
            )
        dest, source = node.args[:2]
        places = [self._place(entry, args[2:]) for entry in attrs.map]
        flat, valid = flat_positions(writer, self.at, dest.shape, places, TRUE, source.shape)
        one = writer.ints(1)
        count = writer.op("Size", args[0])
        whole = writer.op(
            "Concat",
            writer.op("Reshape", args[0], writer.ints(-1)),
            writer.op("Expand", writer.scalar(0, dest.dtype), one),
            axis=0,
        )
        # Positions outside go to the element too many, which is cut off in the end.
        if valid is not None:
            flat = writer.op("Where", valid, flat, count)
        flat = writer.op("Expand", flat, self.at.shape(source.shape))
        kind = "none" if attrs.mode == "set" else "add"
        scattered = writer.op(
            "ScatterElements",
            whole,
            writer.op("Reshape", flat, writer.ints(-1)),
            writer.op("Reshape", args[1], writer.ints(-1)),
            axis=0,
            reduction=kind,
        )
        ends = writer.op("Unsqueeze", count, writer.ints(0))
        inside = writer.op("Slice", scattered, writer.ints(0), ends)
        return str(writer.op("Reshape", inside, self.at.shape(dest.shape), allowzero=1))

    # --- Loop

    def _loop(self, node: Node) -> Any:
        attrs: LoopAttrs = node.attrs
        writer = self.writer
        if any(states is not None for states in attrs.assigned):
            raise UnsupportedError("export: a Loop that assigns States")
        carried, streams, invariants = attrs.split([self._operand(arg) for arg in node.args])
        whole = [
            leaves[0] if not count else self._stacked(leaves)
            for count, leaves in zip(attrs.streams, streams, strict=True)
        ]
        inner = Writer(writer)
        number, going = writer.name("trip"), writer.name("going")
        arguments = attrs.body.arguments
        starts = [writer.name("carried") for _ in carried]
        slices = [inner.op("Gather", stream, number, axis=0) for stream in whole]
        labels = [*starts, *slices, *invariants]
        block = Block(
            inner,
            self.dims,
            {argument.value: name for argument, name in zip(arguments, labels, strict=True)},
        )
        ends = block.write(attrs.body.results)
        results = [inner.op("Identity", name) for name in (going, *ends)]
        graph = helper.make_graph(
            inner.nodes,
            "body",
            [
                helper.make_tensor_value_info(number, 7, ()),
                helper.make_tensor_value_info(going, 9, ()),
                *(
                    _value_info(name, argument.types[0])
                    for name, argument in zip(starts, arguments, strict=False)
                ),
            ],
            [
                helper.make_tensor_value_info(results[0], 9, ()),
                *(
                    _value_info(name, value.type)
                    for name, value in zip(results[1:], attrs.body.results, strict=True)
                ),
            ],
        )
        trips = self.at.scalar(attrs.trips)
        true = writer.constant(np.array(True))
        return writer.op("Loop", trips, true, *carried, outputs=len(attrs.body.results), body=graph)

    def _stacked(self, leaves: Sequence[str]) -> str:
        zero = self.writer.ints(0)
        return str(
            self.writer.op(
                "Concat", *(self.writer.op("Unsqueeze", leaf, zero) for leaf in leaves), axis=0
            )
        )


def _value_info(name: str, type_: TensorType) -> Any:
    return helper.make_value_info(name, type_proto(type_))


def type_proto(type_: TensorType) -> TypeProto:
    """A tensor's type; dims have their names, other open extents none."""
    shape = [n.value if n.is_const else str(n) if n.op == "symbol" else None for n in type_.shape]
    return helper.make_tensor_type_proto(NUMBERS[type_.dtype.numpy], shape)


def _product_below(node: Node) -> Node | None:
    """The product of two that a chain of Sums adds up."""
    while node.op.name == "Sum":
        node = node.args[0].node
    return node if node.op.name == "Mul" else None


def _axes_above(node: Node, product: Node) -> list[int]:
    """The axes that the Sums from the product up to `node` reduce, first things first."""
    axes: list[int] = []
    while node is not product:
        axes.insert(0, node.attrs.axis)
        node = node.args[0].node
    return axes


def _is_axes_view(node: Node) -> bool:
    return node.op.name == "View" and axes_of(node.attrs.view, node.args[0].shape) is not None


# --- primitives that ONNX has no one operator for -------------------------------------------------


def _remainder(block: Block, node: Node, args: Sequence[str]) -> str:
    """With the sign of the divisor; integers by 0 give 0."""
    writer, (a, b) = block.writer, args
    dtype = node.types[0].dtype
    zero = writer.scalar(0, dtype)
    if dtype.is_int:
        is_zero = writer.op("Equal", b, zero)
        safe = writer.op("Where", is_zero, writer.scalar(1, dtype), b)
        return str(writer.op("Where", is_zero, zero, writer.op("Mod", a, safe)))
    rest = writer.op("Mod", a, b, fmod=1)
    differ = writer.op("Xor", writer.op("Less", rest, zero), writer.op("Less", b, zero))
    wrong = writer.op("And", differ, writer.op("Not", writer.op("Equal", rest, zero)))
    return str(writer.op("Where", wrong, writer.op("Add", rest, b), rest))


def _floor_div(block: Block, node: Node, args: Sequence[str]) -> str:
    writer, (a, b) = block.writer, args
    dtype = node.types[0].dtype
    if not dtype.is_int:
        raise UnsupportedError("export: floor_div of floats")
    zero = writer.scalar(0, dtype)
    is_zero = writer.op("Equal", b, zero)
    safe = writer.op("Where", is_zero, writer.scalar(1, dtype), b)
    whole = writer.op("Div", writer.op("Sub", a, writer.op("Mod", a, safe)), safe)
    return str(writer.op("Where", is_zero, zero, whole))


def _bits(block: Block, node: Node, args: Sequence[str]) -> str:
    kind = node.op.name
    return str(block.writer.op(kind if node.types[0].dtype.kind == "bool" else _BITS[kind], *args))


def _shift(block: Block, node: Node, args: Sequence[str]) -> str:
    """Shifts unsigned integers; past the width it gives 0."""
    dtype, writer = node.types[0].dtype, block.writer
    if dtype.is_signed:
        raise UnsupportedError(f"export: shifts of {dtype.name}; ONNX shifts unsigned integers")
    width = writer.scalar(dtype.bits, dtype)
    inside = writer.op("Less", args[1], width)
    count = writer.op("Where", inside, args[1], writer.scalar(0, dtype))
    direction = "LEFT" if node.op.name == "Shl" else "RIGHT"
    shifted = writer.op("BitShift", args[0], count, direction=direction)
    return str(writer.op("Where", inside, shifted, writer.scalar(0, dtype)))


def _power_of_two(block: Block, node: Node, args: Sequence[str]) -> str:
    return str(block.writer.op("Pow", block.writer.scalar(2, node.types[0].dtype), args[0]))


def _log_of_two(block: Block, node: Node, args: Sequence[str]) -> str:
    scale = block.writer.scalar(1 / np.log(2), node.types[0].dtype)
    return str(block.writer.op("Mul", block.writer.op("Log", args[0]), scale))


def _first(block: Block, node: Node, args: Sequence[str]) -> str:
    return args[0]


_OTHERS: dict[str, Callable[[Block, Node, Sequence[str]], str]] = {
    "After": _first,
    "And": _bits,
    "Detach": _first,
    "Exp2": _power_of_two,
    "FloorDiv": _floor_div,
    "Log2": _log_of_two,
    "Mod": _remainder,
    "Or": _bits,
    "Shl": _shift,
    "Shr": _shift,
    "Xor": _bits,
}
