"""The error rule of every HLIR op: from bounded operands and results to (error, unstable).

Rules are rigorous for operands that lie anywhere within MARGIN errors of the reference's, not only
to first order, so that 1/x near 0 or a product of two errors is covered.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from luminal.backends.reference.bounded import (
    MARGIN,
    Bounded,
    Pair,
    Rule,
    Step,
    exact,
    limits_of,
    may_be_zero,
    overflows,
    rounding,
    same_kind,
    unless_integer,
)
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.hlir.ops import OPS
from luminal.hlir.semantics import Array, convert

# --- unary ----------------------------------------------------------------------------------------


def _monotone(function: Callable[[Array], Array], *, shrinks: bool = False) -> Rule:
    """A function that is monotone on either side of 0, judged at the ends of the interval.

    `shrinks`: it underflows to 0 at finite operands.
    """

    def rule(step: Step) -> Pair:
        (x,), (y,) = step.args, step.values
        centre, slack = x.wide, x.slack
        low, middle, high = (np.asarray(function(centre + d)) for d in (-slack, 0.0, slack))
        spread = np.maximum(np.abs(low - middle), np.abs(high - middle)) / MARGIN
        loose = x.error > 0
        changes = loose & ~(same_kind(low, y) & same_kind(high, y))
        error = np.where(loose, spread, 0.0) + rounding(y, shrinks & np.isfinite(centre))
        return error, changes

    return unless_integer(rule)


def _recip(step: Step) -> tuple[Pair, ...]:
    ((error, unstable),) = _monotone(np.reciprocal, shrinks=True)(step)
    return ((error, unstable | may_be_zero(step.args[0])),)


def _periodic(step: Step) -> Pair:
    (x,), (y,) = step.args, step.values
    eps = float(limits_of(y.dtype).eps)
    absolute = np.where(x.wide == 0, 0.0, eps / 4)  # polynomials are right to half an eps absolute
    return np.minimum(x.error, 2.0 / MARGIN) + np.maximum(rounding(y), absolute), False


def _floor(step: Step) -> Pair:
    (x,) = step.args
    changes = np.floor(x.wide - x.slack) != np.floor(x.wide + x.slack)
    return 0.0, changes & (x.error > 0)


def _cast(step: Step) -> tuple[Pair, ...]:
    (x,), (y,) = step.args, step.values
    to: DType = step.attrs.dtype
    if not step.is_float:
        exact = not to.is_float or np.asarray(convert(y, dtypes.dtype_of(x.value)) == x.value)
        return ((np.where(exact, 0.0, rounding(y) if to.is_float else 0.0), x.unstable),)
    loose = x.error > 0
    low, high = x.wide - x.slack, x.wide + x.slack
    if to is dtypes.bool_:
        return ((0.0, x.unstable | may_be_zero(x)),)
    if to.is_int:
        changes = convert(low, to) != convert(high, to)
        return ((0.0, x.unstable | (loose & changes)),)
    narrows = limits_of(y.dtype).eps > limits_of(x.value.dtype).eps
    changes = loose & ~(same_kind(low, y) & same_kind(high, y))
    error = np.where(loose & narrows, x.error + rounding(y, x.wide != 0), x.error)
    return ((error, x.unstable | changes),)


def _bitcast(step: Step) -> tuple[Pair, ...]:
    """Bits that are not known exactly are unstable, as is the payload of a NaN."""
    (x,) = step.args
    return ((0.0, x.unstable | (x.error > 0) | (step.is_float & np.isnan(x.wide))),)


def _unchanged(step: Step) -> tuple[Pair, ...]:
    x = step.args[0]
    return ((x.error, x.unstable),)


# --- binary and ternary ---------------------------------------------------------------------------


def _add(step: Step) -> Pair:
    (a, b), (y,) = step.args, step.values
    size = np.abs(a.wide + b.wide) + a.slack + b.slack
    return a.error + b.error + rounding(y), overflows(size, y.dtype)


def _mul_error(a: Bounded, b: Bounded) -> Array:
    """What the errors of two factors move their product by, the product of the errors included."""
    first = np.where(b.error > 0, np.abs(a.wide) * b.error, 0.0)
    second = np.where(a.error > 0, np.abs(b.wide) * a.error, 0.0)
    return np.asarray(first + second + MARGIN * a.error * b.error)


def _mul(step: Step) -> Pair:
    (a, b), (y,) = step.args, step.values
    moved = _mul_error(a, b)
    beyond = overflows(np.abs(a.wide * b.wide) + MARGIN * moved, y.dtype)
    meets_inf = (np.isinf(a.wide) & may_be_zero(b)) | (np.isinf(b.wide) & may_be_zero(a))
    underflows = (a.wide != 0) & (b.wide != 0)
    return moved + rounding(y, underflows), beyond | meets_inf


def _quotient_error(a: Bounded, b: Bounded) -> Array:
    """What the errors of a and b move a / b by, where b stays away from 0."""
    quotient = np.abs(a.wide / b.wide)
    moved = a.error + np.where(b.error > 0, quotient * b.error, 0.0)
    return np.asarray(np.where(moved > 0, moved / (np.abs(b.wide) - b.slack), 0.0))


def _zero_by_zero(a: Bounded, b: Bounded) -> Array:
    """A mask of where a division by 0 may be one of 0 (NaN) or not (inf)."""
    return np.asarray(may_be_zero(b) | ((b.wide == 0) & may_be_zero(a)))


def _div(step: Step) -> Pair:
    (a, b), (y,) = step.args, step.values
    moved = _quotient_error(a, b)
    quotient = np.abs(a.wide / b.wide)
    near_limit = np.abs(quotient - float(limits_of(y.dtype).max)) <= (
        MARGIN * moved + quotient * float(limits_of(y.dtype).eps)
    )
    underflows = (a.wide != 0) & np.isfinite(b.wide)
    return moved + rounding(y, underflows), near_limit | _zero_by_zero(a, b)


def _floor_changes(a: Bounded, b: Bounded) -> Array:
    """A mask of where floor(a / b) is not the same over both intervals."""
    quotient, slack = a.wide / b.wide, MARGIN * _quotient_error(a, b)
    changes = (slack > 0) & (np.floor(quotient - slack) != np.floor(quotient + slack))
    return np.asarray(changes | _zero_by_zero(a, b))


def _floor_div(step: Step) -> Pair:
    (a, b), (y,) = step.args, step.values
    return rounding(y), _floor_changes(a, b)


def _mod(step: Step) -> Pair:
    (a, b), (y,) = step.args, step.values
    count = np.abs(np.floor(a.wide / b.wide))
    moved = a.error + np.where(b.error > 0, count * b.error, 0.0)
    return moved + rounding(y), _floor_changes(a, b)


def _maximum(step: Step) -> Pair:
    a, b = step.args
    a_wins = a.wide - a.slack > b.wide + b.slack
    b_wins = b.wide - b.slack > a.wide + a.slack
    either = np.maximum(a.error, b.error)
    return np.where(a_wins, a.error, np.where(b_wins, b.error, either)), False


def _compare(step: Step) -> Pair:
    a, b = step.args
    slack = a.slack + b.slack
    distance = np.abs(a.wide - b.wide)
    return 0.0, (slack > 0) & (distance <= slack)


def _select(step: Step) -> tuple[Pair, ...]:
    condition, a, b = step.args
    error = np.where(condition.value, a.error, b.error)
    return ((error, condition.unstable | np.where(condition.value, a.unstable, b.unstable)),)


# --- reductions, scans, sorts ---------------------------------------------------------------------


def _term_sizes(x: Bounded) -> Array:
    """Magnitudes of finite terms; 0 for inf and NaN, which decide a sum whatever the order."""
    return np.where(np.isfinite(x.wide), np.abs(x.wide), 0.0)


def _sum(step: Step) -> tuple[Pair, ...]:
    (x,), (y,) = step.args, step.values
    axis = step.attrs.axis
    unstable = np.any(x.unstable, axis=axis)
    if not step.is_float:
        return ((0.0, unstable),)
    limits = limits_of(y.dtype)
    sizes = _term_sizes(x)
    error = np.sum(x.error + sizes * float(limits.eps), axis=axis)
    lost_sign = (y == 0) & np.any(np.signbit(x.value), axis=axis)  # -0, or +0 if begun with 0
    error = error + np.where(lost_sign, float(limits.smallest_subnormal), 0.0)
    return ((error, unstable | overflows(np.sum(sizes + x.slack, axis=axis), y.dtype)),)


def _max(step: Step) -> tuple[Pair, ...]:
    (x,) = step.args
    axis = step.attrs.axis
    unstable = np.any(x.unstable, axis=axis)
    if not step.is_float:
        return ((0.0, unstable),)
    surely = np.max(x.wide - x.slack, axis=axis, keepdims=True, initial=-np.inf)
    contends = x.wide + x.slack >= surely
    return ((np.max(np.where(contends, x.error, 0.0), axis=axis, initial=0.0), unstable),)


def _scan(step: Step) -> tuple[Pair, ...]:
    (x,), (y,) = step.args, step.values
    axis = step.attrs.axis
    unstable = np.logical_or.accumulate(x.unstable, axis=axis)
    if not step.is_float:
        return ((0.0, unstable),)
    rule = {"add": _scan_add, "mul": _scan_mul, "max": _scan_max}[step.attrs.kind]
    error, changes = rule(x, y, axis)
    return ((error, unstable | changes),)


def _scan_add(x: Bounded, y: Array, axis: int) -> Pair:
    limits = limits_of(y.dtype)
    sizes = _term_sizes(x)
    error = np.cumsum(x.error + sizes * float(limits.eps), axis=axis)
    lost_sign = (y == 0) & np.signbit(x.value)
    error = error + np.where(lost_sign, float(limits.smallest_subnormal), 0.0)
    return error, overflows(np.cumsum(sizes + x.slack, axis=axis), y.dtype)


def _scan_mul(x: Bounded, y: Array, axis: int) -> Pair:
    """Unstable where the product of some of the factors may leave the dtype's normal range."""
    factors = Bounded(*(np.moveaxis(part, axis, 0) for part in x))
    products = np.moveaxis(y, axis, 0)
    error = np.zeros(products.shape)
    for k in range(len(products)):
        factor = Bounded(*(part[k] for part in factors))
        if k == 0:
            error[k] = factor.error
            continue
        before = Bounded(products[k - 1], error[k - 1], factor.unstable)
        moved = _mul_error(before, factor)
        error[k] = np.where(np.isfinite(moved), moved, 0.0) + rounding(products[k])
    sizes = _term_sizes(factors)
    octaves = np.abs(np.log2(np.where(sizes > 0, sizes, 1.0)))
    leaves = np.cumsum(octaves, axis=0) >= -np.log2(float(limits_of(y.dtype).smallest_normal))
    return np.moveaxis(error, 0, axis), np.moveaxis(leaves, 0, axis)


