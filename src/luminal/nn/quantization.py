"""Weights of a module packed in fewer bits, and what that costs in accuracy.

`q8_0` to `q2_k` are blocks as in GGUF files (`q4_k_m` and the like: two types); `int8` has a scale
for each row of a matrix (an output of a Linear), `int4` one for each group of a row; floats of 8
and 4 bits are in `packed_floats.py`. Values are decoded where they are read, in float32: Jacob et
al., arXiv 1712.05877, of weights alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import DTypeError, InputError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.frontend.matrices.packed import Codes, Format, Packed
from luminal.frontend.tensor import Tensor
from luminal.loaders.ggml.fitting import inverse, lasting
from luminal.loaders.ggml.mixes import CHOICES, few_of, types_of, why_not
from luminal.loaders.ggml.packed import packed
from luminal.loaders.ggml.quantize import QUANTIZERS, beyond, quantized
from luminal.loaders.ggml.types import BLOCKS
from luminal.memory.parameter import Parameter
from luminal.nn.loading import Holder
from luminal.nn.module import Module
from luminal.nn.packed_floats import PACKED

GROUP = 64  # of int4: what a scale of 2 bytes serves


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """What packing did to one weight: the greatest error of a value and the root of their mean
    square, beside that of the values (`rms`), and bytes.
    """

    name: str
    kind: str
    max_error: float
    rms_error: float
    rms: float
    bytes_before: int
    bytes_after: int

    @property
    def share(self) -> float:
        """The rms error over the values'."""
        return self.rms_error / self.rms if self.rms else 0.0

    @classmethod
    def of(
        cls, name: str, kind: str, before: Array, after: Array, nbytes: tuple[int, int]
    ) -> PackedWeight:
        """The record of a weight's values before and after packing; `nbytes` of both."""
        values = before.astype(np.float32)
        error = after.astype(np.float64) - values
        greatest = float(np.abs(error).max(initial=0))
        return cls(name, kind, greatest, _rms(error), _rms(values), *nbytes)


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """What became of each weight, by name: how it was packed, or why it was not."""

    kind: str
    weights: tuple[PackedWeight, ...]
    kept: Mapping[str, str]

    @property
    def bytes_before(self) -> int:
        """The bytes of the packed weights before they were packed."""
        return sum(weight.bytes_before for weight in self.weights)

    @property
    def bytes_after(self) -> int:
        """The bytes of the packed weights now."""
        return sum(weight.bytes_after for weight in self.weights)

    @property
    def total(self) -> str:
        """One line: weights, bytes, and the greatest share of an error in its weight."""
        worst = max((weight.share for weight in self.weights), default=0.0)
        kinds = Counter(weight.kind.lower() for weight in self.weights)
        mixed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        types = self.kind if {*kinds} <= {self.kind} else f"{self.kind} ({mixed})"
        return (
            f"{len(self.weights)} weights as {types}: {self.bytes_before:,} bytes to "
            f"{self.bytes_after:,}; rms errors up to {worst:.2%} of a weight's"
        )

    def __str__(self) -> str:
        """A line for each weight, then the sums."""
        rows = [("weight", "type", "max error", "rms error", "of rms", "bytes", "packed")]
        for weight in self.weights:
            errors = f"{weight.max_error:.3g}", f"{weight.rms_error:.3g}", f"{weight.share:.2%}"
            rows.append(
                (
                    weight.name,
                    weight.kind.lower(),
                    *errors,
                    f"{weight.bytes_before:,}",
                    f"{weight.bytes_after:,}",
                )
            )
        total = f"{self.bytes_before:,}", f"{self.bytes_after:,}"
        rows.append(("all", "", "", "", "", *total))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([*map(str.ljust, row[:2], widths[:2]), *map(str.rjust, row[2:], widths[2:])])
            for row in rows
        ]
        return "\n".join(
            [*lines, self.total, *(f"kept {name}: {why}" for name, why in self.kept.items())]
        )


def quantize(module: Module, kind: str, skip: Collection[str] | None = None) -> QuantizationReport:
    """Packs the matrices of a module, in place: Parameters of two dims, by rows.

    `kind`: one of KINDS, or of the MIXES of `luminal.loaders.ggml.mixes`, in either case. Rows of
    no whole blocks of 256 take a type of blocks of 32. `skip`: what names of Parameters must not
    contain ("lm_head", or several). They keep their dtypes, to which decoded values are rounded.
    Programs recorded before keep the old weights. Raises InputError for a kind that is not known,
    a weight that is not finite or too great for the kind's scales, or if nothing can be packed,
    DTypeError for what is no module; then nothing is changed.
    """
    if not isinstance(module, Module):
        raise DTypeError(
            f"quantize: takes an nn.Module, got a {type(module).__name__}; a Parameter is packed "
            "as part of one"
        )
    kind = str(kind).lower()
    skip = _names(skip)
    kinds_known = [*dict.fromkeys((*CHOICES, *KINDS))]
    if kind not in kinds_known:
        raise InputError(f"quantize: {kind!r} is not known; it is one of {', '.join(kinds_known)}")
    packed_by_parameter: dict[Holder, Holder] = {}
    weights: list[PackedWeight] = []
    kept: dict[str, str] = {}
    names: dict[Parameter, str] = {}
    # A tied weight is packed once, under its first path.
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, name)
    kinds = _kinds(kind, {name: holder.shape[-1] for holder, name in names.items() if holder.shape})
    for parameter, name in names.items():
        why = _refusal(parameter, name, skip)
        if why is None and name not in kinds:
            why = why_not(name, parameter.shape[-1], 32 if kind in CHOICES else KINDS[kind].size)
        if why is not None:
            kept[name] = why
            continue
        values = parameter.numpy()
        if not np.isfinite(values).all():
            raise InputError(f"quantize: {name} has values that are not finite")
        # float64 values beyond float32 become infinite here, and are refused below with their name.
        with np.errstate(over="ignore"):
            wide = values.astype(np.float32)
        if not np.isfinite(wide).all():
            raise beyond(name, values, kind, "values are float32")
        packed = packed_by_parameter[parameter] = (
            KINDS[kinds[name]].pack(name, wide).rounded(parameter.dtype)
        )
        nbytes = values.nbytes, packed.nbytes
        weights.append(PackedWeight.of(name, packed.kind, values, packed.numpy(), nbytes))
    if not packed_by_parameter:
        raise InputError(f"quantize: nothing of this module can be {kind}: {few_of(kept)}")
    # Last: an error above leaves the module as it was.
    module.exchange(packed_by_parameter)
    return QuantizationReport(kind, tuple(weights), kept)


