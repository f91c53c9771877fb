"""Reads the text form of HLIR back into a Graph; see `hlir.printer` for the form.

States and Parameters are made anew by name, shape and dtype: their values are not in the text.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from luminal.base import dtypes
from luminal.base.errors import GraphError, LuminalError
from luminal.hlir.attributes import (
    AxisAttrs,
    Body,
    CastAttrs,
    CollectiveAttrs,
    ConstantAttrs,
    CustomAttrs,
    CustomKernel,
    GatherAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    ScanAttrs,
    ScatterAttrs,
    Shape,
    ShardAttrs,
    Slot,
    StateAttrs,
    ViewAttrs,
    WeightAttrs,
)
from luminal.hlir.cursor import Line
from luminal.hlir.graph import Assign, Builder, Graph, Output, Sink
from luminal.hlir.ops import OPS, Node, Value
from luminal.hlir.printer import WORD
from luminal.hlir.types import TensorType
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State
from luminal.shape.expression import TRUE, Expression, Symbol, symbol
from luminal.shape.parse import parse as parse_expression
from luminal.shape.view import View, index


def parse(text: str, kernels: Mapping[str, CustomKernel] | None = None) -> Graph:
    """The Graph of a text that `to_text` printed.

    `kernels`: the kernel of each Custom node by name. Raises GraphError that names the line.
    """
    return _Parser(text, kernels or {}).graph()


class _Scope:
    """The values of one block: the graph, or the body of a Loop."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.nodes: dict[int, Node] = {}
        self.arguments: list[Node] = []

    def value(self, line: Line, text: str) -> Value:
        matched = re.fullmatch(r"%(\d+)(?:\.(\d+))?", text)
        if matched is None or int(matched[1]) not in self.nodes:
            raise line.error(f"{text!r} is no value")
        node, result = self.nodes[int(matched[1])], int(matched[2] or 0)
        if result >= len(node.types):
            raise line.error(f"{text!r}: the node has {len(node.types)} results")
        return Value(node, result)


