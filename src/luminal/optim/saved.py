"""State dicts, above all an optimizer's: all of one fits, or nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.errors import InputError, LoadError, LuminalError
from luminal.frontend.handle import work_dtype
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.memory.stored import stored_or_array
from luminal.optim.ranges import AT_LEAST_0_INT, check

if TYPE_CHECKING:
    from luminal.optim.optimizer import Group, Optimizer

Values = dict[str, Any]
"""What the States of one Parameter hold: arrays, and numbers for those that are shared."""


def check_entries(what: str, state_dict: Any, names: Sequence[str]) -> None:
    """Raises LoadError for what is no dict with these entries."""
    if not isinstance(state_dict, Mapping):
        raise LoadError(f"{what}: {state_dict!r} is no state_dict; it has {', '.join(names)}")
    missing = [name for name in names if name not in state_dict]
    if missing:
        raise LoadError(f"{what}: the state_dict has no {missing[0]!r}; it has {', '.join(names)}")


def checked_count(what: str, count: Any) -> int:
    """A number of steps from a state_dict."""
    try:
        check(what, AT_LEAST_0_INT, count=count)
    except InputError as error:
        raise LoadError(str(error)) from None
    return int(count)


def state_dict(
    optimizer: Optimizer, value: Callable[[State], Any] = lambda held: held.numpy()
) -> dict[str, Any]:
    """Gives the state to save, with what `value` says of each State; see `Optimizer.state_dict`."""
    number = {p: k for k, p in enumerate(optimizer.parameters)}
    groups = []
    for group in optimizer.param_groups:
        options = {name: _plain(group[name]) for name in optimizer.defaults}
        groups.append(options | {"params": [number[p] for p in group["params"]]})
    state: dict[int, Values] = {}
    for group in optimizer.param_groups:
        shared = optimizer.shared(group)
        for p in group["params"]:
            held = optimizer.state.get(p, {})
            values = {name: value(x) for name, x in held.items()}
            if held:
                state[number[p]] = {
                    name: x.item() if name in shared else x for name, x in values.items()
                }
    return {"state": state, "param_groups": groups}


def _plain(option: Any) -> Any:
    """An option as a number, text, flag or tuple of numbers; None for a rate outside of it."""
    kept = isinstance(option, bool | int | float | str | tuple | list | None)
    return option if kept else None


def load_state_dict(
    optimizer: Optimizer, saved: Mapping[str, Any],
    begin: Callable[[State], None] = lambda held: None,
) -> None:  # fmt: skip
    """Takes up a saved state; see `Optimizer.load_state_dict`. `begin` is called with each State
    that is made for it, before it gets its value.
    """
    what = type(optimizer).__name__
    try:
        rows = [{**row, "params": [int(k) for k in row["params"]]} for row in saved["param_groups"]]
        entries = {int(key): dict(entry) for key, entry in saved["state"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LoadError(
            f"{what}: no state_dict of an optimizer ({error!r}); it has 'state', by numbers, and "
            "'param_groups', each with 'params'"
        ) from None
    # All is checked before anything is set: a state that fits half would train on quietly.
    groups = _groups(optimizer, rows)
    numbers = [k for row in rows for k in row["params"]]
    by_number = dict(zip(numbers, optimizer.parameters, strict=True))
    unknown = [k for k in entries if k not in by_number]
    if unknown:
        raise LoadError(f"{what}: the state_dict has a state for {unknown[0]}, which is no number "
                        "of a parameter in its groups")  # fmt: skip
    values: dict[Parameter, Values] = {}
    owner = {p: group for group in groups for p in group["params"]}
    for k, entry in entries.items():
        values[by_number[k]] = _values(optimizer, owner[by_number[k]], by_number[k], entry)
    _check_shared(optimizer, groups, values)
    for group, loaded in zip(optimizer.param_groups, groups, strict=True):
        group.update(loaded)
    _fill(optimizer, values, begin)


def _groups(optimizer: Optimizer, rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """The optimizer's groups with the options of `rows`."""
    what, groups = type(optimizer).__name__, []
    if len(rows) != len(optimizer.param_groups):
        raise LoadError(f"{what}: the state_dict has {len(rows)} groups, the optimizer "
                        f"{len(optimizer.param_groups)}; make it with the same groups")  # fmt: skip
    for k, (group, row) in enumerate(zip(optimizer.param_groups, rows, strict=True)):
        if len(row["params"]) != len(group["params"]):
            raise LoadError(
                f"{what}: group {k} has {len(row['params'])} parameters in the state_dict, "
                f"{len(group['params'])} here"
            )
        options = {}
        for name in optimizer.defaults:
            value = row.get(name, group[name])
            # A rate that is a Tensor belongs to a graph: it is neither written nor replaced.
            stays = name == "lr" and (value is None or _plain(group["lr"]) is None)
            options[name] = group[name] if stays else value
            # Formats as JSON have lists where options are tuples.
            if isinstance(options[name], list):
                options[name] = tuple(options[name])
        loaded = group | options
        try:
            optimizer.check(loaded)
        except LuminalError as error:
            raise LoadError(f"{what}: group {k}: {error}") from None
        groups.append(loaded)
    return groups


