"""`lm.jit`: a function of Tensors, called with NumPy arrays, compiled per kind of its arguments."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from luminal.dtypes import DType, dtype_of
from luminal.errors import DTypeError, InputError
from luminal.frontend.tensor import Tensor
from luminal.frontend.tree import Tree, flatten
from luminal.hlir.data import array_of, is_array
from luminal.hlir.state import Parameter, State
from luminal.runtime.arrays import Array
from luminal.runtime.executable import Executable
from luminal.session import Graph, compile, recording

RECOMPILES_BEFORE_WARNING = 3

Shape = tuple[Any, ...]
Key = Hashable


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One array of a call: where it stands in the arguments, and its value."""

    path: str
    array: Array

    def type(self, shapes: Mapping[str, Shape]) -> tuple[Shape, DType]:
        """The declared shape, else the array's own, and its dtype."""
        return shapes.get(self.path, self.array.shape), dtype_of(self.array)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One compiled form of the function; `results` are the leaves of what it returns."""

    executable: Executable
    results: tuple[Any, ...]  # a _Name for each Tensor
    tree: Tree


class Jitted:
    """A compiled function; see `jit`. `entries` counts what is compiled now."""

    def __init__(
        self,
        function: Callable[..., Any],
        shapes: Mapping[str, Shape],
        static: Sequence[str],
        max_entries: int,
        options: Mapping[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = inspect.signature(function)
        self._shapes = {path: tuple(shape) for path, shape in shapes.items()}
        self._static = frozenset(static)
        self._max_entries = max_entries
        self._options = dict(options)
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._lengths: defaultdict[Key, list[tuple[Shape, ...]]] = defaultdict(list)
        self._lock = threading.RLock()
        unknown = [name for name in static if name not in self._signature.parameters]
        if unknown:
            raise InputError(f"jit: static {unknown} are no parameters of {function.__name__}")
        unknown = [path for path in shapes if _root(path) not in self._signature.parameters]
        if unknown:
            raise InputError(
                f"jit: shapes {unknown} are no parameters of {function.__name__}; write x, or "
                "x[0]['h'] for a part of x"
            )

    @property
    def entries(self) -> int:
        """How many compiled forms are kept."""
        return len(self._entries)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result with NumPy arrays for its Tensors."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        static = {n: v for n, v in bound.arguments.items() if n in self._static}
        dynamic = {n: v for n, v in bound.arguments.items() if n not in self._static}
        leaves, tree = _leaves(dynamic)
        types = tuple(leaf.type(self._shapes) for leaf in leaves)
        kind = (_static_key(static), tree)
        with self._lock:
            entry = self._entries.get((kind, types))
            if entry is None:
                self._warn_of_lengths(kind, leaves, types)
                entry = self._compile(static, leaves, tree)
                while len(self._entries) >= self._max_entries:
                    self._entries.popitem(last=False)
                self._entries[kind, types] = entry
            self._entries.move_to_end((kind, types))
        results = entry.executable({leaf.path: leaf.array for leaf in leaves})
        values = [results[r.name] if isinstance(r, _Name) else r for r in entry.results]
        return entry.tree.build(values)

    def _compile(self, static: Mapping[str, Any], leaves: list[_Leaf], tree: Tree) -> _Entry:
        graph = Graph(self._function.__name__)
        tensors = []
        for leaf in leaves:
            shape, dtype = leaf.type(self._shapes)
            tensors.append(graph.tensor(shape, dtype, leaf.path))
        arguments = {**tree.build(tensors), **static}
        call = self._signature.bind_partial()
        for name in self._signature.parameters:  # BoundArguments keep the signature's order
            if name in arguments:
                call.arguments[name] = arguments[name]
        with recording(graph):
            result = self._function(*call.args, **call.kwargs)
        values, result_tree = flatten(result)
        results = tuple(_named_output(graph, value) for value in values)
        return _Entry(compile(graph, **self._options), results, result_tree)

    def _warn_of_lengths(
        self, kind: Key, leaves: list[_Leaf], types: tuple[tuple[Shape, DType], ...]
    ) -> None:
        """On the third recompile for arguments that differ in lengths only."""
        ranks = tuple((len(shape), dtype) for shape, dtype in types)
        seen = self._lengths[kind, ranks]
        seen.append(tuple(shape for shape, _ in types))
        if len(seen) != RECOMPILES_BEFORE_WARNING + 1:
            return
        letters = iter("stuvwxyz")
        declared = []
        for leaf, shapes in zip(leaves, zip(*seen, strict=True), strict=True):
            varies = [len(set(extents)) > 1 for extents in zip(*shapes, strict=True)]
            if any(varies):
                pairs = zip(varies, shapes[0], strict=True)
                text = ", ".join(repr(next(letters, "n")) if v else str(n) for v, n in pairs)
                declared.append(f'"{leaf.path}": ({text},)')
        warnings.warn(
            f"jit: {self._function.__name__} was compiled {len(seen)} times for new lengths; "
            f"declare the lengths that change, as in @lm.jit(shapes={{{', '.join(declared)}}})",
            stacklevel=3,
        )


@dataclass(frozen=True, slots=True)
class _Name:
    """Stands for an output in a result's tree."""

    name: str