def _names(skip: Any) -> Collection[str]:
    """One name or several."""
    names = (skip,) if isinstance(skip, str) else skip or ()
    if isinstance(names, Collection) and all(isinstance(name, str) for name in names):
        return names
    raise InputError(f'quantize: skip={skip!r}; takes parts of names, as ["lm_head"]')


def _kinds(kind: str, rows: Mapping[str, int]) -> dict[str, str]:
    """The kind of blocks for each weight whose rows are whole blocks; `rows` are their lengths by
    name.
    """
    if kind in CHOICES:
        return {
            name: block_kind.lower() for name, block_kind in types_of(kind.upper(), rows).items()
        }
    return {name: kind for name, length in rows.items() if length % KINDS[kind].size == 0}


def _refusal(parameter: Parameter, name: str, skip: Collection[str]) -> str | None:
    """Why a Parameter stays as it is."""
    if any(part in name for part in skip):
        return "skipped"
    if isinstance(parameter, Packed):
        return f"is {parameter.kind}"
    if len(parameter.shape) != 2 or not parameter.dtype.is_float:
        return "is no matrix of floats"
    return None if math.prod(parameter.shape) else "has no values"


def _rms(values: Array) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).sum() / max(values.size, 1)))


# --- the kinds


@dataclass(frozen=True, slots=True)
class Kind:
    """`size`: values that share a scale, of which a row has a whole number."""

    size: int
    pack: Callable[[str, Array], Packed]


def _blocks(kind: str, name: str, values: Array) -> Packed:
    return packed(quantized(name, values, kind).reshape(len(values), -1), name)


def _int8(name: str, values: Array) -> Packed:
    scales = (np.abs(values).max(1, keepdims=True) / np.float32(127)).astype(np.float32)
    codes = np.rint(values * inverse(scales)).astype(np.int8)
    with np.errstate(over="ignore"):
        # The quotient may have been rounded up, so that 127 times it is beyond the greatest float
        # though no value is.
        if not np.isfinite(scales * np.float32(127)).all():
            raise beyond(name, values, "int8", "127 times it is beyond float32")
    return Packed(_INT8, values.shape, {"codes": codes, "scales": scales}, name)


def _unpack_int8(data: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    return data["codes"] * data["scales"]


def _int8_codes(parts: Mapping[str, Tensor]) -> Codes:
    return Codes(parts["codes"], parts["scales"])


def _int4(name: str, values: Array) -> Packed:
    """Codes from -8 to 7, of which -8 is the value of the greatest size; the first half of a group
    in the lower bits of its bytes.
    """
    grouped = values.reshape(len(values), -1, GROUP)
    # Four bits with sign reach from -8 to 7: the value of greatest size becomes -8, whatever its
    # sign, so that no code is wasted.
    at = np.abs(grouped).argmax(-1)[..., None]
    with np.errstate(over="ignore"):
        scales = lasting(np.take_along_axis(grouped, at, -1) / np.float32(-8)).astype(np.float16)
    if not np.isfinite(scales).all():
        raise beyond(name, values, "int4", "groups have half-precision ones, at most 65504")
    codes = np.clip(np.rint(grouped * inverse(scales.astype(np.float32))) + 8, 0, 15)
    codes = codes.astype(np.uint8)
    pairs = codes[..., : GROUP // 2] | codes[..., GROUP // 2 :] << np.uint8(4)
    return Packed(_INT4, values.shape, {"codes": pairs, "scales": scales}, name)


def _unpack_int4(data: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    pairs, scales = data["codes"], data["scales"].astype(np.float32)
    numbers = np.concatenate([pairs & np.uint8(15), pairs >> np.uint8(4)], -1)
    return ((numbers.astype(np.float32) - np.float32(8)) * scales).reshape(shape)


def _int4_codes(parts: Mapping[str, Tensor]) -> Codes:
    pairs, scales = parts["codes"].unsqueeze(2), parts["scales"]
    shifts = (pairs.graph.arange(2) * 4).cast(dtypes.uint8).reshape(2, 1)
    return Codes((pairs >> shifts) & 15, scales.cast(dtypes.float32).unsqueeze(3), 8)


_INT8 = Format("int8", _int8_codes, _unpack_int8)
_INT4 = Format("int4", _int4_codes, _unpack_int4)
KINDS: Mapping[str, Kind] = {
    **{name.lower(): Kind(BLOCKS[name].size, partial(_blocks, name)) for name in QUANTIZERS},
    "int8": Kind(1, _int8),
    "int4": Kind(GROUP, _int4),
    **{name: Kind(*kind) for name, kind in PACKED.items()},
}
