"""Which values an optimizer's options can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.errors import InputError
from luminal.frontend.handle import is_tensor
from luminal.hlir.state import State

BELOW_ONE = ("betas", "alpha")
FLAGS = (
    "nesterov", "maximize", "amsgrad", "centered", "decoupled_weight_decay", "use_muon",
)  # fmt: skip


def check_options(what: str, options: Mapping[str, Any]) -> None:
    """Raises InputError for a number that is negative, or a decay rate that is not below 1.

    A learning rate may be a Tensor or a State too.
    """
    for name, value in options.items():
        if name == "params" or (name == "lr" and (is_tensor(value) or isinstance(value, State))):
            continue
        if name in FLAGS or isinstance(value, str | None):
            continue
        numbers = value if isinstance(value, tuple | list) else (value,)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise InputError(f"{what}: {name}={value!r}: {number!r} is no number")
            if name == "ns_coefficients":
                continue
            if not number >= 0 or (name in BELOW_ONE and number >= 1):
                allowed = "at least 0 and below 1" if name in BELOW_ONE else "at least 0"
                raise InputError(f"{what}: {name}={value!r}: it is {allowed}")
