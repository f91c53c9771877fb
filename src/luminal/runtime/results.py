"""What a run returns: its outputs by name or by the Tensor that was marked as output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from luminal.base.errors import InputError
from luminal.hlir.ops import Value
from luminal.runtime.arrays import Array


class Results(Mapping[str, Array]):
    """Arrays by output name; `results[t]` takes a Tensor. The arrays are the caller's."""

    __slots__ = ("_arrays", "_places")

    def __init__(self, arrays: Sequence[Array], places: Mapping[str | Value, int]) -> None:
        """`places`: which of the arrays an output is, by name in their order, then by Value."""
        self._arrays = arrays
        self._places = places

    def __getitem__(self, key: Any) -> Array:
        place = self._place(key)
        if place is not None:
            return self._arrays[place]
        what = "this tensor" if hasattr(key, "value") else repr(key)
        raise InputError(f"results: {what} is not an output; the outputs are {', '.join(self)}")

    def __contains__(self, key: object) -> bool:
        return self._place(key) is not None

    def at(self, place: int) -> Array:
        """The output of this number."""
        return self._arrays[place]

    def get(self, key: Any, default: Any = None) -> Any:
        """The output, or `default` where `key` is none."""
        place = self._place(key)
        return default if place is None else self._arrays[place]

    def _place(self, key: Any) -> int | None:
        return self._places.get(key if key.__class__ is str else getattr(key, "value", key))

    def __iter__(self) -> Iterator[str]:
        # Names come first in the table and Values behind them, so that one dict serves both kinds
        # of keys and a run makes none.
        return islice(cast("Iterator[str]", iter(self._places)), len(self._arrays))

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {a.dtype}{list(a.shape)}" for name, a in self.items())
        return f"Results({rows})"