def _scan_max(x: Bounded, y: Array, axis: int) -> Pair:
    surely = np.maximum.accumulate(x.wide - x.slack, axis=axis)
    contends = x.wide + x.slack >= surely
    return np.maximum.accumulate(np.where(contends, x.error, 0.0), axis=axis), False


def _sort(step: Step) -> tuple[Pair, ...]:
    """Unstable: rows with an unstable value, and the order of values that may change places."""
    (x,), (values, _) = step.args, step.values
    axis = step.attrs.axis
    unstable = np.any(x.unstable, axis=axis, keepdims=True)
    error = np.max(x.error, axis=axis, keepdims=True, initial=0.0)
    gaps = np.diff(values.astype(np.float64), axis=axis)
    close = (gaps <= 2 * MARGIN * error) & (error > 0)
    swaps = np.zeros(values.shape, np.bool_)
    front, back = [slice(None)] * values.ndim, [slice(None)] * values.ndim
    front[axis], back[axis] = slice(0, -1), slice(1, None)
    swaps[tuple(front)] |= close
    swaps[tuple(back)] |= close
    return (error, unstable), (0.0, unstable | swaps)


# --- memory, views, leaves ------------------------------------------------------------------------


def _gather(step: Step) -> tuple[Pair, ...]:
    source, *indices = step.args
    values = [index.value for index in indices]
    (error,) = step.move(source.error, *values)
    (unstable,) = step.move(source.unstable, *values)
    for index in indices:
        unstable = unstable | index.unstable
    return ((error, unstable),)


