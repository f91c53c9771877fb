"""Operators that ONNX itself defines by others: what has no row in the table is recorded so."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from onnx import FunctionProto, TypeProto, defs, helper

from luminal.onnx.errors import UnsupportedError
from luminal.onnx.source import plain
from luminal.onnx.values import number_of

if TYPE_CHECKING:
    from luminal.onnx.call import Call


def body(call: Call, version: int) -> FunctionProto:
    """The definition of a node's operator in its version; raises UnsupportedError if none."""
    node = call.resolved()
    try:
        schema: Any = defs.get_schema(node.op_type, version, node.domain)
    except defs.SchemaError:
        where, is_listed = f"{node.domain or 'ai.onnx'} {version}", plain(node.domain) in _domains()
        what = f"is not an operator of {where}" if is_listed else f"of {where} is not supported"
        raise UnsupportedError(f"{node.op_type} {what}") from None
    function = FunctionProto()
    if schema.has_function:
        # The newest definition that the model's version allows: later ones may use operators that
        # did not exist, or meant something else.
        best = [since for since in schema.function_opset_versions if since <= version]
        if best:
            text = schema.get_function_with_opset_version(max(best))
            function.ParseFromString(text)
            return _with_defaults(function, schema)
    if schema.has_context_dependent_function:
        best = [e for e in schema.context_dependent_function_opset_versions if e <= version]
        if best:
            types = [_type_of(call.input(k)) for k in range(len(node.input))]
            text = schema.get_context_dependent_function_with_opset_version(
                max(best), node.SerializeToString(), [kind.SerializeToString() for kind in types]
            )
            if text:
                function.ParseFromString(text)
                return _with_defaults(function, schema)
    raise UnsupportedError(
        f"{node.op_type} of {node.domain or 'ai.onnx'} {version} is not supported"
    )


@cache
def _domains() -> frozenset[str]:
    """Those whose operators ONNX lists."""
    return frozenset(schema.domain for schema in defs.get_all_schemas())


def _with_defaults(function: FunctionProto, schema: Any) -> FunctionProto:
    """Attributes that a node leaves out have the values that the operator gives them."""
    named = {attribute.name for attribute in function.attribute_proto}
    for name, attribute in sorted(schema.attributes.items()):
        if name not in named and attribute.default_value.name:
            function.attribute_proto.append(attribute.default_value)
    return function


def _type_of(value: Any) -> TypeProto:
    if value is None:
        return TypeProto()
    if isinstance(value, list):
        return helper.make_sequence_type_proto(_type_of(value[0]) if value else TypeProto())
    x = value.codes if hasattr(value, "codes") else value
    shape = [n if isinstance(n, int) else None for n in x.shape]
    return helper.make_tensor_type_proto(number_of(value), shape)


def opsets(function: FunctionProto) -> dict[str, int]:
    """The versions that a body is written in."""
    return {plain(entry.domain): entry.version for entry in function.opset_import}
