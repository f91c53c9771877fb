"""The classes of rules as predicates: do two terms agree as a class says, at every point?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from luminal.algebra.evaluate import Evaluator
from luminal.algebra.terms import Term, axis_order
from luminal.base.numerics import Class
from luminal.shape.expression import Symbol, const
from tests.rules.instances import DIMS, Array, Instance
from tests.rules.real import Real, Reals, Wide

RELATIVE = 3e-7  # constants of rules are rounded to float32
CANCELLED = 1e-15  # of the largest number met: what long double loses where terms cancel


class Fault(AssertionError):
    """Two terms disagree; `reason` says how, one of those below."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


BITS = "other bits"
VALUE = "another number"
FOR_NAN = "a number where the original is NaN"
FOR_INF = "a number where the original is infinite"
NAN = "NaN where the original is a number"
INF = "infinite where the original is a number"
SIGN = "infinite with the other sign"
KIND = "NaN for infinite, or the reverse, though the original met neither on its way"
TYPE = "another dtype"


@dataclass
class Compared:
    """Points compared: numbers on both sides, and neither."""

    numbers: int = 0
    others: int = 0

    def __add__(self, more: Compared) -> Compared:
        return Compared(self.numbers + more.numbers, self.others + more.others)


def agree(instance: Instance, one: Term, other: Term, kind: Class) -> Compared:
    """Raises Fault unless `other` may stand for `one` in this class.

    An axis that only one side has is fixed at 0, as decoding does; nothing is compared where it is
    empty.
    """
    if one.dtype is not other.dtype:
        raise Fault(TYPE, f"{other.dtype} for {one.dtype}")
    axes = one.axes & other.axes
    if any(_size(a) == 0 for a in one.axes ^ other.axes):
        return Compared()
    one, other = (_fixed(instance, t, axes) for t in (one, other))
    if kind is Class.EXACT or not one.dtype.is_float:
        return _same_bits(instance, one, other, axes)
    reals = Reals(instance.leaves, DIMS)
    x, y = (_shared(reals.of(t), t, axes) for t in (one, other))
    return _same_number(x, y, kind)


def _size(axis: Symbol) -> int:
    assert axis.extent is not None
    return int(axis.extent.evaluate(DIMS))


def _fixed(instance: Instance, term: Term, axes: frozenset[Symbol]) -> Term:
    return instance.terms.at(term, {a: const(0) for a in term.axes - axes})


def _shared(x: Real, term: Term, axes: frozenset[Symbol]) -> Real:
    assert term.axes == axes
    return x


def _same_bits(instance: Instance, one: Term, other: Term, axes: frozenset[Symbol]) -> Compared:
    """The same bits, each operation in its own dtype; a NaN is a NaN."""
    frame = tuple((a,) for a in axis_order(axes))
    x, y = (Evaluator(instance.leaves, DIMS, wide=False).tensor(t, frame) for t in (one, other))
    assert x.dtype == y.dtype
    same = (x == y) | ((x != x) & (y != y))
    numbers = np.ones(x.shape, bool)
    if one.dtype.is_float:
        same &= (np.signbit(x) == np.signbit(y)) | (x != x)
        numbers = np.isfinite(x)
    _refuse(BITS, ~same, x, y)
    return Compared(int(numbers.sum()), int((~numbers).sum()))


def _same_number(one: Real, other: Real, kind: Class) -> Compared:
    """Equal in real arithmetic, up to rounding and the signs of zeros; see `numerics.Class`."""
    x, y = one.value, other.value
    assert x.dtype == y.dtype == Wide
    open_ = np.isnan(x) if kind is Class.DOMAIN else np.zeros(x.shape, bool)
    numbers = np.isfinite(x) & np.isfinite(y)
    near = CANCELLED * max(one.scale, other.scale)
    with np.errstate(invalid="ignore"):
        far = np.abs(x - y) > RELATIVE * np.abs(x) + near
    _refuse(VALUE, numbers & far, x, y)
    _refuse(FOR_NAN, np.isnan(x) & np.isfinite(y) & ~open_, x, y)
    _refuse(FOR_INF, np.isinf(x) & np.isfinite(y), x, y)
    _refuse(NAN, np.isfinite(x) & np.isnan(y), x, y)
    _refuse(INF, np.isfinite(x) & np.isinf(y), x, y)
    _refuse(SIGN, np.isinf(x) & np.isinf(y) & (x != y), x, y)
    _refuse(KIND, (np.isnan(x) != np.isnan(y)) & ~numbers & ~one.odd & ~open_, x, y)
    return Compared(int(numbers.sum()), int((~numbers & ~open_).sum()))


def _refuse(reason: str, wrong: Array, x: Array, y: Array) -> None:
    if np.any(wrong):
        place = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise Fault(reason, f"{x[place]} became {y[place]} at {place}")
