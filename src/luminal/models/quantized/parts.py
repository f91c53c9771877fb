"""The tensors that a packed matrix is stored as, each checked when it is taken.

A tensor that is missing, of another dtype or shape, or holds what no quantizer writes is a
LoadError that names the file, the tensor, the rule, and what to do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from luminal.base.errors import LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.models.quantized.integers import Integers

T = TypeVar("T")
FLOATS = "float16", "bfloat16", "float32"
LEFT_OUT = "modules_to_not_convert", "ignored_layers", "ignore", "llm_int8_skip_modules"
"""Keys of lists of modules that are not packed."""
MOST_GROUP = 1 << 20
"""No row of a model's matrices has more columns that could share a scale."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How a checkpoint's matrices are packed, in words; how many there are, and why some of them
    were decoded though they were to be kept.
    """

    method: str
    matrices: int = 0
    decoded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parts:
    """The tensors of one matrix by the last word of their names; `path` is the file."""

    method: str
    module: str
    arrays: Mapping[str, Array]
    path: Path

    def array(self, part: str, dtypes: str | Collection[str], shape: tuple[int, ...]) -> Array:
        """A tensor of one of the dtypes and the shape, of which -1 means any extent."""
        array = self.of(part, dtypes)
        if len(array.shape) != len(shape) or any(
            n not in (-1, extent) for n, extent in zip(shape, array.shape, strict=True)
        ):
            wanted = [n if n >= 0 else "any" for n in shape]
            raise self.wrong(part, f"must have the shape {wanted}".replace("'", ""))
        return array

    def of(self, part: str, dtypes: str | Collection[str]) -> Array:
        """A tensor of one of the dtypes."""
        names = (dtypes,) if isinstance(dtypes, str) else dtypes
        array = self.arrays.get(part)
        if array is None:
            raise LoadError(
                f"{self.path}: {self.method}: there is no tensor {shown(self.name(part))}, which "
                f"belongs to {shown(self.name(next(iter(self.arrays))))}; download the file again"
            )
        if str(array.dtype) not in names:
            raise self.wrong(part, f"must be {' or '.join(names)}")
        return array

    def scales(self, part: str, shape: tuple[int, ...], dtypes: Collection[str] = FLOATS) -> Array:
        """Floats of the shape; no NaN and no infinity."""
        return self.finite(part, self.array(part, dtypes, shape))

    def finite(self, part: str, array: Array) -> Array:
        """The array of a part, all of whose numbers must be finite."""
        if not np.isfinite(array.astype(np.float32)).all():
            raise self.wrong(part, "holds NaN or infinity, and must hold finite numbers")
        return array

    def order(self, part: str, columns: int, size: int) -> Array | None:
        """The group of each column, None where groups of `size` columns lie in order."""
        groups = self.array(part, "int32", (columns,))
        count = -(-columns // size)
        if groups.min() < 0 or groups.max() >= count:
            raise self.wrong(part, f"must hold numbers of {count} groups, from 0")
        return None if np.array_equal(groups, np.arange(columns) // size) else groups

    def name(self, part: str) -> str:
        """The tensor's name in the file."""
        return f"{self.module}.{part}" if part else self.module

    def wrong(self, part: str, rule: str) -> LoadError:
        """An error about a tensor."""
        array = self.arrays[part]
        return LoadError(
            f"{self.path}: {self.method}: tensor {shown(self.name(part))} is "
            f"{array.dtype}{shown(list(array.shape))}: it {rule}; download the file again, or "
            "correct quantization_config in config.json"
        )