@overload
def jit(function: Callable[..., Any], /) -> Jitted: ...
@overload
def jit(
    *,
    shapes: Mapping[str, Shape] | None = None,
    static: str | Sequence[str] = (),
    max_entries: int = 64,
    **options: Any,
) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    shapes: Mapping[str, Shape] | None = None,
    static: str | Sequence[str] = (),
    max_entries: int = 64,
    **options: Any,
) -> Any:
    """Compiles a function of Tensors; calls take and return nested tuples, lists, dicts of arrays.

    It is recorded once per shapes and dtypes of its arguments. `shapes`: {"x": ("s", 64)} declares
    symbolic lengths, by argument or path ("batch['ids']"): one program serves them all. `static`:
    hashable arguments passed on as they are; each value compiles anew. `options`: `lm.compile`'s.
    """
    if function is None:
        return functools.partial(
            jit_function, shapes=shapes, static=static, max_entries=max_entries, **options
        )
    return jit_function(function, shapes, static, max_entries, **options)


def jit_function(
    function: Callable[..., Any],
    shapes: Mapping[str, Shape] | None = None,
    static: str | Sequence[str] = (),
    max_entries: int = 64,
    **options: Any,
) -> Jitted:
    """`jit` as a plain function of the function."""
    names = (static,) if isinstance(static, str) else tuple(static)
    return Jitted(function, shapes or {}, names, max_entries, options)


def _root(path: str) -> str:
    """The parameter that a path starts with."""
    return path.partition("[")[0]


def _leaves(arguments: dict[str, Any]) -> tuple[list[_Leaf], Tree]:
    """The arrays in the arguments, named by where they stand."""
    values, tree = flatten(arguments)
    parts = zip(arguments, tree.parts, strict=True)
    paths = [path for name, part in parts for path in part.paths(name)]
    return [_leaf(path, value) for path, value in zip(paths, values, strict=True)], tree


def _leaf(path: str, value: Any) -> _Leaf:
    if isinstance(value, Tensor | Parameter | State) or callable(value):
        raise InputError(
            f"jit: {path} is a {type(value).__name__}; pass arrays, and let the function close "
            "over everything else or name it in static=(...)"
        )
    try:
        return _Leaf(path, array_of(value, None, f"jit: {path}"))
    except DTypeError:
        if is_array(value):
            raise
        raise DTypeError(
            f"jit: {path}: {value!r} is not an array; name it in static=(...)"
        ) from None


def _static_key(static: Mapping[str, Any]) -> Key:
    for name, value in static.items():
        try:
            hash(value)
        except TypeError:
            kind = type(value).__name__
            raise InputError(
                f"jit: static {name}: a {kind} is not hashable; pass a tuple"
            ) from None
    return tuple((name, type(value), value) for name, value in static.items())


def _named_output(graph: Graph, value: Any) -> Any:
    """Makes a Tensor of the result an output; arrays and numbers are returned as they are."""
    if not isinstance(value, Tensor):
        return np.asarray(value) if isinstance(value, np.generic) else value
    name = f"out{len(graph.sinks)}"
    graph.output(value, name)
    return _Name(name)
