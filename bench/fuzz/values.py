"""Are the values right? Ours beside PyTorch's in float64, on the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from bench.fuzz.case import Array

TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
FLOOR = 0.01  # what a result near 0 was made of at least
MARGIN = 4  # how many times as far off as others, at their worst, we may be


@dataclass(frozen=True, slots=True)
class Expected:
    """What PyTorch makes of the case: in the case's dtype, in float64, and in float64 where inputs
    and what is made of them differ by the dtype's tolerance: what rounding may do to a result.
    """

    eager: Sequence[torch.Tensor]
    exact: Sequence[torch.Tensor]
    moved: Sequence[torch.Tensor]


class Moved(TorchFunctionMode):
    """Floats differ by the tolerance of results of a dtype, and so does all that is computed of
    them meanwhile: of a sum of differences the inputs alone would tell nothing, since they cancel.
    """

    def __init__(self, type_: torch.dtype) -> None:
        super().__init__()
        self._share = TOLERANCE.get(_name(type_), 0.0)
        self._generator = torch.Generator().manual_seed(0)

    def of(self, held: Any) -> Any:
        """The tensors of a result in float64, moved."""
        if isinstance(held, tuple | list):
            return tuple(self.of(each) for each in held)
        if not (isinstance(held, torch.Tensor) and held.is_floating_point()):
            return held
        with torch._C.DisableTorchFunction():
            noise = torch.randn(held.shape, dtype=torch.float64, generator=self._generator)
            return held.double() * (1 + self._share * noise)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.of(function(*args, **(kwargs or {})))


def difference(ours: Sequence[Array], expected: Expected) -> str:
    """What is wrong with our results, in words; empty where nothing is.

    Integers and truth values have to be equal. Floats may be off by the tolerance, by a few times
    what inputs and steps off by the tolerance make, and by a few times what eager PyTorch is off.
    """
    if len(ours) != len(expected.eager):
        return f"{len(ours)} results; PyTorch has {len(expected.eager)}"
    sides = zip(ours, expected.eager, expected.exact, expected.moved, strict=True)
    with np.errstate(invalid="ignore", over="ignore"):
        found = [_difference(*each) for each in sides]
    return "; ".join(f"result {place}: {text}" for place, text in enumerate(found) if text)


def _difference(ours: Array, eager: torch.Tensor, exact: torch.Tensor, other: torch.Tensor) -> str:
    if ours.shape != tuple(eager.shape):
        return f"shape {ours.shape}; PyTorch's is {tuple(eager.shape)}"
    if ours.dtype.name.lstrip("u") != _name(eager.dtype).lstrip("u"):  # NumPy's sums of uint8
        return f"dtype {ours.dtype.name}; PyTorch's is {eager.dtype}"
    if ours.dtype.name not in TOLERANCE:
        right: Array = eager.numpy()
        wrong = np.asarray(ours != right)
    else:
        right = _double(exact.to(eager.dtype))
        wrong = _far(ours, _double(eager), right, _double(other) - _double(exact))
    if not wrong.any():
        return ""
    first = int(np.flatnonzero(wrong)[0])
    place = tuple(int(each) for each in np.unravel_index(first, wrong.shape))
    found, wanted = ours.flat[first], right.flat[first]
    return f"{int(np.sum(wrong))} of {wrong.size} wrong; {found} at {place}, not {wanted}"


def _far(ours: Array, eager: Array, right: Array, moves: Array) -> Array:
    """Where ours is further off than it may be. NaN and infinities have to be where they belong,
    except that 16 bits may round to an infinity as eager does.
    """
    own = ours.astype(np.float64)
    error = np.abs(own - right)
    finite = moves[np.isfinite(moves)]
    typical = np.sqrt(np.square(finite).sum() / max(1, finite.size))
    others = np.fmax(np.abs(moves), np.fmax(typical, _worst(np.abs(eager - right))))
    allowed = TOLERANCE[ours.dtype.name] * (np.abs(right) + FLOOR) + MARGIN * others
    same = (own == right) | (np.isnan(own) & np.isnan(right)) | (own == eager)
    return np.asarray(~(same | (error <= allowed)))


def _worst(errors: Array) -> float:
    return float(errors[np.isfinite(errors)].max(initial=0.0))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _double(tensor: torch.Tensor) -> Array:
    found: Array = tensor.detach().double().numpy()
    return found


def array(result: Any) -> Array:
    """One of our results as an array that outlives the next call."""
    return np.array(result)
