"""A state_dict read into a module: what fits where, and all that is wrong, told at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from luminal.base.complex_dtypes import any_dtype_of
from luminal.base.errors import DTypeError, LoadError
from luminal.frontend.handle import Array
from luminal.frontend.matrices.packed import Packed
from luminal.memory.data import array_of
from luminal.memory.parameter import Parameter
from luminal.memory.row_order import StoredRows
from luminal.memory.state import State
from luminal.memory.stored import Stored, stored_or_array

Holder = Parameter | State


def load(
    name: str,
    wanted: Mapping[str, Holder],
    state: Mapping[str, Any],
    optional: Collection[str],
    strict: bool,
    adopt_dtypes: bool,
) -> dict[Holder, Holder]:
    """Sets what is `wanted`, by path, from a state_dict, of which `optional` paths may be missing.

    Gives the packed Parameters of the state_dict that are to take the places of others. Raises
    LoadError that says all that does not fit a module of this class `name`, and then changes
    nothing. The options are those of `Module.load_state_dict`.
    """
    whole = _with_packed(wanted, state)
    if problems := _problems(wanted, whole, optional, strict):
        raise LoadError(f"{name}: the state_dict does not fit; {'; '.join(problems)}")
    data: dict[Packed, dict[str, Array]] = {}
    arrays: dict[Holder, Array | Stored | StoredRows] = {}
    packed: dict[Holder, Holder] = {}
    for path, held in wanted.items():
        if isinstance(whole.get(path), Packed):
            if path in state:
                packed[held] = state[path]
            elif isinstance(held, Packed):
                data[held] = held.loaded({end: state[f"{path}.{end}"] for end in held.data_names})
        elif path in whole:
            adopts = adopt_dtypes and isinstance(held, Parameter)
            arrays[held] = _fitting(path, held, whole[path], adopts)
    # All of it fits: only now is anything changed.
    for taking, value in data.items():
        taking.load(value)
    for held, array in arrays.items():
        held.dtype = any_dtype_of(array)
        if isinstance(array, StoredRows) and isinstance(held, Parameter):
            held.lies(array.memory, array.order)
        else:
            held.set(array)
    return packed


def _problems(
    wanted: Mapping[str, Holder], state: Mapping[str, Any], optional: Collection[str], strict: bool
) -> list[str]:
    """All that is wrong with names and shapes: loading a checkpoint again for each would be slow,
    so it is told at once.
    """
    # By holder and not by path: of tied Parameters a file may have but one name.
    named = {held for path, held in wanted.items() if path in state}
    missing = [
        f"{path}.{next(iter(held.data_names))}" if isinstance(held, Packed) else path
        for path, held in wanted.items()
        if held not in named and path not in optional
    ]
    unexpected = [name for name in state if name not in wanted]
    problems = []
    if strict and missing:
        problems.append(f"missing: {_listed(missing)}")
    if strict and unexpected:
        problems.append(f"unexpected: {_listed(unexpected)}{_hint(wanted, unexpected)}")
    misfits = []
    for path, held in wanted.items():
        shape = getattr(state.get(path), "shape", held.shape)
        if tuple(shape) != held.shape:
            turned = "; transpose it" if tuple(shape) == held.shape[::-1] else ""
            misfits.append(f"{path}: expected shape {held.shape}, got {tuple(shape)}{turned}")
    if misfits:
        problems.append(_listed(misfits))
    if problems and strict:
        problems += _renamed(unexpected, missing)
    return problems


def _hint(wanted: Mapping[str, Holder], unexpected: list[str]) -> str:
    """What to do, if the state_dict has packed data (`W.int8.codes`) of what is floats here."""
    for name in unexpected:
        path, _, kind = name.rpartition(".")[0].rpartition(".")
        if path in wanted and not isinstance(wanted[path], Packed):
            return f"; {path} is packed as {kind} there: lm.quantize(module, {kind!r}) first"
    return ""


def _renamed(unexpected: list[str], missing: list[str]) -> Iterator[str]:
    """What may be done about names: a prefix that is too much or lacks, a name that is like one."""
    for name in unexpected:
        for other in missing:
            if name.endswith(f".{other}"):
                yield f"take {name.removesuffix(other)!r} off the names"
                return
            if other.endswith(f".{name}"):
                yield f"put {other.removesuffix(name)!r} before the names"
                return
    for name in unexpected[:1]:
        for like in get_close_matches(name, missing, 1, 0.6):
            yield f"rename {name} to {like}"


def _with_packed(wanted: Mapping[str, Holder], state: Mapping[str, Any]) -> dict[str, Any]:
    """A state_dict where packed Parameters whose data it has stand for that, under their paths."""
    weights = dict(state)
    for path, held in wanted.items():
        if isinstance(held, Packed) and path not in state:
            names = [f"{path}.{end}" for end in held.data_names]
            if all(name in state for name in names):
                weights[path] = held
                for name in names:
                    weights.pop(name)
    return weights


def _fitting(path: str, held: Holder, value: Any, adopt_dtype: bool) -> Array | Stored | StoredRows:
    """`value` as an array of the holder's dtype, or as it is if that is adopted."""
    if isinstance(held, Packed):
        raise LoadError(
            f"{path}: is packed as {held.kind}, the state_dict has floats; load them before "
            "lm.quantize, or into a module that is not packed"
        )
    if adopt_dtype and isinstance(value, StoredRows):
        return value
    try:
        # Complex numbers stay such: another dtype has another memory.
        is_adopted = adopt_dtype and not held.is_paired
        array = (
            array_of(value, None, path) if is_adopted else stored_or_array(value, held.dtype, path)
        )
    except DTypeError as error:
        raise LoadError(str(error)) from None
    if array.shape != held.shape:
        raise LoadError(f"{path}: expected shape {held.shape}, got {array.shape}")
    return array


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
