"""The Recorder: one lazy graph. It makes leaves, dims and sinks, and keeps values and results."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

from luminal.base import config, dtypes
from luminal.base.complex_dtypes import complex_dtype_of
from luminal.base.dtypes import DType
from luminal.base.errors import DimError, GraphError, ShapeError
from luminal.base.lines import Lines, Recorded, recorded_here
from luminal.base.markup import card
from luminal.frontend import creation
from luminal.frontend.foreign import check_device
from luminal.frontend.handle import Array, Extent, Pair, Shape, describe
from luminal.frontend.matrices.packed import Codes, Packed
from luminal.frontend.pointwise.derivatives import (
    NO_GRADIENT,
    Derivative,
    as_variable,
    differentiable,
)
from luminal.frontend.random.keyed import no_key
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import ConstantAttrs, InputAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Builder, Graph, Output, Sink, topological
from luminal.hlir.ops import Node, Value
from luminal.memory.as_tensor import recorder
from luminal.memory.data import array_of, complex_array_of
from luminal.memory.parameter import Parameter
from luminal.memory.row_order import PairsOf
from luminal.memory.state import Assignable, State
from luminal.shape.expression import MAX_DIM, Expression, Symbol, const, symbol
from luminal.shape.prove import prove

_numbers = itertools.count()

parameter_names: ContextVar[Mapping[Any, str] | None] = ContextVar(
    "luminal_parameter_names", default=None
)
"""The paths of Parameters in the module that is being called, and of the modules below it."""


def new_builder() -> Builder:
    """Makes the nodes of a graph that is recorded; they remember their lines (LUMINAL_LINES)."""
    return Builder(Lines()) if config.get("LUMINAL_LINES") else Builder()


@contextmanager
def recording_into(graph: Recorder) -> Iterator[None]:
    """Has Parameters and States read by this graph, and `lm.arange` and the like record there."""
    token = recorder.set(graph)
    try:
        yield
    finally:
        recorder.reset(token)


class Recorder:
    """Records Tensors' operations into one graph. `values` holds inputs set, `results` what ran.

    `name` stands for the graph in error texts.
    """

    depth = 0  # how many scan bodies this graph lies inside of
    device: str | None = None  # of compiles that name none
    mesh: Any = None  # likewise
    is_by_rank = False  # is it one rank's program already, as lm.spmd records it?
    is_eager = False  # does an update run at once, as on the default graph?

    def __init__(self, name: str | None = None) -> None:
        self.name = name or f"graph{next(_numbers)}"
        self.builder = new_builder()
        self.dims: dict[str, Symbol] = {}
        self.requirements: list[Expression] = []
        self.required_at: dict[Expression, Recorded | None] = {}
        self.sinks: list[Sink] = []
        self._assigned: dict[Assignable, Assign] = {}
        self._held: dict[Value, Value] = {}  # constants that modules hold of the default graph
        self.leaves: dict[str, Value] = {}  # Inputs and Weights by name
        self.values: dict[str, Array] = {}
        self.results: dict[Value, Array] = {}
        self.diffs: dict[str, tuple[Tensor, Tensor]] = {}  # by file: what `diff` took and gave
        self.derivatives: dict[Value, Derivative] = {}
        self.parts: dict[Node, tuple[object, ...]] = {}  # that are checkpointed, innermost first
        self.pulled: dict[Node, Node] = {}  # recorded for derivatives of which
        self.cotangents: set[Node] = set()  # the gradients of values on the way
        self.gradients: dict[Value | Parameter, Tensor] = {}  # what `backward` found so far
        self.variables = weakref.WeakSet[Node]()  # of which `requires_grad_` was called
        self._weights: dict[Parameter, Value] = {}
        self._packed: dict[Packed, Tensor] = {}
        self._codes: dict[Packed, Codes] = {}
        self._numbers: dict[str, itertools.count[int]] = {}  # of names by their stems

    def __repr__(self) -> str:
        leaves = self.leaves.values()
        inputs = [describe(self.wrap(v)) for v in leaves if isinstance(v.node.attrs, InputAttrs)]
        weights = len(self.leaves) - len(inputs)
        outputs = [
            f"{sink.name}: {sink.value.type}" if isinstance(sink, Output) else f"sets {sink.state}"
            for sink in self.sinks
        ]
        parts = [f"{len(self.builder)} nodes", *([f"{weights} weights"] if weights else [])]
        takes = f"{_some(inputs)} -> {_some(outputs)}"
        return f"<{type(self).__name__} {self.name}: {', '.join(parts)}; {takes}>"

    def _repr_html_(self) -> str:
        rows = [("dim", f"{dim.name} in {dim.lo}..{dim.hi}") for dim in self.dims.values()]
        for value in self.leaves.values():
            kind = "takes" if isinstance(value.node.attrs, InputAttrs) else "weight"
            rows.append((kind, describe(self.wrap(value))))
        rows += [
            ("gives", f"{sink.name}: {sink.value.type}")
            if isinstance(sink, Output)
            else ("sets", str(sink.state.name))
            for sink in self.sinks
        ]
        return card(f"{type(self).__name__} {self.name}: {len(self.builder)} nodes", rows)

    @property
    def root(self) -> Recorder:
        """The graph around all bodies that this one lies in."""
        return self

    @staticmethod
    def has(name: str) -> bool:
        """Is this an attribute of Tensors?"""
        return hasattr(Tensor, name)

    # --- dims

    def dim(self, name: str, lo: int = 1, hi: int = MAX_DIM) -> Symbol:
        """A symbolic extent with values lo..hi, both included; the same name is the same dim.

        A close upper end makes better programs: buffers, chunks and what stays in caches are chosen
        by it. Raises DimError if the name already stands for another interval.
        """
        wanted = symbol(name, lo, hi)
        bounds = self.dims.setdefault(name, wanted)
        if bounds is not wanted:
            raise DimError(
                f"dim {name}: declared as {bounds.lo}..{bounds.hi} and as {lo}..{hi}; "
                "declare it once, before its first use in a shape"
            )
        return bounds

    def extent(self, n: Extent) -> Expression:
        """`n` as an Expression whose dims this graph declares; a name declares itself if new."""
        if isinstance(n, str):
            return self.dims[n] if n in self.dims else self.dim(n)
        if isinstance(n, Expression):
            for symbol in sorted(n.symbols(), key=lambda symbol: symbol.name):
                if symbol.extent is None:
                    self.dim(
                        symbol.name, symbol.lo or 0, MAX_DIM if symbol.hi is None else symbol.hi
                    )
            return n
        if isinstance(n, bool) or not isinstance(n, int | np.integer):
            hint = "; a tuple is a shape, data is a list: [1.0, 2.0]" if _is_number(n) else ""
            raise ShapeError(
                f"shape: {n!r} is not an int, the name of a dim, or an Expression{hint}"
            )
        return const(int(n))

    def extents(self, shape: Sequence[Extent]) -> Shape:
        """A shape as Expressions; raises ShapeError where an extent can only be negative."""
        if isinstance(shape, str | Expression | int):
            raise ShapeError(f"shape: {shape!r} is not a tuple; write ({shape!r},)")
        extents = tuple(self.extent(n) for n in shape)
        for n in extents:
            if n.interval.hi is not None and n.interval.hi < 0:
                raise ShapeError(f"shape: {tuple(shape)} has the negative extent {n}")
        return extents

    def require(self, condition: Expression | bool, what: str = "require") -> None:
        """Makes `condition`, of the dims, a requirement that every run is checked for.

        What the dims' intervals prove is dropped; what they refute raises DimError.
        """
        if isinstance(condition, Expression):
            self.extent(condition)
            # Earlier requirements are assumptions of the proof: what follows from them is not
            # checked again.
            verdict = prove(condition, tuple(self.requirements))
        else:
            verdict = bool(condition)
        if verdict is False:
            if isinstance(condition, Expression) and not condition.is_const:
                raise DimError(f"{what}: {condition} never holds; check the dims' intervals")
            raise DimError(f"{what}: the condition never holds; check the extents")
        if verdict is None and isinstance(condition, Expression):
            self.requirements.append(condition)
            self.required_at[condition] = recorded_here(what)

    # --- leaves

    def tensor(
        self, shape_or_data: Any, dtype: Any = None, name: str | None = None, *, copy: bool = True
    ) -> Tensor:
        """An Input. A tuple is its shape; a list, a number or an array is data, set as its value.

        Without `copy` the value is in one memory with an array, where it has its dtype.
        Shapes hold ints, names of dims, Expressions. The default dtype is float32, or the data's.
        """
        if (pairs := self._complex_input(shape_or_data, dtype)) is not None:
            z = self.tensor(*pairs, name, copy=copy)._paired()
            # Views of a part would be views of the pairs, and derivatives not know the part.
            return Pair.kind(*map(as_variable, z.parts))  # type: ignore[no-any-return]
        wanted = None if dtype is None else dtypes.dtype_of(dtype)
        name = self._leaf_name(name, "in")
        if isinstance(shape_or_data, tuple):
            shape, array = self.extents(shape_or_data), None
        else:
            array = array_of(shape_or_data, wanted, name)
            array = np.array(array) if copy else array
            shape, wanted = tuple(map(const, array.shape)), dtypes.dtype_of(array)
        value = self.builder.input(name, shape, wanted or dtypes.float32)
        self.leaves[name] = value
        if array is not None:
            self.values[name] = array
        return self.wrap(value)

    @staticmethod
    def _complex_input(shape_or_data: Any, dtype: Any) -> tuple[Any, DType] | None:
        """The Input of floats that complex numbers are pairs of: its shape or data, and dtype."""
        if isinstance(shape_or_data, tuple):
            kind = complex_dtype_of(dtype)
            return None if kind is None else ((*shape_or_data, 2), kind.real)
        numbers = complex_array_of(shape_or_data, dtype)
        if numbers is None:
            return None
        kind = complex_dtype_of(numbers)
        assert kind is not None
        return PairsOf(kind).rows(numbers), kind.real

    def weight(self, shape: Sequence[int], dtype: Any = dtypes.float32, name: str = "") -> Tensor:
        """A Weight with its own Parameter: set rarely, packed once per setting. Shapes are ints."""
        name = self._leaf_name(name or None, "weight")
        return self.weight_of(Parameter(shape, dtype, name), name)

    def weight_of(self, parameter: Parameter, name: str | None = None) -> Tensor:
        """The one Weight of `parameter` in this graph, named at its first use.

        Of a packed one the value that its Weights are decoded to, of one whose rows lie in another
        order its value.
        """
        if isinstance(parameter, Packed):
            return self.packed(parameter, name)
        return parameter.in_order(self.leaf_of(parameter, name))

    def leaf_of(self, held: Assignable, name: str | None = None) -> Tensor:
        """The Weight of a Parameter that is not packed, or what a State has at the start of a run,
        as its memory lies.
        """
        if isinstance(held, State):
            return self.wrap(self.builder.state(held))
        value = self._weights.get(held)
        if value is None:
            paths = parameter_names.get() or {}
            name = self._free_name(name or paths.get(held, held.name))
            value = self._weights[held] = self.builder.weight(name, held)
            self.leaves[name] = value
        return self.wrap(value)

    def packed(self, parameter: Packed, name: str | None = None) -> Tensor:
        """The one value of a packed Parameter in this graph, as `weight_of`."""
        weight = self._packed.get(parameter)
        if weight is None:
            value = self.codes(parameter, name).decoded().reshape(*parameter.shape)
            weight = self._packed[parameter] = value.cast(parameter.dtype)
        return weight

    def codes(self, parameter: Packed, name: str | None = None) -> Codes:
        """What a packed Parameter is made of in this graph, of Weights that begin with `name`."""
        codes = self._codes.get(parameter)
        if codes is None:
            codes = self._codes[parameter] = parameter.format.codes(self.parts_of(parameter, name))
        return codes

    def parts_of(self, parameter: Packed, name: str | None = None) -> dict[str, Tensor]:
        """The Weights that a packed Parameter lies in, whose names begin with `name`."""
        paths = parameter_names.get() or {}
        name = name or paths.get(parameter, parameter.name)
        return {
            part: self.weight_of(held, f"{name}.{part}") for part, held in parameter.parts.items()
        }

    def state(
        self, shape: Sequence[int], dtype: Any = dtypes.float32, init: Any = 0, name: str = ""
    ) -> Tensor:
        """Makes a State and reads it; `t.state` is the State."""
        return self.read(State(shape, dtype, init, name or None))

    def read(self, state: Assignable) -> Tensor:
        """The value that `state` has at the start of a run; a Parameter's is its Weight."""
        if isinstance(state, Parameter):
            return self.weight_of(state)
        return state.in_order(self.leaf_of(state))

    def in_floats(self, held: Assignable) -> Tensor:
        """The value that is read, of a complex Parameter or State (..., 2) of floats."""
        return self.leaf_of(held) if held.is_paired else self.read(held)

    def latest(self, state: Assignable) -> Tensor:
        """What `state` is assigned so far in this graph, else its value at the start of a run."""
        assigned = self._assigned.get(state)
        if assigned is None:
            return self.constant(state)
        return state.in_order(self.wrap(assigned.value))

    def assign(self, state: Assignable | Tensor, value: Tensor, *, again: bool = False) -> None:
        """`state` holds `value` at the end of a run; `again` allows it to replace an assignment.
        A complex one takes its pairs of floats as well (`in_floats`).

        A Parameter is assigned like a State (a training step): other programs see the new value
        from their next run on. A Tensor that reads a State or Parameter stands for it.
        Raises GraphError if the types differ, if it is assigned twice, or inside `scan`.
        """
        held = self._held_by(state) if isinstance(state, Tensor) else state
        if value.graph.depth > self.depth:
            raise GraphError(
                f"assign: {held!r} inside scan; return the value from the function as a carried "
                "value, and assign scan's result"
            )
        if isinstance(held, Packed):
            held.assigned()
        if isinstance(value, Pair):
            pair, value = value, value._apart()
            if not held.is_paired:
                raise GraphError(f"assign: {held!r} cannot hold {pair!r}; take its real part")
        brought = self.bring(value)
        whole = self.in_floats(held).value
        if brought.type != whole.type:
            raise GraphError(f"assign: {held!r} cannot hold {brought.type}; make both types agree")
        # The memory keeps its order of rows; what is assigned is brought into it.
        if held.order is not None and not held.is_paired:
            brought = held.order.rows(self.wrap(brought)).value
        earlier = self._assigned.get(held)
        if earlier is not None and not again:
            raise GraphError(f"assign: {held!r} is assigned twice; assign it once per graph")
        if earlier is not None:
            self.sinks.remove(earlier)
        self._assigned[held] = Assign(held, brought)
        self.sinks.append(self._assigned[held])

    def _held_by(self, x: Tensor) -> Assignable:
        """What a Tensor reads; raises GraphError if it is another kind of value."""
        node = x.value.node
        leaf = node.args[0].node if node.op.name == "View" else node
        if isinstance(leaf.attrs, WeightAttrs):
            parameter = leaf.attrs.parameter
            if self.weight_of(parameter).value == x.value:
                return parameter
        return x.state

    def _leaf_name(self, name: str | None, stem: str) -> str:
        """A name for a new leaf: `name`, or the next free of stem0, stem1 ..."""
        if name is None:
            numbers = self._numbers.setdefault(stem, itertools.count())
            return next(n for k in numbers if (n := f"{stem}{k}") not in self.leaves)
        if name in self.leaves:
            earlier = self.leaves[name].type
            raise GraphError(f"{name}: the name stands for {earlier} already; choose another name")
        return name

    def _free_name(self, name: str) -> str:
        numbered = (f"{name}.{k}" for k in itertools.count(1))
        return next(n for n in itertools.chain((name,), numbered) if n not in self.leaves)

    # --- tensors from nothing

    def constant(self, value: Any, dtype: Any = None) -> Tensor:
        """A Tensor of exactly this number, list, array, or Expression of dims (int64).

        Of a Parameter its Weight, of a State its value at the start of a run.
        """
        if isinstance(value, Parameter):
            return self.weight_of(value)
        if isinstance(value, State):
            return self.read(value)
        if isinstance(value, Pair):
            return Pair.kind(*map(self.constant, value.parts))  # type: ignore[no-any-return]
        if isinstance(value, Tensor):
            inside = value.graph.depth > self.depth  # of a scan's body, where its uses belong
            return value if inside else self.wrap(self.bring(value))
        return creation.constant(self, value, dtype)

    def arange(self, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
        """`start, start + step, ...` below `stop`; one argument counts from 0. Ints give int64."""
        return creation.arange(self, start, stop, step, dtype)

    def iota(self, shape: Sequence[Extent], dim: int = -1, dtype: Any = dtypes.int64) -> Tensor:
        """Each element's position along `dim`."""
        return creation.iota(self, shape, dim, dtype)

    def zeros(self, *shape: Any, dtype: Any = None) -> Tensor:
        """All zeros: `zeros(2, 3)`, `zeros((2, 3))` or `zeros((2, 3), dtype)`, else float32."""
        return creation.filled(self, shape, 0, dtype)

    def ones(self, *shape: Any, dtype: Any = None) -> Tensor:
        """All ones: shapes and dtypes as for `zeros`."""
        return creation.filled(self, shape, 1, dtype)

    def full(self, shape: Sequence[Extent], value: Any, dtype: Any = None) -> Tensor:
        """All `value`, a number; the dtype is the number's own by default."""
        return creation.full(self, shape, value, dtype)

    def eye(self, rows: Extent, columns: Extent | None = None, dtype: Any = float) -> Tensor:
        """Ones on the main diagonal, zeros elsewhere."""
        return creation.eye(self, rows, columns, dtype)

    def empty(self, *shape: Any, dtype: Any = None) -> Tensor:
        """All zeros: a value that is not initialised does not exist here."""
        return creation.filled(self, shape, 0, dtype)

    def linspace(
        self, start: Any, stop: Any, num: Extent, dtype: Any = None, endpoint: bool = True
    ) -> Tensor:
        """`num` numbers at even distances from start to stop; float32 by default."""
        return creation.linspace(self, start, stop, num, dtype, endpoint)

    def logspace(
        self, start: Any, stop: Any, num: Extent, base: float = 10.0, dtype: Any = None
    ) -> Tensor:
        """`base` to the powers that `linspace` gives; float32 by default."""
        return creation.logspace(self, start, stop, num, base, dtype)

    def tri(
        self, rows: Extent, columns: Extent | None = None, diagonal: int = 0, dtype: Any = float
    ) -> Tensor:
        """Ones at and below a diagonal, zeros above it."""
        return creation.tri(self, rows, columns, diagonal, dtype)

    def tril_indices(
        self, rows: int, columns: int, offset: int = 0, dtype: Any = dtypes.int64
    ) -> Tensor:
        """The positions (2, count) at and below a diagonal, row by row."""
        return creation.tril_indices(self, rows, columns, offset, dtype)

    def triu_indices(
        self, rows: int, columns: int, offset: int = 0, dtype: Any = dtypes.int64
    ) -> Tensor:
        """The positions (2, count) at and above a diagonal, row by row."""
        return creation.triu_indices(self, rows, columns, offset, dtype)

    def place(self, what: str, device: Any) -> None:
        """`what` asks for a device. Raises InputError but for the CPU, from where results come."""
        check_device(what, device)

    def nested(self) -> Recorder:
        """A recorder for the body of a Loop that takes nothing from this graph but its operands."""
        body = Recorder(f"the body of a loop in {self.name}")
        body.depth = self.depth + 1
        return body

    # --- sinks and results

    def output(self, value: Tensor, name: str | None = None, *, hidden: bool = False) -> None:
        """Makes `value` an output, by default `out0`, `out1` ...; hidden: it is not returned."""
        brought = self.bring(value)
        outputs = [sink for sink in self.sinks if isinstance(sink, Output)]
        if name is None:
            if any(sink.value == brought and sink.hidden == hidden for sink in outputs):
                return
            taken = {sink.name for sink in outputs}
            stem = "keep" if hidden else "out"
            name = next(n for k in itertools.count() if (n := f"{stem}{k}") not in taken)
        for sink in outputs:
            if sink.name == name:
                raise GraphError(
                    f"output: the name {name!r} stands for {sink.value.type} and for "
                    f"{brought.type}; give one of them another name"
                )
        self.sinks.append(Output(brought, name, hidden))

    def graph(self) -> Graph:
        """The graph recorded so far, frozen. Raises GraphError if nothing is output or assigned."""
        if not self.sinks:
            fix = "call .output(name) on a Tensor or assign a State"
            raise GraphError(f"{self.name}: nothing to compute; {fix}")
        return Graph(
            tuple(self.sinks), tuple(self.dims.values()), tuple(self.requirements), self.required_at
        )

    def set_value(self, value: Value, array: Any) -> None:
        """Stores an Input's value; raises ShapeError or DTypeError if it does not fit."""
        attrs = value.node.attrs
        if not isinstance(attrs, InputAttrs):
            raise GraphError(f"set: {value.type} is computed; only inputs and weights are set")
        converted = array_of(array, attrs.dtype, attrs.name)
        check_shape(attrs.name, converted.shape, attrs.shape)
        self.values[attrs.name] = converted

    def known(self, value: Value) -> Array | None:
        """The elements of `value` where they are at hand without a run, else None.

        The last execution's result, an Input's value, or a constant.
        """
        if value in self.results:
            return self.results[value]
        attrs = value.node.attrs
        if isinstance(attrs, InputAttrs):
            return self.values.get(attrs.name)
        return attrs.array if isinstance(attrs, ConstantAttrs) else None

    def origin(self, value: Value) -> str:
        """What `value` is in this graph, and whether its elements are known, in words."""
        attrs = value.node.attrs
        if isinstance(attrs, InputAttrs):
            return f"input of {self.name}" + ("" if attrs.name in self.values else ", no value yet")
        if isinstance(attrs, WeightAttrs):
            state = "" if attrs.parameter.has_value else ", no value yet"
            return f"weight of {self.name}{state}"
        if isinstance(attrs, StateAttrs):
            return f"state {attrs.state.name} in {self.name}"
        if isinstance(attrs, ConstantAttrs):
            return f"constant of {self.name}"
        state = "computed" if value in self.results else "not computed"
        return f"{value.node.op.name} of {self.name}, {state}"

    def result(self, value: Value) -> Array:
        """The elements of `value`; raises GraphError where this graph cannot compute them."""
        array = self.known(value)
        if array is not None:
            return array
        attrs = value.node.attrs
        if isinstance(attrs, WeightAttrs):
            return attrs.parameter.numpy()
        if isinstance(attrs, StateAttrs):
            return attrs.state.numpy()
        return self.computed(value)

    def computed(self, value: Value) -> Array:
        """`value` compiled and run, where the graph can do that; raises GraphError here."""
        raise GraphError(
            f"{value.type}: no result yet; call .retrieve() on the Tensor, then compile() and "
            "execute() on its graph"
        )

    def backward(self, loss: Tensor, gradient: Tensor | None = None) -> None:
        """See `Tensor.backward`; GraphError in the function of `scan`."""
        raise GraphError(f"backward: not inside {self.name}; use lm.grad on what leaves it")

    def differentiable(self) -> list[Value]:
        """The inputs and weights that `backward` finds gradients of, if they are floats."""
        return list(self.leaves.values())

    def updating(self) -> AbstractContextManager[None]:
        """Around the record of an update, which every run does; the default graph does it at the
        end.
        """
        return nullcontext()

    def wanted(self, value: Tensor) -> None:
        """Has the update that is recorded next compute a value too, where it runs at once."""

    def next_key(self, what: str) -> Tensor:
        """A random key for what draws without one; GraphError where all runs would have it."""
        raise GraphError(no_key(what))

    # --- values

    def wrap(self, value: Value) -> Tensor:
        """`value`, of this graph, as a Tensor; inside of `lm.no_grad` without its derivative."""
        if differentiable.get() or not value.node.args or not value.dtype.is_float:
            return Tensor(value, self)
        # Not the value itself, which is also that of an equal operation outside of the block.
        return Tensor(self.builder.make("Detach", [value], NO_GRADIENT).value, self)

    def bring(self, x: Tensor) -> Value:
        """The value of `x` in this graph; raises GraphError if `x` belongs to another one.

        What a module holds of the default graph, as it was made in its `__init__`, is a constant.
        """
        if x.graph is self:
            return x.value
        if parameter_names.get() is not None and x.graph.is_eager and _is_fixed(x.value):
            if x.value not in self._held:
                self._held[x.value] = self.constant(x.numpy()).value
            return self._held[x.value]
        raise GraphError(
            f"tensors of two graphs meet: {describe(x)} of {x.graph.name}, used in {self.name}; "
            "record both in one graph (lm.arange and the like record into the default graph, "
            "which is cx inside `with lm.recording(cx):`)"
        )


def _is_number(x: Any) -> bool:
    return isinstance(x, bool | float | np.number)


def _is_fixed(value: Value) -> bool:
    """Does no Parameter and no State lead to it?"""
    return not any(isinstance(n.attrs, WeightAttrs | StateAttrs) for n in topological([value]))


def _some(texts: Sequence[str]) -> str:
    """The first few of a list."""
    shown = ", ".join(texts[:4]) or "nothing"
    return f"{shown} and {len(texts) - 4} more" if len(texts) > 4 else shown


def check_shape(name: str, shape: tuple[int, ...], wanted: Shape) -> None:
    """Raises ShapeError unless `found` has the rank of `wanted` and fits each extent's interval."""
    fits = len(shape) == len(wanted) and all(
        n == w.value if w.is_const else _is_within(n, w) for n, w in zip(shape, wanted, strict=True)
    )
    if not fits:
        expected = ", ".join(map(str, wanted))
        raise ShapeError(f"{name}: expected shape ({expected}), got {shape}; reshape the array")


def _is_within(n: int, extent: Expression) -> bool:
    lo, hi = extent.interval
    return (lo is None or lo <= n) and (hi is None or n <= hi)
