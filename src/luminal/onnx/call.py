"""What a function of the table asks of its node: inputs, attributes, values that are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto, defs

from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.base.records import dataclass
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import axis_of
from luminal.frontend.tensor import Tensor
from luminal.onnx import table
from luminal.onnx.checks import Check
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.scope import Scope, resolved
from luminal.onnx.source import plain, sparse_array
from luminal.onnx.values import Array, Coded, dtype_of_number
from luminal.shape.expression import Expression, as_expression

if TYPE_CHECKING:
    from luminal.onnx.translate import Translation

PREFIX = "node "


def title(node: NodeProto) -> str:
    """A node in an error text."""
    name = repr(node.name) if node.name else f"of {', '.join(map(repr, node.output)) or 'nothing'}"
    return f"{PREFIX}{name} ({node.op_type})"


@dataclass(frozen=True, slots=True)
class Call:
    """One node while it is recorded: its attributes, its inputs, and questions about values."""

    node: NodeProto
    scope: Scope
    translation: Translation
    asked: set[str] = field(default_factory=set)  # attributes

    @property
    def graph(self) -> Recorder:
        """What values are recorded into."""
        return self.translation.graph

    @property
    def version(self) -> int:
        """The version of the operator set that the node belongs to."""
        return self.scope.opsets[plain(self.node.domain)]

    def defined(self) -> tuple[Any, ...]:
        """The outputs by ONNX's definition of the operator: for options that have no other way."""
        self.asked.update(attribute.name for attribute in self.node.attribute)
        return tuple(self.translation.defined(self))

    def resolved(self) -> NodeProto:
        """The node, with values for attributes that refer to those of a function around it."""
        if not any(attribute.ref_attr_name for attribute in self.node.attribute):
            return self.node
        copy = NodeProto()
        copy.CopyFrom(self.node)
        del copy.attribute[:]
        for attribute in self.node.attribute:
            value = AttributeProto()
            value.CopyFrom(resolved(attribute, self.scope))
            value.name = attribute.name
            if value.type != AttributeProto.UNDEFINED:
                copy.attribute.append(value)
        return copy

    # --- inputs

    def arguments(self, row: table.Operator) -> list[Any]:
        """What the operator's function takes after the call."""
        arrays = {
            k: self.known(self.input(k))
            for k in row.known
            if k < len(self.node.input) and self.node.input[k]
        }
        values = [arrays[k] if k in arrays else self.input(k) for k in range(len(self.node.input))]
        for value in values:
            if isinstance(value, Coded) and not row.any_dtype:
                dtype_of_number(value.number)  # raises: it is none to compute in
        return values

    def input(self, position: int) -> Any:
        """The value of an input; None where it is left out."""
        if position >= len(self.node.input) or not self.node.input[position]:
            return None
        return self.translation.value(self.scope, self.node.input[position])

    def known(self, value: Any) -> Array:
        """The operand's value where it is known; see `Translation.known`."""
        return self.translation.known(value)

    def ints(self, position: int, name: str) -> list[int] | None:
        """Integers of an input, or of the attribute that older versions have in its place."""
        value = self.input(position)
        if value is None:
            numbers = self.attribute(name)
            return None if numbers is None else list(numbers)
        return ints_of(self.known(value))

    def read(self, value: Any) -> Array:
        """Reads an operand while recording; see `Translation.read`."""
        return self.translation.read(value)

    def within(self, elements: Tensor, low: Any, high: Any, what: str = "index") -> None:
        """Requires elements of at least `low` and below `high`: raises OnnxError where they are
        known to be none, else runs do. `what` they are stands in the error.
        """
        check = Check(title(self.node), what, elements, as_expression(low), as_expression(high))
        self.translation.checks.add(check)

    def indices(self, elements: Tensor, extent: Any) -> None:
        """Requires positions along an extent, of which negative ones count from its end."""
        self.within(elements, -extent, extent)

    def count(self, number: int) -> None:
        """Notes parts that the node makes beside itself; raises OnnxError for too many."""
        self.translation.steps.count(number)

    def hosted(self, array: Array) -> Tensor:
        """Has the host compute results; see `Translation.hosted`."""
        return self.translation.hosted(array)

    # --- attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute as Python has it: int, float, str, list, or a message."""
        self.asked.add(name)
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = _value_of(resolved(attribute, self.scope))
                return default if value is None else value
        return default

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """An attribute that is an axis, counted from the front; raises ShapeError beyond a rank."""
        return self.place(self.attribute(name, default), rank)

    def place(self, axis: int, rank: int) -> int:
        """An axis counted from the front; raises ShapeError where it is none of a rank."""
        return axis_of(self.node.op_type, axis, rank)

    def unneeded(self, *names: str) -> None:
        """Says that attributes make no difference here."""
        self.asked.update(names)

    # ONNX adds attributes to operators. A function of the table that does not know one would ignore
    # it and be wrong, so what nobody asked for must have its default value.
    def check_attributes(self) -> None:
        """Raises UnsupportedError for an attribute that nothing has asked for.

        Unless it has its default value: what is not looked at might mean something else.
        """
        for attribute in self.node.attribute:
            if attribute.name not in self.asked and not self._is_default(attribute):
                raise UnsupportedError(f"the attribute {attribute.name!r} is not supported here")

    def _is_default(self, attribute: AttributeProto) -> bool:
        try:
            schema = defs.get_schema(self.node.op_type, self.version, self.node.domain)
        except defs.SchemaError:
            return False
        declared = schema.attributes.get(attribute.name)
        return declared is not None and _value_of(declared.default_value) == _value_of(
            resolved(attribute, self.scope)
        )

    def required(self, name: str) -> Any:
        """An attribute that must be there; raises OnnxError."""
        value = self.attribute(name)
        if value is None:
            raise OnnxError(f"the attribute {name!r} is missing; {self.node.op_type} needs it")
        return value

    def constant(self, value: Any, dtype: DType) -> Tensor:
        """A number or an array in this dtype."""
        return self.graph.constant(np.asarray(value).astype(dtype.numpy))

    def tensor(self, proto: TensorProto) -> Any:
        """A tensor among the attributes, as a value."""
        return self.translation.initial(self.translation.source.array(proto))

    def sparse(self, proto: SparseTensorProto) -> Any:
        """A sparse tensor among the attributes, as a value."""
        return self.translation.initial(sparse_array(self.translation.source, proto))


