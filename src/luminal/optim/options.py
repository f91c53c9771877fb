"""Which values an optimizer's options can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.errors import InputError
from luminal.frontend.handle import is_tensor
from luminal.memory.state import State
from luminal.optim.ranges import AT_LEAST_0, BELOW_1, COUNT, FINITE, SHARE, check, check_all

FLAGS = (
    "nesterov", "maximize", "amsgrad", "centered", "decoupled_weight_decay", "use_muon",
)  # fmt: skip
NAMES = ("adjust_lr_fn", "ns_dtype")
RANGES = {"alpha": BELOW_1, "rho": SHARE, "ns_steps": COUNT}
TUPLES = {"betas": (BELOW_1, 2), "ns_coefficients": (FINITE, 3)}


def check_options(what: str, options: Mapping[str, Any]) -> None:
    """Raises InputError for a number out of its range: at least 0, if RANGES says nothing else.

    A learning rate may be a Tensor or a State too.
    """
    for name, value in options.items():
        if name == "params" or (name == "lr" and (is_tensor(value) or isinstance(value, State))):
            continue
        if name in NAMES:
            if not isinstance(value, str | None):
                raise InputError(f"{what}: {name}={value!r}; it must be a name, or None")
        elif name in FLAGS:
            if not isinstance(value, bool | int):
                raise InputError(f"{what}: {name}={value!r}; it must be True or False")
        elif name in TUPLES:
            rule, count = TUPLES[name]
            check_all(what, rule, name, value, count)
        elif value is None:
            raise InputError(f"{what}: {name}=None; it must be a number")
        else:
            check(what, RANGES.get(name, AT_LEAST_0), **{name: value})
