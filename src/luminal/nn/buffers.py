"""Buffers: States that modules make of values, and what is assigned to them."""

from __future__ import annotations

from typing import Any

from luminal.base.errors import InputError
from luminal.frontend.handle import Pair, is_tensor
from luminal.memory.data import any_array_of, is_array
from luminal.memory.state import State


def made(value: Any, name: str, persistent: bool) -> State:
    """A State of this value; one not `persistent` is no part of files."""
    array = any_array_of(value, None, name)
    state = State(array.shape, array.dtype, array, name)
    state.persistent = persistent
    return state


def assigned(held: State, value: Any, owner: str, name: str) -> State:
    """What attribute `name` holds after `value` is assigned to it: the State with that value, or
    another one where shape or dtype differ.

    Raises InputError for what has no value now: a State changes at the end of a program's run.
    """
    if (is_tensor(value) or isinstance(value, Pair)) and not value.graph.is_eager:
        raise InputError(
            f"{owner}.{name} is a State, which a program changes at the end of its run; write "
            f"new = ..., lm.assign(self.{name}, new), and read new where the new value is meant"
        )
    if not (is_tensor(value) or isinstance(value, Pair) or is_array(value)):
        raise InputError(
            f"{owner}.{name} is a State, got a {type(value).__name__}; write "
            f"self.{name}.set(value), or give it an nn.Parameter or lm.State"
        )
    array = any_array_of(value, None, name)
    if (array.shape, array.dtype) != (held.shape, held.dtype.numpy):
        return made(array, held.name, held.persistent)
    held.set(array)
    return held