def _scatter(step: Step) -> tuple[Pair, ...]:
    """An unstable index may write anywhere, so it spoils the whole result."""
    dest, source, *indices = step.args
    values = [index.value for index in indices]
    lost = any(bool(np.any(index.unstable)) for index in indices)
    if step.attrs.mode == "set":
        (error,) = step.move(dest.error, source.error, *values)
        (unstable,) = step.move(dest.unstable, source.unstable, *values)
        return ((error, unstable | lost),)
    as_counts = [mask.astype(np.int64) for mask in (dest.unstable, source.unstable)]
    (unstable,) = step.move(*as_counts, *values)
    if not step.is_float:
        return ((0.0, (unstable > 0) | lost),)
    eps = float(limits_of(dest.value.dtype).eps)
    before, terms = (x.error + eps * _term_sizes(x) for x in (dest, source))
    (added,) = step.move(np.zeros_like(before), terms, *values)
    error = np.where(added > 0, before + added, dest.error)
    beyond = overflows((before + added) / eps, dest.value.dtype)
    return ((error, (unstable > 0) | lost | beyond),)


def _view(step: Step) -> tuple[Pair, ...]:
    (x,) = step.args
    (error,) = step.move(x.error)
    (unstable,) = step.move(x.unstable)
    return ((error, unstable),)