class _Parser:
    def __init__(self, text: str, kernels: Mapping[str, CustomKernel]) -> None:
        numbered = enumerate(text.splitlines(), 1)
        self.lines = iter([Line(n, line.strip()) for n, line in numbered if line.strip()])
        self.kernels = kernels
        self.dims: dict[str, Symbol] = {}
        self.states: dict[str, State] = {}
        self.parameters: dict[str, Parameter] = {}

    def graph(self) -> Graph:
        next(self.lines).expect("graph {")
        scope = _Scope()
        requirements: list[Expression] = []
        sinks: list[Sink] = []
        for line in self.lines:
            if line.accept("}"):
                return Graph(tuple(sinks), tuple(self.dims.values()), tuple(requirements))
            if line.accept("dim "):
                self._dim(line)
            elif line.accept("require "):
                requirements.append(self._expression(line, line.text[line.at :]))
            elif line.accept("%"):
                self._node(line, scope)
            else:
                sinks.append(self._sink(line, scope))
        raise GraphError("the text ends before the closing '}' of the graph")

    def _dim(self, line: Line) -> None:
        name = line.text[line.at : line.text.rindex(" in ")].strip("`")
        line.at = line.text.rindex(" in ") + len(" in ")
        lo = line.integer()
        line.expect("..")
        self.dims[name] = symbol(name, lo, line.integer())

    def _sink(self, line: Line, scope: _Scope) -> Sink:
        word, name = line.name(), line.name()
        line.expect("=")
        value = scope.value(line, line.text[line.at :].strip())
        if word == "assign":
            return Assign(self._assigned(line, name, value.type), value)
        if word not in ("output", "hidden"):
            raise line.error(f"{word!r} is not output, hidden or assign")
        return Output(value, name, hidden=word == "hidden")

    # --- expressions, types and owners

    def _expression(self, line: Line, text: str, shape: Shape = ()) -> Expression:
        axes = {f"i{k}": index(k, extent) for k, extent in enumerate(shape)}
        try:
            return parse_expression(text, {**self.dims, **axes})
        except LuminalError as error:
            raise line.error(str(error)) from error

    def _types(self, line: Line) -> list[TensorType]:
        """The types after the colon; what the line says before it is read later."""
        # The types stand at the end of a line, but what is before them (the indices of a map) is
        # read by the shapes that they give. So they are read first, and the cursor goes back.
        back = line.at
        line.until(":")
        line.expect(":")
        types = []
        while True:
            dtype = dtypes.dtype_of(line.match(WORD))
            shape = tuple(self._expression(line, item) for item in line.items())
            types.append(TensorType(shape, dtype))
            if not line.accept(","):
                break
        line.at = back
        return types

    def _assigned(self, line: Line, name: str, type_: TensorType) -> Assignable:
        return self.parameters.get(name) or self._state(line, name, type_)

    def _state(self, line: Line, name: str, type_: TensorType) -> State:
        if name not in self.states:
            self.states[name] = State(_literal_shape(line, type_), type_.dtype, name=name)
        return self.states[name]

    def _parameter(self, line: Line, name: str, type_: TensorType) -> Parameter:
        if name not in self.parameters:
            self.parameters[name] = Parameter(_literal_shape(line, type_), type_.dtype, name)
        return self.parameters[name]

    # --- nodes

    def _node(self, line: Line, scope: _Scope) -> None:
        try:
            self._read_node(line, scope)
        except GraphError:
            # It names its line already; an inner Loop's line is nearer to the mistake than ours.
            raise
        except LuminalError as error:
            raise line.error(str(error)) from error

    def _read_node(self, line: Line, scope: _Scope) -> None:
        number = line.integer()
        line.expect("=")
        name = line.match(WORD)
        if name not in OPS:
            raise line.error(f"there is no op {name!r}")
        types = self._types(line)
        read = _READERS[OPS[name].attrs]
        args, attrs = read(self, line, scope, types)
        line.expect(":")
        node = scope.builder.make(name, args, attrs)
        # The types in the text are redundant on purpose: a text that was edited by hand is wrong
        # here, in its line, and not somewhere in the compiler.
        if list(node.types) != types:
            raise line.error(f"the op gives {', '.join(map(str, node.types))}")
        scope.nodes[number] = node
        if name == "Input":
            scope.arguments.append(node)

    def _operands(self, line: Line, scope: _Scope) -> list[Value]:
        """Values separated by commas, as many as come."""
        values = []
        while line.text[line.at :].lstrip().startswith("%"):
            values.append(scope.value(line, line.match(re.compile(r"%\d+(\.\d+)?"))))
            if not line.accept(","):
                break
        return values

    def _list(self, line: Line, scope: _Scope, word: str) -> list[Value]:
        line.expect(word)
        return [scope.value(line, item) for item in line.items()]

    def _map(
        self, line: Line, scope: _Scope, shape: Shape
    ) -> tuple[list[Value], tuple[Expression | int, ...]]:
        indices: list[Value] = []
        entries: list[Expression | int] = []
        for item in line.items():
            if item.startswith("%"):
                entries.append(Slot(len(indices)))
                indices.append(scope.value(line, item))
            else:
                entries.append(self._expression(line, item, shape))
        return indices, tuple(entries)

    def _bracketed(self, line: Line, shape: Shape = ()) -> Expression:
        line.expect("(")
        text = line.until(")")
        line.expect(")")
        return self._expression(line, text, shape)

    def _body(self, line: Line) -> Body:
        scope = _Scope()
        for inner in self.lines:
            if inner.accept("yield"):
                results = tuple(self._operands(inner, scope))
                next(self.lines).expect("}")
                return Body(tuple(scope.arguments), results)
            inner.expect("%")
            self._node(inner, scope)
        raise line.error("the body of the Loop does not end")


def _literal_shape(line: Line, type_: TensorType) -> tuple[int, ...]:
    if not all(extent.is_const for extent in type_.shape):
        raise line.error(f"{type_}: a State or Weight has a literal shape")
    return tuple(extent.value for extent in type_.shape)


# --- (operands, attributes) of each kind of op, from the words of its line ------------------------

_Read = tuple[Sequence[Value], Any]
_Reader = Callable[[_Parser, Line, _Scope, list[TensorType]], _Read]


