"""Modules that hold parts by number or by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from luminal.base.errors import InputError
from luminal.memory.parameter import Parameter
from luminal.nn.module import Module

T = TypeVar("T")


class _Parts(Module, Generic[T]):
    """Parts that are attributes, too: `container.name` reads one, assigning puts one there."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module | Parameter):  # as `add_module` and `setattr` of PyTorch's
            self.set_part(name, value)
        else:
            super().__setattr__(name, value)

    if not TYPE_CHECKING:  # or every attribute would be Any

        def __getattr__(self, name: str) -> Any:
            """A part by its name."""
            # By `vars`: pickle asks for attributes of an object that has none yet, and asking the
            # object itself for `_parts` would come back here for ever.
            if "_parts" in vars(self) and not name.startswith("_"):
                for path, part in self.parts():
                    if path == name:
                        return part
            return super().__getattr__(name)


class _Numbered(_Parts[T]):
    """Parts named "0", "1", ..."""

    def __init__(self, parts: Iterable[T] = ()) -> None:
        self._parts = list(parts)

    def parts(self) -> Iterable[tuple[str, T]]:
        """The parts by number."""
        return ((str(number), part) for number, part in enumerate(self._parts))

    def set_part(self, name: str, part: Any) -> None:
        """Puts `part` in the place of the one of this number, or behind the last one."""
        if name.isdigit() and int(name) < len(self._parts):
            self._parts[int(name)] = part
        elif name == str(len(self._parts)):
            self._parts.append(part)
        else:
            raise InputError(
                f"{type(self).__name__}: a part called {name!r}; names are the numbers 0 to "
                f"{len(self._parts)}, where the last one adds a part"
            )

    def append(self, part: T) -> Self:
        """Adds a part at the end; gives itself."""
        self._parts.append(part)
        return self

    def extend(self, parts: Iterable[T]) -> Self:
        """Adds several at the end; gives itself."""
        self._parts.extend(parts)
        return self

    __iadd__ = extend

    def insert(self, index: int, part: T) -> None:
        """Adds a part before the one at `index`."""
        self._parts.insert(index, part)

    def __iter__(self) -> Iterator[T]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> Self: ...
    def __getitem__(self, number: int | slice) -> T | Self:
        """The part of a number; of a slice a container of the parts in it."""
        if not isinstance(number, slice):
            return self._parts[number]
        chosen = copy(self)
        chosen._parts = self._parts[number]
        return chosen

    def __setitem__(self, number: int, part: T) -> None:
        self._parts[number] = part

    def __delitem__(self, number: int | slice) -> None:
        del self._parts[number]


class _Named(_Parts[T]):
    """Parts by names of one's own."""

    def __init__(self, parts: Mapping[str, T] | Iterable[tuple[str, T]] = ()) -> None:
        self._parts = dict(parts)

    def parts(self) -> Iterable[tuple[str, T]]:
        """The parts by name."""
        return self._parts.items()

    def set_part(self, name: str, part: Any) -> None:
        """Puts `part` under this name."""
        self._parts[name] = part

    def keys(self) -> Iterable[str]:
        """The names of the parts, in order."""
        return self._parts.keys()

    def values(self) -> Iterable[T]:
        """The parts, in order."""
        return self._parts.values()

    def items(self) -> Iterable[tuple[str, T]]:
        """The names and the parts, in order."""
        return self._parts.items()

    def update(self, parts: Mapping[str, T]) -> None:
        """Adds or replaces parts."""
        self._parts.update(parts)

    def pop(self, name: str) -> T:
        """Takes a part out."""
        return self._parts.pop(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __getitem__(self, name: str) -> T:
        return self._parts[name]

    def __setitem__(self, name: str, part: T) -> None:
        self._parts[name] = part


class ModuleList(_Numbered[Module]):
    """Modules by number, in order."""


class ModuleDict(_Named[Module]):
    """Modules by name, in the order they were put in."""


class ParameterList(_Numbered[Parameter]):
    """Parameters by number, in order."""


class ParameterDict(_Named[Parameter]):
    """Parameters by name, in the order they were put in."""


class Sequential(ModuleList):
    """Modules applied one after the other; of a mapping, by its names."""

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        first = modules[0] if len(modules) == 1 else None
        # Names are kept beside the parts, so that numbers index them either way.
        self._names = [*first] if isinstance(first, Mapping) else []
        super().__init__(first.values() if isinstance(first, Mapping) else modules)  # type: ignore[arg-type]

    def parts(self) -> Iterable[tuple[str, Module]]:
        """The modules by name, or by number."""
        return ((self._name(number), part) for number, part in enumerate(self._parts))

    def _name(self, number: int) -> str:
        return self._names[number] if number < len(self._names) else str(number)

    def set_part(self, name: str, part: Any) -> None:
        """Puts `part` in the place of the module of this name, or behind the last one."""
        names = [key for key, _ in self.parts()]
        if name in names:
            self._parts[names.index(name)] = part
        else:
            self._names, self._parts = [*names, name], [*self._parts, part]

    def __getitem__(self, number: Any) -> Any:
        """The module of a number; of a slice a Sequential of the modules in it."""
        chosen = super().__getitem__(number)
        if isinstance(number, slice):
            chosen._names = [name for name, _ in self.parts()][number] if self._names else []
        return chosen

    def __delitem__(self, number: int | slice) -> None:
        if self._names:
            self._names = [name for name, _ in self.parts()]
            del self._names[number]
        super().__delitem__(number)

    def forward(self, x: Any) -> Any:
        """The last module's result."""
        for module in self:
            x = module(x)
        return x
