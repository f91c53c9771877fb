"""Module: a part of a model that owns Parameters and other modules, named as PyTorch names them."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar, overload

from luminal.base import lines
from luminal.base.attribute_reads import watch
from luminal.base.dtypes import (
    DType,
    bfloat16,
    dtype_of,
    float8_e4m3fn,
    float16,
    float32,
    float64,
    int8,
)
from luminal.base.errors import DTypeError, InputError, LuminalError
from luminal.base.generator import checked_seed
from luminal.frontend.foreign import absent, type_and_device
from luminal.frontend.graph import Recorder, parameter_names, recording_into
from luminal.frontend.handle import Array, Pair, is_tensor
from luminal.frontend.matrices.packed import Packed
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.nn import buffers, loading
from luminal.nn.from_torch import twin
from luminal.nn.init import DrawnParameter
from luminal.nn.loading import Holder
from luminal.nn.misuse import NoForwardError, no_tensor, with_article
from luminal.nn.packed_sequence import PackedSequence

PLAIN = (bool, int, float, str, tuple, type(None))
A = TypeVar("A")
Self = TypeVar("Self", bound="Module")


class Module:
    """Base of models and their layers.

    Attributes that hold a Parameter, a State or a Module are its parts; a subclass writes
    `forward`, where Parameters and States are as Tensors of the arguments' graph. New
    modules are in training mode, as PyTorch's; `eval()` is for inference.
    """

    training = True
    compute_dtype: DType | None = None
    """What factors of products with Parameters are rounded to, by `rounded`; None: nothing."""
    optional: tuple[str, ...] = ()
    """Names of its own that a state_dict may lack (PyTorch's older ones do)."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module records."""
        kind = type(self).__name__
        names = [name for cls in type(self).__mro__ if _is_of_users(cls) for name in vars(cls)]
        like = get_close_matches("forward", names, 1)
        has = f" (it has {like[0]!r})" if like else ""
        raise NoForwardError(
            f"{kind}: has no forward{has}, so it cannot be called; write "
            f"def forward(self, ...) in class {kind}"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outer = parameter_names.get()
        if outer is not None:  # a module around this one has named them
            here = lines.calling(outer.get(self, type(self).__name__), type(self))
            try:
                return self.forward(*args, **kwargs)
            except LuminalError as error:
                error.__dict__.setdefault("module", self)  # the innermost, whose path is said
                raise
            finally:
                lines.now.reset(here)
        names = _names_below(self)
        watch(self)
        graph = _graph_of([*args, *kwargs.values()])
        token, here = parameter_names.set(names), lines.calling(names[self], type(self))
        try:
            with nullcontext() if graph is None else recording_into(graph):
                return self.forward(*args, **kwargs)
        except LuminalError as error:
            self._place(error)
            raise
        finally:
            lines.now.reset(here)
            parameter_names.reset(token)

    def _place(self, error: LuminalError) -> None:
        """Adds to the text of an error the path of the module whose forward raised it, and the
        user's line.
        """
        module, within = error.__dict__.pop("module", self), type(self).__name__
        path = next((path for path, below in self.named_modules() if below is module), "")
        if isinstance(error, KeyError) or not error.args or not (path or _is_users(module)):
            return
        where = f"in {path}, {with_article(module)} of {within}" if path else f"in {within}"
        where += f", at {error.line}" if error.line is not None else ""
        error.args = (f"{error.args[0]} ({where})", *error.args[1:])

    @overload
    def read(self, parameter: Parameter, x: Tensor) -> Tensor: ...
    @overload
    def read(self, parameter: Parameter | None, x: Tensor) -> Tensor | None: ...
    def read(self, parameter: Parameter | None, x: Tensor) -> Tensor | None:
        """`parameter` in x's graph: one Weight, named by its path from the outermost module."""
        if parameter is None:
            return None
        if not is_tensor(x):
            raise no_tensor(self, x)
        return x.graph.weight_of(parameter)

    # Only what enters a product with a matrix is rounded: norms, rotary positions, attention,
    # recurrences and the residual stream stay float32. That loses less than tensors of bfloat16 do
    # and is as fast, since products are summed in float32 either way.
    def rounded(self, x: Tensor) -> Tensor:
        """x as a factor of a product: with no more precision than `compute_dtype` has, in its own
        dtype. Products of such factors are exact and summed in x's dtype, on machines that
        multiply pairs of bfloat16 by these. For bytes, which want scales, see `product`.
        """
        if self.compute_dtype is None or self.compute_dtype.size == 1:
            return x
        return x.cast(self.compute_dtype).cast(x.dtype)

    def product(self, x: Tensor, parameter: Parameter) -> Tensor:
        """`x @ parameter.mT` of factors that are `rounded`; where `compute_dtype` is one of a byte
        and the Parameter is packed, of its codes and x's (see `luminal.frontend.matrices.packed`).
        """
        by_bytes = self.compute_dtype is not None and self.compute_dtype.size == 1
        if by_bytes and isinstance(parameter, Packed) and is_tensor(x):
            is_int = self.compute_dtype is int8
            return parameter.product(x) if is_int else parameter.block_product(x)
        # Weights lie (out, in), as in PyTorch's files; the transpose is a view that the kernel
        # reads through.
        return self.rounded(x) @ self.rounded(self.read(parameter, x)).mT

    # --- parts

    def __setattr__(self, name: str, value: Any) -> None:
        # A jitted part would be a program of its own inside another recording.
        inner = getattr(value, "__wrapped__", None)
        if isinstance(inner, Module):  # of jit(module): the whole is compiled as one program
            value = inner
        held = vars(self).get(name)
        if isinstance(held, Holder) and not (value is None or isinstance(value, Holder | Module)):
            if not isinstance(held, State):
                raise InputError(
                    f"{type(self).__name__}.{name} is a Parameter, got a {type(value).__name__}; "
                    f"write self.{name}.set(value), or give it an nn.Parameter or lm.State"
                )
            value = buffers.assigned(held, value, type(self).__name__, name)
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # or every attribute would be Any

        def __getattr__(self, name: str) -> Any:
            options = vars(self).get("_options", {})
            if name in options:
                return options[name]
            raise absent(self, name, lambda attribute: False)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Sets attribute `name` to a State of this value; one not `persistent` is no part of files.

        Graphs read it; `None` stays None.
        """
        setattr(self, name, None if tensor is None else buffers.made(tensor, name, persistent))

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Sets the attribute `name` to a Parameter."""
        setattr(self, name, parameter)

    def add_module(self, name: str, module: Module | None) -> None:
        """Sets the attribute `name` to a module."""
        setattr(self, name, module)

    def parts(self) -> Iterable[tuple[str, Any]]:
        """What may be a part of this module, by name: its attributes in the order they were set."""
        return vars(self).items()

    def set_part(self, name: str, part: Any) -> None:
        """Puts `part` where `parts` has another one of this name."""
        setattr(self, name, part)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules right below this one, with their names."""
        return ((name, part) for name, part in self.parts() if isinstance(part, Module))

    def children(self) -> Iterator[Module]:
        """The modules right below this one."""
        return (child for _, child in self.named_children())

    def named_modules(
        self, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with their paths: each once, by its first path, or once
        for each path.
        """
        walk = self._walk(prefix)
        return _first(walk) if remove_duplicate else walk

    def _walk(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, child in self.named_children():
            yield from child._walk(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> list[Module]:
        """This module and all below it, each once."""
        return [module for _, module in self.named_modules()]

    def _named(
        self, *kinds: type, prefix: str = "", recurse: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """The parts of these kinds here and, with `recurse`, below, with all their paths."""
        for path, module in self._walk(prefix) if recurse else [(prefix, self)]:
            for kind in kinds:
                for name, part in module.parts():
                    if isinstance(part, kind):
                        yield (f"{path}.{name}" if path else name), part

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Every Parameter here and, with `recurse`, below, with its path; a tied one by the first
        of its paths, or once for each.
        """
        named = self._named(Parameter, prefix=prefix, recurse=recurse)
        return _first(named) if remove_duplicate else named

    def parameters(self, recurse: bool = True) -> list[Parameter]:
        """Every Parameter of this module and, with `recurse`, of those below it, once."""
        # Not a set: draws are numbered in this order (`initialize`).
        return [parameter for _, parameter in self.named_parameters(recurse=recurse)]

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, State]]:
        """Every State with its path: running statistics, which training assigns."""
        named = self._named(State, prefix=prefix, recurse=recurse)
        return _first(named) if remove_duplicate else named

    def buffers(self, recurse: bool = True) -> list[State]:
        """Every State of this module and, with `recurse`, of those below it, once."""
        return [state for _, state in self.named_buffers(recurse=recurse)]

    def get_submodule(self, target: str) -> Module:
        """The module of a path, this one of the path ""; AttributeError if there is none."""
        module: Any = self
        for name in target.split(".") if target else ():
            module = dict(module.named_children()).get(name)
            if module is None:
                raise AttributeError(f"{type(self).__name__} has no module {target!r}")
        return module  # type: ignore[no-any-return]

    # --- modes

    def train(self: Self, mode: bool = True) -> Self:
        """Sets the mode here and below: graphs recorded from now on are for training, or not."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        """The mode for inference: no dropout, batch norms read their running statistics."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Sets `requires_grad` of all Parameters here and below: are they trained?"""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients that `backward` has found for the Parameters here and below."""
        for parameter in self.parameters():
            parameter.grad = None

    # --- dtypes

    def computing(self: Self, dtype: Any) -> Self:
        """Sets `compute_dtype` here and below, for graphs recorded from now on: a float, or int8 or
        float8_e4m3fn, which are for weights that are packed. Raises DTypeError for another one.
        """
        factors = None if dtype is None else factors_dtype(dtype)
        for module in self.modules():
            module.compute_dtype = factors
        return self

    def to(self: Self, *targets: Any, dtype: Any = None, device: Any = None) -> Self:
        """Gives Parameters and States that hold floats another dtype, or moves all to a device.

        Of another dtype they become other Parameters and States, with rounded values: graphs
        recorded before keep theirs. Raises DTypeError for a dtype that is no float, InputError for
        a device that cannot be used.
        """
        dtype_asked, where = type_and_device(targets, dtype, device)
        if dtype_asked is not None:
            wanted = dtype_of(dtype_asked)
            if not wanted.is_float:
                raise DTypeError(f"{type(self).__name__}.to: {wanted.name} is no float")
            held = dict.fromkeys(held for _, held in self._named(Parameter, State))
            floats = [
                holder for holder in held if holder.dtype.is_float and holder.dtype is not wanted
            ]
            # New holders, not new values: programs that were recorded hold the old ones and stay
            # right.
            self.exchange({holder: holder.rounded(wanted) for holder in floats})
        if where is not None:
            for _, holder in self._held():
                holder.to(where)
        return self

    def cpu(self: Self) -> Self:
        """The module itself: its values lie on the host."""
        return self

    def float(self: Self) -> Self:
        """Casts all that `to(float32)` casts."""
        return self.to(float32)

    def double(self: Self) -> Self:
        """Casts all that `to(float64)` casts."""
        return self.to(float64)

    def half(self: Self) -> Self:
        """Casts all that `to(float16)` casts."""
        return self.to(float16)

    def bfloat16(self: Self) -> Self:
        """Casts all that `to(bfloat16)` casts."""
        return self.to(bfloat16)

    # --- values

    def initialize(self: Self, seed: int) -> Self:
        """Layers' Parameters get new first values, which follow from `seed` and their order alone.

        States get theirs back; a Parameter that a layer of yours made without a draw is kept.
        """
        seed = checked_seed("initialize", seed)
        for number, parameter in enumerate(self.parameters()):
            if isinstance(parameter, DrawnParameter):
                parameter.redraw(seed, number)
        for _, state in self.named_buffers():
            state.reset()
        return self

    def apply(self: Self, function: Callable[[Module], Any]) -> Self:
        """Calls `function` with every module below, then with this one."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    @classmethod
    def from_torch(cls: type[Self], module: Any) -> Self:
        """The twin of a module of PyTorch: containers and layers as there, with equal values.

        Raises InputError that names the first layer without a twin in luminal.nn, or whose twin
        lacks an option that it uses.
        """
        model = twin(module, vars(sys.modules[__package__]))
        if not isinstance(model, cls):
            kind = type(model).__name__
            raise InputError(f"{cls.__name__}.from_torch: got a {kind}; call {kind}.from_torch")
        return model

    def state_dict(self) -> dict[str, Array]:
        """The value of every Parameter and State by path; of a packed Parameter the arrays it lies
        in, by path, kind and name: "0.weight.int8.codes", "0.weight.q4_0.blocks".

        Raises ShapeError if a Parameter has no value.
        """
        return self.state_by(lambda held: held.upcoming())

    def state_by(self, value: Callable[[Holder], Any]) -> dict[str, Any]:
        """The state_dict with what `value` says of Parameters and States that are not packed."""
        arrays: dict[str, Any] = {}
        for path, held in self._held():
            if isinstance(held, Packed):
                arrays |= {f"{path}.{end}": array for end, array in held.data_dict.items()}
            else:
                arrays[path] = value(held)
        return arrays

    def _held(self) -> Iterator[tuple[str, Holder]]:
        """What files hold, by path."""
        for path, held in self._named(Parameter, State):
            if isinstance(held, Parameter) or held.persistent:
                yield path, held

    def load_state_dict(
        self, state: Mapping[str, Any], strict: bool = True, adopt_dtypes: bool = False
    ) -> None:
        """Sets every Parameter and State from arrays by path; read-only arrays are not copied.
        Packed Parameters take the places of what is there; those of this module take what a module
        that was packed alike has in its state_dict.

        `strict=False` allows missing and unexpected names. `adopt_dtypes` gives Parameters the
        arrays' dtypes, and the order of Rows, before any graph uses them; else arrays must convert
        without loss. Raises LoadError that lists what is missing, unexpected or misshapen, and
        then changes nothing.
        """
        wanted: dict[str, Holder] = dict(self._held())
        optional = {
            f"{path}.{name}" if path else name
            for path, module in self.named_modules(remove_duplicate=False)
            for name in module.optional
        }
        name = type(self).__name__
        self.exchange(loading.load(name, wanted, state, optional, strict, adopt_dtypes))

    def exchange(self, replacements: Mapping[Holder, Holder]) -> None:
        """Puts others in the places of Parameters and States; tied ones stay tied."""
        for module in self.modules():
            # A copy, since `set_part` changes what is walked.
            for name, part in [*module.parts()]:
                if isinstance(part, Holder) and part in replacements:
                    module.set_part(name, replacements[part])

    def __repr__(self) -> str:
        return f"{self._tree()}  # {self._summary()}"

    def _summary(self) -> str:
        """How much there is below, and the mode: what a module as a whole is asked for."""
        parameters = self.parameters()
        counts = [math.prod(parameter.shape) for parameter in parameters]
        size = sum(
            n * parameter.dtype.size for n, parameter in zip(counts, parameters, strict=True)
        )
        empty = sum(not parameter.has_value for parameter in parameters)
        modes = [module.training for module in self.modules()]
        mode = "training" if all(modes) else "partly training" if any(modes) else "eval"
        told = f"{sum(counts):,} parameters, {size:,} bytes, {mode} mode"
        return told + (f", {empty} of {len(parameters)} without a value" if empty else "")

    def _tree(self) -> str:
        held_here = [
            f"{name} {part.dtype.short}{list(part.shape)}"
            for name, part in self.parts()
            if isinstance(part, Parameter)
        ]
        rows = [
            f"({name}): {child._tree()}".replace("\n", "\n  ")
            for name, child in self.named_children()
        ]
        inside = (
            ", ".join(held_here) + "".join(f"\n  {row}" for row in rows) + ("\n" if rows else "")
        )
        return f"{type(self).__name__}({inside})"


def remember_options(classes: Iterable[type]) -> None:
    """Has layers keep the plain arguments of their constructors, which PyTorch's have as attributes
    (`in_features`, `reduction`), where they have no attribute of that name.
    """
    kinds = {base for kind in classes for base in kind.__mro__ if issubclass(base, Module)}
    for kind in kinds - {Module}:
        if "__init__" in vars(kind):
            setattr(kind, "__init__", _remembering(vars(kind)["__init__"]))  # noqa: B010


def _remembering(init: Callable[..., None]) -> Callable[..., None]:
    parameters = signature(init)

    @wraps(init)
    def calling(self: Module, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        bound = parameters.bind(self, *args, **kwargs)
        bound.apply_defaults()
        plain = {k: v for k, v in bound.arguments.items() if isinstance(v, PLAIN)}
        vars(self)["_options"] = vars(self).get("_options", {}) | plain

    return calling


def _first(named: Iterable[tuple[str, A]]) -> Iterator[tuple[str, A]]:
    """Each part by the first of its paths."""
    met = set[A]()
    for path, part in named:
        if part not in met:
            met.add(part)
            yield path, part


def _is_users(module: Module) -> bool:
    return _is_of_users(type(module))


def _is_of_users(kind: type) -> bool:
    return not kind.__module__.startswith(("luminal.", "builtins"))


def _names_below(module: Module) -> dict[Any, str]:
    """What Parameters and modules here and below are called, by their first paths: only the
    outermost call walks the tree.
    """
    names: dict[Any, str] = {}
    for path, below in module.named_modules():
        kind = type(below).__name__
        names.setdefault(below, f"{path} ({kind})" if path else kind)
        for name, part in below.parts():
            if isinstance(part, Parameter):
                names.setdefault(part, f"{path}.{name}" if path else name)
            elif type(part) is list and part and isinstance(part[0], Module | Parameter):
                _warn_of_list(f"{path}.{name}" if path else name, part[0])
    return names


def _warn_of_list(path: str, part: Any) -> None:
    of, holder = "Modules", "nn.ModuleList"
    if isinstance(part, Parameter):
        of, holder = "Parameters", "nn.ParameterList"
    warnings.warn(
        f"{path} is a plain list of {of}, which are no parts of the module: no optimizer, "
        f"state_dict or train() reaches them; write {holder}(...), or a tuple if that is meant",
        stacklevel=lines.user_level(),
    )


def _graph_of(arguments: Iterable[Any]) -> Recorder | None:
    """The graph of the Tensors among arguments, which may lie in lists, tuples and dicts."""
    recorder: Recorder | None = None
    for x in arguments:
        if isinstance(x, list | tuple | dict):
            graph = _graph_of(x.values() if isinstance(x, dict) else x)
        else:
            x = x.padded if isinstance(x, PackedSequence) else x
            graph = x.graph if is_tensor(x) or isinstance(x, Pair) else None
        # Inside `scan` the body's graph is the deepest; its root is what Parameters are read into.
        if graph is not None and (recorder is None or graph.depth > recorder.depth):
            recorder = graph
    return None if recorder is None else recorder.root


def factors_dtype(dtype: Any) -> DType:
    """What products may be asked to multiply: a float, or int8. DTypeError for anything else."""
    allowed = float32, bfloat16, float16, float64, int8, float8_e4m3fn
    try:
        factors = dtype_of(dtype)
    except DTypeError:
        factors = None
    if factors not in allowed:
        names = ", ".join(allowed_dtype.name for allowed_dtype in allowed)
        raise DTypeError(f"compute_dtype: {dtype!s} is not known; it is one of {names}")
    return factors
