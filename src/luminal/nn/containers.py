"""Modules that hold parts by number or by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from luminal.memory.state import Parameter
from luminal.nn.module import Module

T = TypeVar("T")


class _Numbered(Module, Generic[T]):
    """Parts named "0", "1", ..."""

    def __init__(self, parts: Iterable[T] = ()) -> None:
        self._parts = list(parts)

    def parts(self) -> Iterable[tuple[str, T]]:
        """The parts by number."""
        return ((str(number), part) for number, part in enumerate(self._parts))

    def set_part(self, name: str, part: Any) -> None:
        """Puts `part` at the number that `name` is."""
        self._parts[int(name)] = part

    def append(self, part: T) -> None:
        """Adds a part at the end."""
        self._parts.append(part)

    def extend(self, parts: Iterable[T]) -> None:
        """Adds several at the end."""
        self._parts.extend(parts)

    def insert(self, index: int, part: T) -> None:
        """Adds a part before the one at `index`."""
        self._parts.insert(index, part)

    def __iter__(self) -> Iterator[T]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, number: int) -> T:
        return self._parts[number]

    def __setitem__(self, number: int, part: T) -> None:
        self._parts[number] = part


class _Named(Module, Generic[T]):
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
        """Puts `part` in the place of the module of this name."""
        self._parts[[key for key, _ in self.parts()].index(name)] = part

    if not TYPE_CHECKING:  # or every attribute would be Any

        def __getattr__(self, name: str) -> Any:
            """A module by its name."""
            # By `vars`: pickle asks for attributes of an object that has none yet, and asking the
            # object itself for `_names` would come back here for ever.
            names = vars(self).get("_names", ())
            return self._parts[names.index(name)] if name in names else super().__getattr__(name)

    def forward(self, x: Any) -> Any:
        """The last module's result."""
        for module in self:
            x = module(x)
        return x