def _leaf(step: Step) -> tuple[Pair, ...]:
    return ((0.0, False),)


def _custom(step: Step) -> tuple[Pair, ...]:
    """The bound of a hand-written kernel, of which nothing is known: one rounding if all operands
    are exact, else unstable.
    """
    is_exact = all(not np.any(arg.unstable) and not np.any(arg.error > 0) for arg in step.args)
    return tuple(
        (rounding(y) if dtypes.dtype_of(y).is_float else 0.0, not is_exact) for y in step.values
    )


_ELSEWHERE = ("Input", "Weight", "State", "Loop", "Collective")  # the interpreter's own business

RULES: dict[str, Rule] = {
    "Constant": _leaf,
    "Iota": _leaf,
    "Exp": _monotone(np.exp, shrinks=True),
    "Log": _monotone(np.log),
    "Exp2": _monotone(np.exp2, shrinks=True),
    "Log2": _monotone(np.log2),
    "Sin": unless_integer(_periodic),
    "Cos": unless_integer(_periodic),
    "Sqrt": _monotone(np.sqrt),
    "Recip": _recip,
    "Floor": unless_integer(_floor),
    "Cast": _cast,
    "Bitcast": _bitcast,
    "Detach": _unchanged,
    "Add": unless_integer(_add),
    "Mul": unless_integer(_mul),
    "Div": unless_integer(_div),
    "FloorDiv": unless_integer(_floor_div),
    "Mod": unless_integer(_mod),
    "Maximum": unless_integer(_maximum),
    "LessThan": unless_integer(_compare),
    "Equal": unless_integer(_compare),
    "And": exact,
    "Or": exact,
    "Xor": exact,
    "Shl": exact,
    "Shr": exact,
    "Select": _select,
    "Sum": _sum,
    "Max": _max,
    "Scan": _scan,
    "Sort": _sort,
    "Gather": _gather,
    "Scatter": _scatter,
    "View": _view,
    "Custom": _custom,
    "After": _unchanged,
    "Shard": _unchanged,
}

assert set(OPS) == set(RULES) | set(_ELSEWHERE)
