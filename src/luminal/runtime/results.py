"""What a run returns: its outputs by name or by the Tensor that was marked as output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from luminal.errors import InputError
from luminal.hlir.ops import Value
from luminal.runtime.arrays import Array


class Results(Mapping[str, Array]):
    """Arrays by output name; `results[t]` takes a Tensor. The arrays are the caller's."""

    __slots__ = ("_arrays", "_names")

    def __init__(self, arrays: dict[str, Array], names: Mapping[Value, str]) -> None:
        self._arrays = arrays
        self._names = names

    def __getitem__(self, key: Any) -> Array:
        if key.__class__ is str and key in self._arrays:
            return self._arrays[key]
        name = self._name(key)
        if name is not None and name in self._arrays:
            return self._arrays[name]
        what = "this tensor" if hasattr(key, "value") else repr(key)
        raise InputError(f"results: {what} is not an output; the outputs are {', '.join(self)}")

    def __contains__(self, key: object) -> bool:
        return self._name(key) in self._arrays

    def get(self, key: Any, default: Any = None) -> Any:
        """The output, or `default` where `key` is none."""
        name = self._name(key)
        return default if name is None else self._arrays.get(name, default)

    def _name(self, key: Any) -> str | None:
        return key if isinstance(key, str) else self._names.get(getattr(key, "value", key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {a.dtype}{list(a.shape)}" for name, a in self._arrays.items())
        return f"Results({rows})"
