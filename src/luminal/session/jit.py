"""`lm.jit`: a function of Tensors, called with NumPy arrays, compiled per kind of its arguments."""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, overload

import numpy as np

from luminal.base import forks
from luminal.base.attribute_reads import Seen, watch, watching
from luminal.base.complex_dtypes import ComplexDType, any_dtype_of, complex_dtype_of
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, InputError
from luminal.base.near_names import explained
from luminal.base.records import dataclass
from luminal.frontend.handle import is_tensor
from luminal.frontend.matrices.matmul import rounding
from luminal.frontend.pointwise.derivatives import differentiable
from luminal.frontend.random.keyed import drawing_in, keyed
from luminal.frontend.scan import Tree, flatten
from luminal.frontend.tensor import Tensor
from luminal.memory.data import any_array_of, is_array, is_list_of_numbers
from luminal.memory.parameter import Parameter
from luminal.memory.row_order import PairsOf
from luminal.memory.state import State
from luminal.runtime.arrays import Array
from luminal.runtime.executable import Executable
from luminal.session.closure import Closed, Recording, values_of
from luminal.session.device_choice import default_device
from luminal.session.eager import recording
from luminal.session.graph import Graph, compile

RECOMPILES_BEFORE_WARNING = 3

Shape = tuple[Any, ...]
Key = Hashable


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One array of a call: where it stands in the arguments, and its value."""

    path: str
    array: Array

    def type(self, shapes: Mapping[str, Shape]) -> tuple[Shape, DType | ComplexDType]:
        """The declared shape, else the array's own, and its dtype."""
        return shapes.get(self.path, self.array.shape), any_dtype_of(self.array)

    @property
    def given(self) -> Array:
        """What a program takes: of complex numbers pairs of floats."""
        kind = complex_dtype_of(self.array)
        return self.array if kind is None else PairsOf(kind).rows(self.array)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One compiled form of the function; `results` are the leaves of what it returns."""

    executable: Executable
    results: tuple[Any, ...]  # a _Name for each Tensor
    tree: Tree
    seen: tuple[Seen, ...]  # attributes that the recording read
    closed: Mapping[str, Closed]

    def holds(self) -> bool:
        """Would recording the function again give the same?"""
        return all(watched.holds() for watched in self.seen)


# A program that was recorded from a module holds while the attributes it read are the same:
# compared at each call, by identity (numbers by value), 1 us a module. Values of Parameters and
# States are no part of it, since each run reads them.
class _Forms:
    """What is compiled of one function: entries by kinds of arguments, the latest used last."""

    def __init__(self) -> None:
        self.entries: OrderedDict[Key, list[_Entry]] = OrderedDict()
        self.lengths: defaultdict[Key, list[tuple[Shape, ...]]] = defaultdict(list)
        self.lock = forks.rlock()

    def __len__(self) -> int:
        return sum(map(len, self.entries.values()))

    def find(self, key: Key) -> _Entry | None:
        """The entry that holds now."""
        entry = next((e for e in self.entries.get(key, ()) if e.holds()), None)
        if entry is not None:
            self.entries.move_to_end(key)
        return entry

    def add(self, key: Key, entry: _Entry, most: int) -> None:
        """Keeps an entry, and at most `most` of them."""
        while self.entries and len(self) >= most:
            self.entries.popitem(last=False)
        self.entries.setdefault(key, []).append(entry)
        self.entries.move_to_end(key)


class Jitted:
    """A compiled function, method or module; see `jit`. `entries` counts what is compiled now."""

    def __init__(
        self,
        function: Callable[..., Any],
        shapes: Mapping[str, Shape],
        static: Sequence[str],
        max_entries: int,
        options: Mapping[str, Any],
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._name = getattr(function, "__name__", None) or type(function).__name__
        self._signature = _signature(function)
        self._shapes = {path: tuple(shape) for path, shape in shapes.items()}
        self._static = frozenset(static)
        self._max_entries = max_entries
        self._options = dict(options)
        self._forms = _Forms()
        self._receiver: Any = getattr(function, "__self__", None)  # of a method
        self._methods: dict[int, tuple[Callable[[], Any], _Forms]] = {}  # by receiver
        self._check_names(static, shapes)

    def _check_names(self, static: Sequence[str], shapes: Mapping[str, Shape]) -> None:
        unknown = [name for name in static if name not in self._signature.parameters]
        if unknown:
            raise InputError(f"jit: static {unknown} are no parameters of {self._name}")
        unknown = [path for path in shapes if _root(path) not in self._signature.parameters]
        if unknown:
            raise InputError(
                f"jit: shapes {unknown} are no parameters of {self._name}; write x, or "
                "x[0]['h'] for a part of x"
            )

    @property
    def entries(self) -> int:
        """The number of compiled forms that are kept."""
        return len(self._forms)

    def __repr__(self) -> str:
        forms = f"{self.entries} compiled form{'' if self.entries == 1 else 's'}"
        kept = [*self._forms.entries.values()]
        latest = f", the latest {kept[-1][-1].executable.interface}" if kept else ""
        names = [p.replace(annotation=p.empty) for p in self._signature.parameters.values()]
        return f"<jit of {self._name}{inspect.Signature(names)}: {forms}{latest}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a jitted function has no attribute {name!r}")
        return getattr(self._function, name)

    def __get__(self, receiver: Any, owner: type | None = None) -> Jitted:
        """The function bound to a receiver, as a method: each receiver has compiled forms of its
        own.
        """
        if receiver is None or not inspect.isfunction(self._function):
            return self
        bound: Jitted = object.__new__(type(self))
        vars(bound).update(vars(self))
        bound._function = self._function.__get__(receiver)
        bound._signature = self._method_signature
        bound._receiver = receiver
        bound._forms = self._forms_of(receiver)
        return bound

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"jit: compiled forms of {self._name} cannot be pickled or copied; pickle or copy what "
            "was compiled (f.__wrapped__), and call lm.jit on it there"
        )

    @functools.cached_property
    def _method_signature(self) -> inspect.Signature:
        first, *others = self._signature.parameters.values()
        takes_all = first.kind is inspect.Parameter.VAR_POSITIONAL
        return self._signature.replace(parameters=[first, *others] if takes_all else others)

    def _forms_of(self, receiver: Any) -> _Forms:
        """The forms of a receiver; they go when it goes."""
        kept = self._methods.get(id(receiver))
        if kept is not None:
            return kept[1]
        number, methods = id(receiver), self._methods
        try:
            reference: Any = weakref.ref(receiver, lambda _: methods.pop(number, None))
        except TypeError:  # kept for good, so that its id stays its own
            reference = functools.partial(lambda x: x, receiver)
        return methods.setdefault(number, (reference, _Forms()))[1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result with NumPy arrays for its Tensors.

        Called with Tensors it is the plain function, which records into their graph.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        static: dict[str, Any] = {}
        dynamic: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            is_static = name in self._static or isinstance(value, bool | str)
            (static if is_static else dynamic)[name] = value
        # What decides a program (shapes, dtypes, static values, the device, autocast, no_grad) is
        # the key; values of arrays never are. A Tensor among the arguments means that the caller
        # records: then this is the function.
        values, tree = flatten(dynamic, is_list_of_numbers)
        # Inside of another recording it is a part of that, not a program of its own.
        if any(map(is_tensor, values)):
            watch(self._receiver)
            return self._function(*args, **kwargs)
        leaves = _leaves(dynamic, values, tree)
        types = tuple(leaf.type(self._shapes) for leaf in leaves)
        kind = (_static_key(static), tree, default_device(), rounding(), differentiable.get())
        forms = self._forms
        # Threads that call at once compile a form once.
        with forms.lock:
            entry = forms.find((kind, types))
            if entry is None:
                if (kind, types) not in forms.entries:
                    self._warn_of_lengths(kind, leaves, types)
                entry = self._compile(static, leaves, tree)
                forms.add((kind, types), entry, self._max_entries)
        arrays = {leaf.path: leaf.given for leaf in leaves}
        if entry.closed:
            arrays |= values_of(entry.closed)
        results = entry.executable(arrays)
        leaves_of_result = [results[r.name] if isinstance(r, _Name) else r for r in entry.results]
        return entry.tree.build(leaves_of_result)

    def _compile(self, static: Mapping[str, Any], leaves: list[_Leaf], tree: Tree) -> _Entry:
        graph = Recording(self._name)
        tensors = []
        for leaf in leaves:
            shape, dtype = leaf.type(self._shapes)
            tensors.append(graph.tensor(shape, dtype, leaf.path))
        arguments = {**tree.build(tensors), **static}
        call = self._signature.bind_partial()
        for name in self._signature.parameters:  # BoundArguments keep the signature's order
            if name in arguments:
                call.arguments[name] = arguments[name]
        with recording(graph), keyed(None), drawing_in(None), watching() as watched:
            watch(self._receiver)
            result = self._function(*call.args, **call.kwargs)
        values, result_tree = flatten(result)
        results = tuple(_named_output(graph, value) for value in values)
        if not graph.sinks:
            raise InputError(f"jit: {self._name} returns no Tensor and assigns no State")
        executable = compile(graph, **self._options)
        graph.done = True
        return _Entry(executable, results, result_tree, watched.snapshot(), graph.closed)

    def _warn_of_lengths(
        self, kind: Key, leaves: list[_Leaf], types: tuple[tuple[Shape, Any], ...]
    ) -> None:
        """Warns on the third recompile for arguments that differ in lengths only."""
        # A loop over growing lengths would compile for ever without a word; the text to write is
        # known here.
        ranks = tuple((len(shape), dtype) for shape, dtype in types)
        seen = self._forms.lengths[kind, ranks]
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
            f"jit: {self._name} was compiled {len(seen)} times for new lengths; "
            f"declare the lengths that change, as in @lm.jit(shapes={{{', '.join(declared)}}})",
            stacklevel=3,
        )


class JittedModule(Jitted):
    """A compiled module: called with arrays, else as the module itself, whose attributes it has."""

    def train(self, mode: bool = True) -> JittedModule:
        """Sets the module's mode; it is compiled once for each."""
        self._function.train(mode)  # type: ignore[attr-defined]
        return self

    def eval(self) -> JittedModule:
        """The module's mode for inference."""
        return self.train(False)


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that stands for an output in a result's tree."""

    name: str


