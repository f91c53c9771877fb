"""A loaded model: called with arrays, it is compiled for the kinds of its inputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, TensorShapeProto, TypeProto, ValueInfoProto

from luminal.base import forks, tracing
from luminal.base.errors import DimError, InputError, LuminalError
from luminal.frontend.tensor import Tensor
from luminal.memory.data import array_of
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.pieces import Form, Program
from luminal.onnx.source import Source
from luminal.onnx.values import (
    NARROW,
    NARROW_NUMBERS,
    Array,
    Coded,
    codes_of,
    dtype_of_number,
    flattened,
)
from luminal.runtime.executable import Executable
from luminal.runtime.report import Report
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph

Given = Mapping[str, Any]

MAX_FORMS = 64  # compiled for kinds of inputs, the least recently used go first


def load(model: str | Path | bytes | ModelProto) -> Model:
    """A model from its path, its bytes or a ModelProto; external data is found beside the path.

    Raises LoadError for what is no model, or damaged. Nodes are looked at by the first call.
    """
    return Model(Source.of(model))


class Model:
    """A model that is called with NumPy arrays, in order or by name: `model(x)`, `model(x=x)`.

    It gives a dict of its outputs by name; a sequence is a list, an empty optional None. The first
    call compiles it for its shapes. Others compile it once more, for all sizes of the dims that the
    model leaves open; where that is not possible, it is compiled for each shape.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._forms: OrderedDict[Hashable, Form] = OrderedDict()
        self._lock = forks.rlock()
        self._device = chosen_device(None)
        self._options: dict[str, Any] = {"backend": self._device}
        self._quick: dict[Hashable, Quick] = {}  # by the kinds of arrays in order
        self._names = [declared.name for declared in source.inputs]
        self._is_dynamic = True  # till a form with open dims could not be recorded

    def __repr__(self) -> str:
        inputs = ", ".join(
            f"{declared.name}: {type_text(declared.type)}" for declared in self._source.inputs
        )
        return f"<{self._source.name}: {inputs} -> {', '.join(self._source.outputs)}>"

    @property
    def input_names(self) -> list[str]:
        """The inputs that a call gives; initializers are none."""
        return [*self._names]

    @property
    def proto(self) -> ModelProto:
        """The message that the model was read from."""
        return self._source.proto

    def compile(self, backend: str | None = None, **options: Any) -> Model:
        """Sets options of `lm.compile` (mode, numerics, ...) for what is compiled from now on.

        `backend`: a device; None is the one that the model was loaded for.
        """
        with self._lock:
            self._options = {"backend": self._device if backend is None else backend, **options}
            self._forms.clear()
            self._quick.clear()
        return self

    def __call__(self, *args: Any, **named: Any) -> dict[str, Any]:
        """Runs the model. Raises InputError for inputs that do not fit, OnnxError for nodes."""
        # Most calls are of a kind that was met: dtypes and shapes alone say so, and nothing is
        # looked at again.
        if not named and self._quick:
            if len(args) == 1 and args[0].__class__ is dict:
                inputs = args[0]
                args = tuple(inputs.values()) if [*inputs] == self._names else args
            quick = self._quick.get(kinds(args))
            if quick is not None:
                return quick.run(args)
        inputs = self._given(args, named)
        with self._lock:
            return self._run(inputs)

    def profile(self, *args: Any, **named: Any) -> list[Report]:
        """Runs the model with a clock: the report of each program that the call takes."""
        reports: list[Report] = []
        inputs = self._given(args, named)
        with self._lock:
            self._run(inputs, reports)
        return reports

    def executables(self) -> list[Executable]:
        """The programs that were compiled so far, those of the last kind of inputs last."""
        with self._lock:
            return [exe for form in self._forms.values() for exe in form.executables()]

    def declared(self, name: str) -> tuple[np.dtype[Any], list[int | str] | None]:
        """The dtype of an input, and its shape: names of dims that are open; None without a rank.

        Raises InputError for inputs that are no tensors.
        """
        declaration = next(
            declaration for declaration in self._source.inputs if declaration.name == name
        )
        if declaration.type.WhichOneof("value") != "tensor_type":
            raise InputError(
                f"{name}: a {type_text(declaration.type)} is no tensor; pass it by a program"
            )
        kind = declaration.type.tensor_type.elem_type
        dtype = NARROW[kind] if kind in NARROW else dtype_of_number(kind).numpy
        return dtype, _dims(declaration)

    def _given(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = self.input_names
        if len(args) == 1 and isinstance(args[0], Mapping):
            return self._given((), {**args[0], **named})
        if len(args) > len(names):
            raise InputError(f"{self._source.name}: {len(args)} inputs; it takes {names}")
        passed = dict(zip(names, args, strict=False))
        names_there = {*names, *self._source.initializers}
        for name, value in named.items():
            if name in passed or name not in names_there:
                fault = "is given twice" if name in passed else "is not an input"
                raise InputError(f"{self._source.name}: {name!r} {fault}; the inputs are {names}")
            passed[name] = value
        result = {}
        for declared in self._source.inputs:
            optional = declared.type.WhichOneof("value") == "optional_type"
            if declared.name not in passed and not optional:
                raise InputError(
                    f"{self._source.name}: input {declared.name!r} is missing; pass {names}"
                )
            result[declared.name] = checked(declared.name, passed.get(declared.name), declared.type)
        for name in sorted(set(passed) - set(result)):  # in place of an initializer
            result[name] = plain_array(name, passed[name])
        return result

    def _run(self, inputs: Given, reports: list[Report] | None = None) -> dict[str, Any]:
        leaves = {name: list(flattened(name, value)) for name, value in inputs.items()}
        arrays = {key: array for pairs in leaves.values() for key, array in pairs}
        stored = {key: codes_of(a) if a.dtype in NARROW_NUMBERS else a for key, a in arrays.items()}
        try:
            form, outputs = self._outputs(inputs, stored, reports)
        except (MemoryError, OverflowError) as error:
            raise OnnxError(f"{self._source.name}: a shape is too large: {error}") from error
        # One program, and inputs in the model's order: later calls of this kind need no more than
        # that.
        if form.program is not None and [*inputs] == self.input_names:
            # All at once: entries cost nothing to make again, and an order of use would have to be
            # noted at every call.
            if len(self._quick) >= MAX_FORMS:
                self._quick.clear()
            key = kinds(inputs.values())
            if key is not None:
                self._quick[key] = Quick(form.program, tuple(inputs), tuple(self._source.outputs))
        return dict(zip(self._source.outputs, outputs, strict=True))

    def _outputs(
        self, inputs: Given, stored: Mapping[str, Array], reports: list[Report] | None
    ) -> tuple[Form, list[Any]]:
        """The form that takes these inputs, and what it gives.

        The first call's shapes have a form of their own, which is faster than one for all shapes.
        """
        # The first shapes get a program of their own, as most models are only ever called with one.
        # Open dims are tried when a second shape comes, which proves that there are several.
        is_first = not self._forms
        if self._is_dynamic and not is_first and self._key(inputs, {}) not in self._forms:
            try:
                form = self._form(inputs, self._open_shapes(inputs))
            except LuminalError as error:  # if it is not due to the dims, it is met again
                tracing.debug(1, f"{self._source.name}: compiled for each shape: {error}")
                self._is_dynamic = False
            else:
                with suppress(DimError):  # what the form requires may not hold for these dims
                    return form, form.run(stored, reports)
        form = self._form(inputs, {})
        return form, form.run(stored, reports)

    def _key(self, inputs: Given, shapes: Mapping[str, Any]) -> Hashable:
        return tuple((name, kind(value, shapes.get(name))) for name, value in inputs.items())

    def _form(self, inputs: Given, shapes: Mapping[str, Any]) -> Form:
        key = self._key(inputs, shapes)
        form = self._forms.get(key)
        if form is None:
            form = Form(self._source, Declared(inputs, shapes), self._options)
            form.prepare()
            if len(self._forms) >= MAX_FORMS:
                self._forms.popitem(last=False)
            self._forms[key] = form
        self._forms.move_to_end(key)
        return form

    def _open_shapes(self, inputs: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """The shapes of inputs that leave dims open: names in the places of these."""
        shapes = {}
        for declared in self._source.inputs:
            value = inputs[declared.name]
            dims = _dims(declared)
            if isinstance(value, np.ndarray) and dims is not None and 0 not in value.shape:
                shapes[declared.name] = tuple(dims)
        return shapes


def _dims(declared: ValueInfoProto) -> list[int | str] | None:
    """The shape of an input: a dim that is open has its name, or one made up; None: no rank."""
    type_ = declared.type.tensor_type
    if not type_.HasField("shape"):
        return None
    return [
        d.dim_value if _is_fixed(d) else d.dim_param or f"{declared.name}.{k}"
        for k, d in enumerate(type_.shape.dim)
    ]


# Zero is a size as well; only what is below it stands for an open dim.
def _is_fixed(dim: TensorShapeProto.Dimension) -> bool:
    """Has it a size? Some exporters write -1 for a dim that is open."""
    return dim.HasField("dim_value") and dim.dim_value >= 0


class Declared(NamedTuple):
    """The inputs of a form: arrays for their kinds, and shapes for those with open dims."""

    given: Mapping[str, Any]
    shapes: Mapping[str, tuple[Any, ...]]

    def record(self, graph: Graph) -> dict[str, Any]:
        """An Input of `graph` for each array, in the structures that the arrays lie in."""
        return {name: self._value(graph, name, value) for name, value in self.given.items()}

    def _value(self, graph: Graph, name: str, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, list):
            return [self._value(graph, f"{name}[{k}]", item) for k, item in enumerate(value)]
        number = NARROW_NUMBERS.get(value.dtype)
        shape = self.shapes.get(name, value.shape)
        tensor: Tensor = graph.tensor(shape, value.dtype if number is None else np.uint8, name)
        return tensor if number is None else Coded(tensor, number)


def kind(value: Any, shape: tuple[Any, ...] | None) -> Hashable:
    """What of an input a compiled form depends on."""
    if isinstance(value, list):
        return tuple(kind(item, None) for item in value)
    return None if value is None else (value.dtype, shape or value.shape)


def kinds(values: Iterable[Any]) -> Hashable | None:
    """Dtypes and shapes of arrays in order; None where one is no plain array."""
    pairs = []
    for value in values:
        if value.__class__ is not np.ndarray:
            return None
        pairs.append((value.dtype, value.shape))
    return tuple(pairs)


class Quick(NamedTuple):
    """What is left of a call whose inputs are of a kind that was met: one program, and names."""

    program: Program
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, args: Sequence[Array]) -> dict[str, Array]:
        """The outputs for arrays in the order of the names."""
        arrays = dict(zip(self.names, args, strict=True))
        results = self.program.piece.run(
            {name: arrays[label] for name, label in self.program.inputs}
        )
        return {
            name: results.at(result)
            for name, result in zip(self.outputs, self.program.results, strict=True)
        }


# --- what a call may give -------------------------------------------------------------------------


def checked(name: str, value: Any, type_: TypeProto) -> Any:
    """An input as arrays of the declared dtypes and shapes; raises InputError."""
    match type_.WhichOneof("value"):
        case "optional_type":
            return None if value is None else checked(name, value, type_.optional_type.elem_type)
        case "sequence_type":
            if not isinstance(value, list | tuple):
                raise InputError(f"{name}: takes a list, got a {type(value).__name__}")
            inner = type_.sequence_type.elem_type
            return [checked(f"{name}[{k}]", item, inner) for k, item in enumerate(value)]
        case "tensor_type":
            return _tensor(name, value, type_)
    kind = type_.WhichOneof("value")
    if kind is None:
        raise OnnxError(f"input {name!r}: the model gives it no type; the file is damaged")
    raise UnsupportedError(f"input {name!r}: {kind} is not supported")


def _tensor(name: str, value: Any, type_: TypeProto) -> Array:
    declared = type_.tensor_type
    if declared.elem_type in NARROW:
        array = np.asarray(value)
        if array.dtype != NARROW[declared.elem_type]:
            raise InputError(
                f"{name}: takes {NARROW[declared.elem_type]}, got {array.dtype}; cast it"
            )
    else:
        try:
            dtype = dtype_of_number(declared.elem_type)
        except UnsupportedError as error:
            raise UnsupportedError(f"input {name!r}: {error}") from None
        array = array_of(value, dtype, name)
    if declared.HasField("shape"):
        _check_shape(name, array, type_)
    return array


def _check_shape(name: str, array: Array, type_: TypeProto) -> None:
    dims = type_.tensor_type.shape.dim
    fits = len(dims) == array.ndim and all(
        d.dim_value == n for d, n in zip(dims, array.shape, strict=True) if _is_fixed(d)
    )
    if not fits:
        raise InputError(f"{name}: takes {type_text(type_)}, got the shape {array.shape}")


def plain_array(name: str, value: Any) -> Array:
    """An array that replaces an initializer."""
    array = np.asarray(value)
    return array if array.dtype in NARROW_NUMBERS else array_of(array, None, name)


def type_text(type_: TypeProto) -> str:
    """A type for a reader: `float32[batch, 3, ?]`."""
    match type_.WhichOneof("value"):
        case "optional_type":
            return f"optional {type_text(type_.optional_type.elem_type)}"
        case "sequence_type":
            return f"list of {type_text(type_.sequence_type.elem_type)}"
        case "tensor_type":
            declared = type_.tensor_type
            try:
                dtype = str(
                    NARROW.get(declared.elem_type) or dtype_of_number(declared.elem_type).name
                )
            except UnsupportedError:
                dtype = f"element type {declared.elem_type}"
            if not declared.HasField("shape"):
                return f"{dtype}[...]"
            dims = [
                str(d.dim_value) if _is_fixed(d) else d.dim_param or "?" for d in declared.shape.dim
            ]
            return f"{dtype}[{', '.join(dims)}]"
    return "nothing"
