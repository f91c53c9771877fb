"""A model's graph recorded with the library, node by node.

What an operator needs to know before it can be recorded (a shape, axes, a condition) is evaluated
where it depends on constants and dims. Where it depends on the inputs' data, the translation asks:
the piece before is compiled and run, and the translation goes on with the answer. All that
comes after the answer depends only on values that the piece before gives out (the live ones).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto

from luminal.base.errors import DimError, LuminalError
from luminal.frontend.tensor import Tensor
from luminal.hlir import ops as hlir
from luminal.onnx import functions, table
from luminal.onnx.budget import Steps, check_depth, check_sizes
from luminal.onnx.call import PREFIX, Call, title
from luminal.onnx.checks import Checks
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.known import Known, Unknown
from luminal.onnx.origins import recorded
from luminal.onnx.scope import Scope, last_reads, resolved
from luminal.onnx.source import (
    MAX_CONSTANT,
    Constant,
    Source,
    content_key,
    plain,
    sparse_array,
    stored,
)
from luminal.onnx.values import NARROW_NUMBERS, Array, Coded, mapped, tensors
from luminal.session.graph import Graph


class Cut(Exception):
    """A question of the translation is not to be answered: it ends there."""


Ask = Callable[[Tensor, Sequence[Tensor]], Array]
"""Gives the elements of a Tensor that depends on data; later parts need the live values."""

UNFIT = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What code meets that takes a damaged node for a sound one."""

MOST_LETTERS = 500  # of what an error says of a node


