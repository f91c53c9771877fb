"""Module: a part of a model that owns Parameters and other modules, named as PyTorch names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from luminal.dtypes import dtype_of
from luminal.errors import DTypeError, LoadError
from luminal.frontend.data import preserved
from luminal.frontend.handle import Array
from luminal.frontend.tensor import Tensor
from luminal.hlir.state import Parameter

# The names of all Parameters below the module that was called first, during its call.
_paths: ContextVar[Mapping[Parameter, str] | None] = ContextVar("luminal_nn_paths", default=None)


class Module:
    """Base of models and their layers.

    Attributes that hold a Parameter or a Module are its parts; a subclass writes `forward` and
    reads a Parameter there with `self.read(self.weight, x)`.
    """

    ignored: tuple[str, ...] = ()
    """Names that a PyTorch state_dict may hold for this module and that are not used."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module records."""
        raise NotImplementedError(f"{type(self).__name__}: write forward(self, ...)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _paths.get() is not None:
            return self.forward(*args, **kwargs)
        names: dict[Parameter, str] = {}
        for path, parameter in self.named_parameters():
            names.setdefault(parameter, path)  # tied: named by the first path
        token = _paths.set(names)
        try:
            return self.forward(*args, **kwargs)
        finally:
            _paths.reset(token)

    def read(self, parameter: Parameter, x: Tensor) -> Tensor:
        """`parameter` in x's graph: one Weight, named by its path from the outermost module."""
        names = _paths.get() or {}
        return x.graph.weight_of(parameter, names.get(parameter))

    # --- parts

    def children(self) -> Iterator[tuple[str, Module]]:
        """The modules among the attributes, in the order they were set."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, with their paths."""
        yield prefix, self
        for name, child in self.children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Every Parameter with its path; a tied one once for each path."""
        for path, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter):
                    yield (f"{path}.{name}" if path else name), value

    def parameters(self) -> list[Parameter]:
        """Every Parameter once."""
        return list(dict.fromkeys(parameter for _, parameter in self.named_parameters()))

    # --- values

    def state_dict(self) -> dict[str, Array]:
        """The value of every Parameter by path; raises ShapeError if one was never set."""
        return {path: parameter.numpy() for path, parameter in self.named_parameters()}

    def load_state_dict(
        self, state: Mapping[str, Any], strict: bool = True, adopt_dtypes: bool = False
    ) -> None:
        """Sets every Parameter from arrays by path; read-only arrays are kept without a copy.

        `strict=False` allows missing and unexpected names. `adopt_dtypes` gives Parameters the
        arrays' dtypes, before any graph uses them; else arrays must convert without loss. Raises
        LoadError that lists what is missing, unexpected or misshapen, and then changes nothing.
        """
        wanted = dict(self.named_parameters())
        self._check_names(wanted, state, strict)
        arrays: dict[Parameter, Array] = {}
        for path, parameter in wanted.items():
            if path in state:
                arrays[parameter] = _fitting(path, parameter, state[path], adopt_dtypes)
        for parameter, array in arrays.items():
            parameter.dtype = dtype_of(array)
            parameter.set(array)

    def _check_names(
        self, wanted: Mapping[str, Parameter], state: Mapping[str, Any], strict: bool
    ) -> None:
        given = {parameter for path, parameter in wanted.items() if path in state}
        missing = [path for path, parameter in wanted.items() if parameter not in given]
        unused = {
            f"{path}.{name}" if path else name
            for path, module in self.named_modules()
            for name in module.ignored
        }
        unexpected = [name for name in state if name not in wanted and name not in unused]
        problems = []
        if strict and missing:
            problems.append(f"missing: {_listed(missing)}")
        if strict and unexpected:
            problems.append(f"unexpected: {_listed(unexpected)}")
        for path, parameter in wanted.items():
            shape = getattr(state.get(path), "shape", parameter.shape)
            if tuple(shape) != parameter.shape:
                problems.append(f"{path}: expected shape {parameter.shape}, got {tuple(shape)}")
        if problems:
            name = type(self).__name__
            raise LoadError(f"{name}: the state_dict does not fit; {'; '.join(problems)}")


def _fitting(path: str, parameter: Parameter, value: Any, adopt_dtype: bool) -> Array:
    """`value` as an array of the Parameter's dtype, or of its own if that is adopted."""
    try:
        array = preserved(path, value, parameter.dtype if not adopt_dtype else dtype_of(value))
    except DTypeError as error:
        raise LoadError(str(error)) from None
    if array.shape != parameter.shape:
        raise LoadError(f"{path}: expected shape {parameter.shape}, got {array.shape}")
    return array


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


class ModuleList(Module):
    """Modules by number."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._modules = list(modules)

    def children(self) -> Iterator[tuple[str, Module]]:
        """The modules, named "0", "1", ..."""
        return ((str(number), module) for number, module in enumerate(self._modules))

    def append(self, module: Module) -> None:
        """Adds a module at the end."""
        self._modules.append(module)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, number: int) -> Module:
        return self._modules[number]


class Sequential(ModuleList):
    """Modules applied one after the other."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        """The last module's result."""
        for module in self:
            x = module(x)
        return x