def _pointwise(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    return p._operands(line, scope), None


def _input(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    return (), InputAttrs(line.name(), *types[0])


def _weight(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    name = line.name()
    owner = line.name() if line.accept("of ") else name
    return (), WeightAttrs(name, p._parameter(line, owner, types[0]))


def _state(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    return (), StateAttrs(p._state(line, line.name(), types[0]))


def _constant(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    if line.accept("zlib="):
        data = zlib.decompress(base64.b64decode(line.match(re.compile(r"\S*"))))
    else:
        line.expect("0x")
        data = bytes.fromhex(line.match(re.compile(r"[0-9a-f]*")))
    return (), ConstantAttrs(_literal_shape(line, types[0]), types[0].dtype, data)


def _iota(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    shape, dtype = types[0]
    return (), IotaAttrs(p._bracketed(line, shape), shape, dtype)


def _cast(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    return p._operands(line, scope), CastAttrs(types[0].dtype)


def _axis(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    args = p._operands(line, scope)
    line.expect("axis=")
    return args, AxisAttrs(line.integer())


def _scan(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    kind = line.match(WORD)
    args, attrs = _axis(p, line, scope, types)
    return args, ScanAttrs(kind, attrs.axis)


def _gather(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    source = p._operands(line, scope)
    indices, entries = p._map(line, scope, types[0].shape)
    return [*source, *indices], GatherAttrs(types[0].shape, entries)


def _scatter(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    mode = line.match(WORD)
    operands = p._operands(line, scope)
    if len(operands) != 2:
        raise line.error("Scatter takes a destination and a source")
    indices, entries = p._map(line, scope, operands[1].shape)
    return [*operands, *indices], ScatterAttrs(entries, mode)


def _view(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    shape = types[0].shape
    source = p._operands(line, scope)
    _, entries = p._map(line, _Scope(), shape)
    domain = p._bracketed(line, shape) if line.accept("where") else TRUE
    return source, ViewAttrs(View(shape, entries, domain))  # type: ignore[arg-type]


def _loop(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    line.expect("trips=")
    trips = p._bracketed(line)
    carried = p._list(line, scope, "carried=")
    args, counts = [*carried], []
    line.expect("streams=")
    for item in line.items():
        leaves = [item] if item.startswith("%") else [*Line(line.number, item).items()]
        counts.append(0 if item.startswith("%") else len(leaves))
        args += [scope.value(line, leaf) for leaf in leaves]
    args += p._list(line, scope, "invariants=")
    assigned: list[tuple[Assignable, ...] | None] = [None] * (len(types) - len(carried))
    for number in range(len(assigned)):
        if line.accept(f"y{number}="):
            y = types[len(carried) + number]
            row = TensorType(y.shape[1:], y.dtype)
            names = [Line(line.number, item).name() for item in line.items()]
            assigned[number] = tuple(p._assigned(line, name, row) for name in names)
    return args, LoopAttrs(trips, p._body(line), len(carried), tuple(counts), tuple(assigned))


def _custom(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    name = line.name()
    if name not in p.kernels:
        raise line.error(f"the kernel {name!r} is not given; pass kernels={{{name!r}: kernel}}")
    line.expect("chunks=")
    chunks = p._bracketed(line)
    line.expect("flops=")
    flops = p._bracketed(line)
    attrs = CustomAttrs(p.kernels[name], tuple(types), chunks, flops)
    return p._operands(line, scope), attrs


def _shard(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    args = p._operands(line, scope)
    line.expect("spec=")
    return args, ShardAttrs(tuple(tuple(names) for names in line.json()))


def _collective(p: _Parser, line: Line, scope: _Scope, types: list[TensorType]) -> _Read:
    kind = line.match(WORD)
    args = p._operands(line, scope)
    line.expect("axis=")
    axis = line.name()
    line.expect("ranks=")
    ranks = line.integer()
    reduction = line.name() if line.accept("by=") else ""
    pairs = tuple((a, b) for a, b in line.json()) if line.accept("pairs=") else ()
    turn = line.integer() if line.accept("turn=") else 0
    return args, CollectiveAttrs(kind, axis, ranks, reduction, pairs, turn)


_READERS: dict[type | None, _Reader] = {
    None: _pointwise,
    InputAttrs: _input,
    WeightAttrs: _weight,
    StateAttrs: _state,
    ConstantAttrs: _constant,
    IotaAttrs: _iota,
    CastAttrs: _cast,
    AxisAttrs: _axis,
    ScanAttrs: _scan,
    GatherAttrs: _gather,
    ScatterAttrs: _scatter,
    ViewAttrs: _view,
    LoopAttrs: _loop,
    CustomAttrs: _custom,
    ShardAttrs: _shard,
    CollectiveAttrs: _collective,
}