def _value_of(attribute: AttributeProto) -> Any:
    match attribute.type:
        case AttributeProto.INT:
            return attribute.i
        case AttributeProto.FLOAT:
            return attribute.f
        case AttributeProto.STRING:
            return attribute.s.decode("utf-8")
        case AttributeProto.TENSOR:
            return attribute.t
        case AttributeProto.SPARSE_TENSOR:
            return attribute.sparse_tensor
        case AttributeProto.GRAPH:
            return attribute.g
        case AttributeProto.TYPE_PROTO:
            return attribute.tp
        case AttributeProto.INTS:
            return list(attribute.ints)
        case AttributeProto.FLOATS:
            return list(attribute.floats)
        case AttributeProto.STRINGS:
            return [text.decode("utf-8") for text in attribute.strings]
    return None


def ints_of(array: Array) -> list[int]:
    """Known elements as ints; raises ShapeError where a dim is among them."""
    numbers = []
    for element in np.asarray(array).reshape(-1).tolist():
        if isinstance(element, Expression):
            if not element.is_const:
                raise ShapeError(f"needs the number that {element} stands for")
            element = element.value
        numbers.append(int(element))
    return numbers


def only(numbers: Sequence[Any]) -> Any:
    """The one of them; raises OnnxError for more or none."""
    if len(numbers) != 1:
        raise OnnxError(f"takes one number, got {[*numbers]}")
    return numbers[0]


def extents_of(array: Array) -> list[Any]:
    """Known elements as entries of a shape: ints, and Expressions where dims are involved."""
    extents = []
    for element in array.reshape(-1).tolist():
        is_open = isinstance(element, Expression) and not element.is_const
        extents.append(element if is_open else int(element))
    return extents