# Operators are recorded one by one, shapes too. Where one needs numbers that a run alone can give,
# the recording ends, and begins anew with the answer on what was computed so far.
class Translation:
    """One recording of a model into `graph`, with the answers to its questions so far.

    Further questions go to `ask`; without it they end the recording.
    """

    def __init__(
        self, source: Source, graph: Graph, answers: Sequence[Array], ask: Ask | None = None
    ) -> None:
        self.source = source
        self.graph = graph
        self._known = Known()
        self.checks = Checks(self._known)
        self._answers = list(answers)
        self._ask = ask
        self._asked = 0
        self._scopes: list[Scope] = []
        self.steps = Steps(source.nodes)
        self.codes: dict[hlir.Value, Any] = {}  # of what was dequantised, see `operators.codes`
        self.given: dict[str, Array] = {}  # what is hosted, by the names of its Inputs

    # --- graphs and nodes

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The outputs of the model for its inputs. Raises Cut, LuminalError."""
        return self.block(self.source.graph, inputs, Scope(self.source.opsets), is_main=True)

    def block(
        self, graph: GraphProto, inputs: Mapping[str, Any], scope: Scope, *, is_main: bool = False
    ) -> list[Any]:
        """The outputs of a graph, recorded in a scope of its own."""
        scope.last = last_reads(graph)
        self._scopes.append(scope)
        try:
            for tensor in graph.initializer:
                if tensor.name not in inputs:
                    read = self.source.initializer if is_main else self.source.array
                    scope.values[tensor.name] = self.initial(read(tensor))
            for sparse in graph.sparse_initializer:
                dense = sparse_array(self.source, sparse)
                scope.values[sparse.values.name] = self.initial(dense)
            scope.values.update(inputs)
            for number, node in enumerate(graph.node):
                self.node(node, scope)
                for name in (*node.input, *node.output):
                    if scope.last.get(name, number) <= number:
                        scope.values.pop(name, None)
            return [self.value(scope, output.name) for output in graph.output]
        finally:
            self._scopes.pop()

    def node(self, node: NodeProto, scope: Scope) -> None:
        """Records one node. Raises OnnxError, which names the node, and Cut."""
        try:
            self.steps.count()
            check_depth(len(self._scopes))
            with recorded(node):
                outputs = self._outputs(node, scope)
            check_sizes(outputs)
        except OnnxError as error:
            # A node of a body has named itself already; the nodes around it are on the way, not to
            # blame.
            if str(error).startswith(PREFIX):
                raise
            raise type(error)(f"{title(node)}: {_short(error)}") from error
        except LuminalError as error:
            raise OnnxError(f"{title(node)}: {_short(error)}") from error
        except UNFIT as error:  # an attribute of another type, an input too few
            raise OnnxError(
                f"{title(node)}: the inputs and attributes are not what {node.op_type} takes: "
                f"{type(error).__name__}: {_short(error)}"
            ) from error
        for name, value in zip(node.output, outputs, strict=False):
            if name:
                scope.values[name] = value

    def _outputs(self, node: NodeProto, scope: Scope) -> Sequence[Any]:
        domain = plain(node.domain)
        local = self.source.functions.get((domain, node.op_type))
        if local is not None:
            return self.inline(local, node, scope, {plain(o.domain): o.version
                                                    for o in local.opset_import})  # fmt: skip
        version = scope.opsets.get(domain)
        if version is None:
            raise OnnxError(
                f"the domain {node.domain!r} is neither imported nor one of a function of the model"
            )
        row = table.find(domain, node.op_type, version)
        call = Call(node, scope, self)
        if row is None:
            return self.defined(call)
        result = row.function(call, *call.arguments(row))
        call.check_attributes()
        return result if isinstance(result, tuple) else (result,)

    def defined(self, call: Call) -> list[Any]:
        """The outputs of a node by ONNX's own definition of its operator."""
        function = functions.body(call, call.version)
        opsets = {**call.scope.opsets, **functions.opsets(function)}
        return self.inline(function, call.node, call.scope, opsets)

    def inline(
        self, function: FunctionProto, node: NodeProto, scope: Scope, opsets: Mapping[str, int]
    ) -> list[Any]:
        """The outputs of a function's body for a node that calls it."""
        bound = {attribute.name: attribute for attribute in function.attribute_proto}
        bound.update({attribute.name: resolved(attribute, scope) for attribute in node.attribute})
        inner = Scope(opsets, attributes=bound)
        arguments = (self.value(scope, name) if name else None for name in node.input)
        inner.values.update(zip(function.input, arguments, strict=False))
        inner.values.update({name: None for name in function.input if name not in inner.values})
        self._scopes.append(inner)
        try:
            for inner_node in function.node:
                self.node(inner_node, inner)
            return [inner.values.get(name) for name in function.output]
        finally:
            self._scopes.pop()

    @contextmanager
    def holding(self, scope: Scope) -> Iterator[None]:
        """While it lasts, answers reach the values of `scope`."""
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.pop()

    # --- values

    def value(self, scope: Scope, name: str) -> Any:
        """The value of a name; raises OnnxError where no node has made it."""
        owner = scope.find(name)
        if owner is None:
            raise OnnxError(
                f"{name!r} is read before it is made: it is no input, no initializer and no output "
                "of an earlier node; nodes must stand in the order of their edges, without cycles"
            )
        return owner.values[name]

    def initial(self, value: Array | Constant) -> Any:
        """A constant of the model: a literal where it is small, else a Weight."""
        if isinstance(value, Constant):
            tensor = self.graph.weight_of(value.parameter)
            return tensor if value.number is None else Coded(tensor, value.number)
        if value.dtype == object:
            raise UnsupportedError("strings are not supported")
        if value.size > MAX_CONSTANT:
            return self.initial(self.source.constant(content_key(value), value, "constant"))
        number = NARROW_NUMBERS.get(value.dtype)
        tensor = self.graph.constant(stored(value))
        return tensor if number is None else Coded(tensor, number)

    def known(self, value: Any) -> Array:
        """The elements of a Tensor: numbers, or Expressions of the dims as objects.

        Raises Cut where they depend on data, DimError where on dims in other ways.
        """
        tensor = self._numbers(value)
        try:
            return self._known.array(tensor.value)
        except Unknown as unknown:
            if unknown.by_data:
                return self.read(tensor)
            raise DimError(f"the elements of {tensor.value.type} depend on dims in ways that are "
                           "not Expressions of them") from None  # fmt: skip

    def read(self, value: Any) -> Array:
        """The elements of a Tensor as numbers, by a run of all before if need be."""
        tensor = self._numbers(value)
        try:
            elements = self._known.array(tensor.value)
            if elements.dtype != object:
                return elements
        except Unknown:
            pass
        if tensor.graph is not self.graph:
            raise UnsupportedError(
                f"needs the elements of {tensor.value.type}, which every iteration of the loop "
                "around it computes anew"
            )
        if not all(extent.is_const for extent in tensor.extents) or self.graph.dims:
            raise DimError(f"needs the elements of {tensor.value.type}, which depend on data")
        return self._answer(tensor)

    def literal(self, value: Tensor) -> Array | None:
        """The elements of a constant; None where they are not known before a run."""
        try:
            elements = self._known.array(value.value)
        except Unknown:
            return None
        return None if elements.dtype == object else elements

    def _numbers(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise OnnxError(f"takes a tensor of numbers, got {value!r}")
        return value

    def _answer(self, asked: Tensor) -> Array:
        live = self._live()
        if self._asked == len(self._answers):
            if self._ask is None:
                raise Cut
            self._answers.append(self._ask(asked, live))
        self.checks.taken()  # the piece before has made them
        answer = self._answers[self._asked]
        # Shapes follow from small answers, so these are literals; a program with large ones would
        # serve these elements only.
        small = answer.size <= MAX_CONSTANT
        restart = self.graph.constant(answer) if small else self.hosted(answer)
        # What later nodes read starts anew here: as Inputs, which the piece before gives.
        inside: dict[hlir.Value, Tensor] = {asked.value: restart}
        for number, x in enumerate(live):
            name = live_name(self._asked, number)
            if x.value not in inside:
                inside[x.value] = self.graph.tensor(x.shape, x.dtype, name)
        self._asked += 1
        for scope in self._scopes:
            for name, value in scope.values.items():
                scope.values[name] = mapped(lambda x: inside.get(x.value, x), value)
        return answer

    def hosted(self, array: Array) -> Tensor:
        """An array that was computed outside of programs: an Input, so that the programs that take
        it do not depend on its elements.
        """
        name = f"hosted{len(self.given)}"
        self.given[name] = array
        return self.graph.tensor(array.shape, array.dtype, name)

    def trip(self, number: int) -> Tensor:
        """The number of a trip of a loop that data ends: known, but none of the program's literals,
        so that one program serves all trips.
        """
        array = np.array(number, np.int64)
        tensor = self.hosted(array)
        self._known.tell(tensor.value, array)
        return tensor

    def _live(self) -> list[Tensor]:
        """What later nodes may read and runs compute: distinct values, in order."""
        live: dict[hlir.Value, Tensor] = {}
        for scope in self._scopes:
            for value in scope.values.values():
                for x in tensors(value):
                    if x.graph is self.graph and self._depends_on_data(x):
                        live.setdefault(x.value, x)
        return list(live.values())

    def _depends_on_data(self, x: Tensor) -> bool:
        if x.value.node.op.group == "leaf":
            return False
        try:
            self._known.array(x.value)
        except Unknown as unknown:
            return unknown.by_data
        return False


def live_name(cut: int, number: int) -> str:
    """The Input that stands for a value after the cut."""
    return f"live{cut}.{number}"


def _short(error: Exception) -> str:
    """An error's text without the middle of what a damaged node makes long, as a million axes."""
    text = str(error)
    half = MOST_LETTERS // 2
    return text if len(text) <= MOST_LETTERS else f"{text[:half]} ... {text[-half:]}"
