"""What arguments that want a number take: Python's ints and floats and NumPy's, and no booleans.

True would pass for 1, and is mostly an argument in the wrong place.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any


def is_number(value: Any, kind: type) -> bool:
    """Is it a number of this kind of `numbers`? True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Is it an int of 1 or more?"""
    return is_number(value, Integral) and value >= 1
