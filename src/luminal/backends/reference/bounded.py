"""Values with an error bound and an unstable mask (see `bounds`), and what their rules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from luminal.base import dtypes
from luminal.hlir.ops import Op
from luminal.hlir.semantics import Array, Dims, convert

MARGIN = 4.0  # bounds: the widest difference that is still a rounding difference


class Bounded(NamedTuple):
    """A value, its error bound (float64, in its own units) and its unstable mask; see `bounds`."""

    value: Array
    error: Array
    unstable: Array

    @property
    def wide(self) -> Array:
        """The value in float64."""
        return self.value.astype(np.float64)

    @property
    def slack(self) -> Array:
        """The half width of the interval that the value may lie in."""
        return MARGIN * self.error


class Step(NamedTuple):
    """One op applied: its operands with their bounds, and the reference's results."""

    op: Op
    attrs: Any
    dims: Dims
    args: tuple[Bounded, ...]
    values: tuple[Array, ...]

    @property
    def is_float(self) -> bool:
        """Is the first operand a float? Rules for integers are exact."""
        return dtypes.dtype_of(self.args[0].value).is_float

    def move(self, *parts: Array) -> tuple[Array, ...]:
        """The op itself applied to other arrays: how views and gathers carry errors and masks."""
        assert self.op.evaluate is not None
        return self.op.evaluate(self.attrs, self.dims, parts)


Pair = tuple[Any, Any]  # error, unstable; broadcast to the result
Rule = Callable[[Step], tuple[Pair, ...]]


def any_unstable(step: Step) -> Any:
    unstable: Any = np.bool_(False)
    for arg in step.args:
        unstable = unstable | arg.unstable
    return unstable


def exact(step: Step) -> tuple[Pair, ...]:
    """Integers and bools: right to the last bit, unless an operand is unstable."""
    return ((0.0, any_unstable(step)),)


def unless_integer(rule: Callable[[Step], Pair]) -> Rule:
    """`rule` for floats, exact for the rest; what is unstable in an operand stays so."""

    def checked(step: Step) -> tuple[Pair, ...]:
        if not step.is_float:
            return exact(step)
        error, unstable = rule(step)
        return ((error, unstable | any_unstable(step)),)

    return checked


# --- rounding and overflow ------------------------------------------------------------------------


def limits_of(dtype: np.dtype[Any]) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def rounding(y: Array, underflows: Any = False) -> Array:
    """One rounding of `y` in its dtype. `underflows`: where a zero is not an exact one."""
    limits = limits_of(y.dtype)
    size = np.abs(y.astype(np.float64))
    is_small = (size < float(limits.smallest_normal)) & ((size > 0) | underflows)
    return size * float(limits.eps) + np.where(is_small, float(limits.smallest_subnormal), 0.0)


def overflows(size: Array, dtype: np.dtype[Any]) -> Array:
    """A mask of where a finite magnitude (of a sum's terms, of a product) may not be finite in
    `dtype`.
    """
    return np.isfinite(size) & (size >= float(limits_of(dtype).max))


def same_kind(probe: Array, y: Array) -> Array:
    """A mask of where float64 `probe`, rounded to y's dtype, is finite, inf or NaN as y is."""
    rounded = convert(probe, dtypes.dtype_of(y)).astype(np.float64)
    wide = y.astype(np.float64)
    return np.asarray(
        (np.isnan(rounded) == np.isnan(wide))
        & (np.isinf(rounded) == np.isinf(wide))
        & (np.isfinite(rounded) | np.isnan(rounded) | (rounded == wide))
    )


def may_be_zero(x: Bounded) -> Array:
    return np.asarray((x.error > 0) & (np.abs(x.wide) <= x.slack))