def matrices(
    method: str, tensors: Mapping[str, Array], parts: Collection[str], path: Path
) -> tuple[list[Parts], dict[str, Any]]:
    """The packed matrices, whose tensors end in one of `parts`, and all other tensors. LoadError
    where there are none, or one is there as floats as well.
    """
    modules: dict[str, dict[str, Array]] = {}
    others: dict[str, Any] = {}
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        if part in parts:
            modules.setdefault(module, {})[part] = array
        else:
            others[name] = array
    if not modules:
        raise LoadError(
            f"{path}: {method}: no tensor ends in .{next(iter(parts))}, though config.json says "
            "that the weights are so packed; take quantization_config out of it if they are not"
        )
    for module in modules:
        if f"{module}.weight" in others:
            part = next(iter(modules[module]))
            raise LoadError(
                f"{path}: {method}: has both {shown(f'{module}.weight')} and "
                f"{shown(f'{module}.{part}')}, which are one matrix's; download the file again"
            )
    return [Parts(method, *item, path) for item in modules.items()], others


def check_left_out(modules: Iterable[Parts], section: Fields) -> None:
    """Raises LoadError for a packed matrix of a module that the configuration says is left as it
    was, and for lists of such modules that are none.
    """
    lists = {key: section.listed(key, str, []) for key in LEFT_OUT}
    for parts in modules:
        for key, patterns in lists.items():
            for pattern in patterns:
                if is_listed(parts.module, pattern, section.path):
                    raise LoadError(
                        f"{parts.path}: {parts.method}: {shown(parts.module)} is packed, though "
                        f"{key} in config.json has {shown(pattern)}, which is left as it was; "
                        "correct one of the two"
                    )


def is_listed(module: str, pattern: str, path: Path) -> bool:
    """Whether a name in a list means this module: "re:" and an expression that its name begins
    with, or whole words of the name.
    """
    if not pattern.startswith("re:"):
        return f".{pattern}." in f".{module}."
    try:
        return re.match(pattern[3:], module) is not None
    except (re.error, RecursionError, OverflowError) as error:
        raise LoadError(
            f"{path}: {shown(pattern)} is no regular expression: {shown(error)}"
        ) from None


def one_of(section: Fields, key: str, values: tuple[T, ...], default: T | None = None) -> T:
    """The setting of a key, which must be one of the values. Raises LoadError."""
    value = section.values.get(key)
    value = default if value is None else value
    value = value.lower() if isinstance(value, str) else value  # AutoAWQ writes "GEMM"
    for allowed in values:
        if type(value) is type(allowed) and value == allowed:
            return allowed
    raise LoadError(
        f"{section.path}: {key} of quantization_config is {shown(value)}, which is not read; it "
        f"must be one of {', '.join(map(str, values))}; take the unquantized model otherwise"
    )


def group_size(section: Fields, key: str = "group_size") -> int | None:
    """How many columns share a scale; None for a whole row, which is written -1. LoadError."""
    if section.values.get(key) == -1:
        return None
    return section.integer(key, most=MOST_GROUP)


def in_groups(size: int | None) -> str:
    """The words for a number of columns that `group_size` gave."""
    return "one group a row" if size is None else f"groups of {size}"


class Loaded:
    """Weights as they come, and what is told of them."""

    def __init__(self, method: str, keep: bool, tensors: dict[str, Any]) -> None:
        self.method, self.keep, self.tensors = method, keep, tensors
        self.names: list[str] = []
        self.reasons: Counter[str] = Counter()

    def add(self, name: str, weight: Array | Packed, reason: str | None = None) -> None:
        """A matrix, and why it is decoded though it was to be kept."""
        self.tensors[name] = weight
        self.names.append(name)
        if self.keep and reason is not None:
            self.reasons[reason] += 1

    def add_integers(self, name: str, integers: Integers) -> None:
        """A matrix of integers, packed if it is to be kept and can be."""
        reason = integers.why_decoded() if self.keep else None
        keeps = self.keep and reason is None
        self.add(name, integers.packed(name) if keeps else integers.decoded(), reason)

    def turn(self, reason: str | None) -> None:
        """Has all matrices, which are decoded, as (in, out); and why they are not kept."""
        for name in self.names:
            self.tensors[name] = self.tensors[name].T
        if reason is not None:
            self.reasons[reason] += len(self.names)

    @property
    def packing(self) -> Packing:
        """What is told of all that was added."""
        return Packing(self.method, len(self.names), dict(self.reasons))
