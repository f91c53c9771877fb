"""Numbers from outside and the ranges that they lie in; an error names the value and the rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from luminal.errors import InputError


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
ABOVE_1 = Range("a number above 1", lambda x: 1 < x < math.inf)


def check(what: str, rule: Range, **values: Any) -> None:
    """Raises InputError for a value that is no number in the range; None is not looked at."""
    kinds = int | np.integer if rule.whole else int | float | np.integer
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, kinds) or not rule.holds(value):
            raise InputError(f"{what}: {name}={value!r}; it must be {rule.words}")