def _values(optimizer: Optimizer, group: Group, p: Parameter, entry: Mapping[str, Any]) -> Values:
    """The entry of one parameter, checked and in the dtypes of its States."""
    what = f"{type(optimizer).__name__}: {optimizer.names[p]}"
    shared, slots = optimizer.shared(group), optimizer.slots(group)
    if set(entry) != {*shared, *slots}:
        wanted, got = ", ".join((*shared, *slots)), ", ".join(entry) or "nothing"
        raise LoadError(f"{what}: the state_dict has {got}; the optimizer's states are {wanted}")
    recorded = optimizer.state.get(p, entry)
    if set(recorded) != set(entry):
        raise LoadError(
            f"{what}: the step that is recorded has the states {', '.join(recorded)}, not those of "
            "the options in the state_dict; load before the first step is recorded"
        )
    values: Values = {}
    for name, first in shared.items():
        number = np.asarray(entry[name])
        plain = number.dtype.kind in "biuf" and number.size == 1
        if not plain or (isinstance(first, int) and number != np.floor(number)):
            kind = "a whole number" if isinstance(first, int) else "a number"
            raise LoadError(f"{what}: {name} is {entry[name]}; it is {kind}")
        values[name] = type(first)(number.item())
    for name in slots:
        try:
            values[name] = stored_or_array(entry[name], slot_dtype(p), name)
        except LuminalError as error:
            raise LoadError(f"{what}: {error}") from None
        if values[name].shape != p.shape:
            got = values[name].shape
            raise LoadError(f"{what}: {name} has the shape {got}, the parameter {p.shape}")
    return values


def slot_dtype(p: Parameter) -> Any:
    """The dtype of what an optimizer keeps for each element of a parameter."""
    return p.dtype if p.is_paired else work_dtype(p.dtype)


def _shared_key(optimizer: Optimizer, group: Group, values: Values) -> tuple[Any, ...]:
    return tuple(values[name] for name in optimizer.shared(group))


def _check_shared(
    optimizer: Optimizer, groups: Sequence[Group], loaded: Mapping[Parameter, Values]
) -> None:
    """Parameters whose programs count their steps together must have equal counts."""
    for group in groups:
        names = optimizer.shared(group)
        counts: dict[Any, tuple[Parameter, Any]] = {}
        for p in group["params"]:
            if p not in optimizer.state or not names:
                continue
            # A recorded step has one counter for all that began together, so they cannot part
            # afterwards.
            value = _shared_key(optimizer, group, loaded[p]) if p in loaded else None
            held = tuple(optimizer.state[p].get(name) for name in names)
            first, expected = counts.setdefault(held, (p, value))
            if value != expected:
                raise LoadError(
                    f"{type(optimizer).__name__}: {optimizer.names[p]} has the counts {value}, "
                    f"{optimizer.names[first]} {expected}; a program that is recorded counts them "
                    "together: load before the first step is recorded"
                )


def _fill(
    optimizer: Optimizer, loaded: Mapping[Parameter, Values], begin: Callable[[State], None]
) -> None:
    """Sets States, makes those that are not there yet, resets those that the dict has not."""
    for group in optimizer.param_groups:
        fresh: dict[Any, list[Parameter]] = {}
        for p in group["params"]:
            if p in loaded and p not in optimizer.state:
                fresh.setdefault(_shared_key(optimizer, group, loaded[p]), []).append(p)
        for members in fresh.values():
            new = optimizer.new_states(group, members)
            for state in {state: None for states in new for state in states.values()}:
                begin(state)
            optimizer.state.update(zip(members, new, strict=True))
    for p, states in optimizer.state.items():
        for name, state in states.items():
            if p in loaded:
                state.set(loaded[p][name])
            else:
                state.reset()