@overload
def jit(
    function: Callable[..., Any],
    /,
    *,
    shapes: Mapping[str, Shape] | None = None,
    static: str | Sequence[str] = (),
    max_entries: int = 64,
    **options: Any,
) -> Jitted: ...
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

    `jit(module)` and `@jit` before a method work alike. It is recorded once per shapes and dtypes
    of its arguments, and anew when an attribute of the method's object, or of a module that it
    calls, is another one (`model.eval()`). Called with Tensors it records into their graph.
    Tensors of other graphs that it closes over have the value that is set at each call.
    `shapes`: {"x": ("s", 64)} declares symbolic lengths, by argument or path ("batch['ids']"): one
    program serves them all. `static`: hashable arguments passed on as they are; each value compiles
    anew. So are strings, True and False; other numbers are arrays.
    What it closes over besides Tensors counts as it is when recorded. `options`: `lm.compile`'s.
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
    _check_options(options)
    names = (static,) if isinstance(static, str) else tuple(static)
    kind = JittedModule if hasattr(function, "named_modules") else Jitted
    return kind(function, shapes or {}, names, max_entries, options)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises TypeError for one that `compile` does not take, before anything is recorded."""
    try:
        inspect.signature(compile).bind_partial(None, **options)
    except TypeError as error:
        raise explained(TypeError(f"jit() {error}"), compile, options) from None


def _root(path: str) -> str:
    """The parameter that a path starts with."""
    return path.partition("[")[0]


def _leaves(names: Iterable[str], values: Sequence[Any], tree: Tree) -> list[_Leaf]:
    """The arrays in the arguments of these names, each with its place."""
    parts = zip(names, tree.parts, strict=True)
    paths = [path for name, part in parts for path in part.paths(name)]
    return [_leaf(path, value) for path, value in zip(paths, values, strict=True)]


def _signature(function: Any) -> inspect.Signature:
    """The parameters of a function, or of a module's `forward`."""
    if not callable(function):
        raise InputError(
            f"jit: takes a function, a method or a module, got a {type(function).__name__}"
            + ("; for a Graph there is lm.compile" if isinstance(function, Graph) else "")
        )
    if any(kind.__module__.partition(".")[0] == "torch" for kind in type(function).__mro__):
        raise InputError(
            f"jit: {type(function).__name__} is a module of PyTorch; write it with luminal.nn, "
            "whose load_state_dict takes module.state_dict()"
        )
    try:
        return inspect.signature(getattr(function, "forward", function))
    except ValueError:
        raise InputError(f"jit: {function!r} has no signature; wrap it in a def") from None


def _leaf(path: str, value: Any) -> _Leaf:
    if isinstance(value, Parameter | State) or callable(value):
        raise InputError(
            f"jit: {path} is a {type(value).__name__}; pass arrays, and let the function close "
            "over everything else or name it in static=(...)"
        )
    try:
        return _Leaf(path, any_array_of(value, None, f"jit: {path}"))
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
