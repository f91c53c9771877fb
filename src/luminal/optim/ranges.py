"""Numbers from outside and the ranges that they lie in; an error names the value and the rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from luminal.base.errors import InputError, LuminalError


class Range(NamedTuple):
    """The rule for a number, in words and as a test; `whole`: an int."""

    words: str
    holds: Callable[[Any], bool]
    whole: bool = False


COUNT = Range("an int of at least 1", lambda n: n >= 1, whole=True)
AT_LEAST_0_INT = Range("an int of at least 0", lambda n: n >= 0, whole=True)
FINITE = Range("a finite number", math.isfinite)
AT_LEAST_0 = Range("a number of at least 0", lambda x: 0 <= x < math.inf)
ABOVE_0 = Range("a number above 0", lambda x: 0 < x < math.inf)
BOUND = Range("a number of at least 0, or math.inf", lambda x: x >= 0)
BELOW_1 = Range("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
BETWEEN_0_AND_1 = Range("a number above 0 and below 1", lambda x: 0 < x < 1)
SHARE = Range("a number from 0 to 1", lambda x: 0 <= x <= 1)
SHARE_ABOVE_0 = Range("a number above 0, at most 1", lambda x: 0 < x <= 1)
ABOVE_1 = Range("a number above 1", lambda x: 1 < x < math.inf)


def check(what: str, rule: Range, **values: Any) -> None:
    """Raises InputError for a value that is no number in the range; None is not looked at."""
    for name, value in values.items():
        if value is not None and not _lies_in(rule, value):
            raise InputError(f"{what}: {name}={value!r}; it must be {rule.words}")


def check_all(what: str, rule: Range, name: str, values: Any, count: int | None = None) -> None:
    """Checks a list or tuple of numbers, of `count` numbers if that is given."""
    is_list = isinstance(values, list | tuple) and count in (None, len(values))
    if not is_list or not all(_lies_in(rule, value) for value in values):
        many = "a list of numbers" if count is None else f"{count} numbers"
        raise InputError(f"{what}: {name}={values!r}; it must be {many}, each {rule.words}")


def _lies_in(rule: Range, value: Any) -> bool:
    # A bool is an int to Python, but True as a number is a mistake.
    kinds = int | np.integer if rule.whole else int | float | np.integer
    return isinstance(value, kinds) and not isinstance(value, bool) and rule.holds(value)


def as_number(what: str, value: Any) -> float:
    """One number of any library as Python's; InputError for what is none."""
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, RuntimeError, LuminalError):
        pass
    raise InputError(f"{what}={value!r}; it must be a number")
