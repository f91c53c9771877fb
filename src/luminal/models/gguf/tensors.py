"""The tensors of a GGUF file under Hugging Face's names, and the reverse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from luminal.base.errors import InputError, LoadError
from luminal.loaders.ggml.packed import RECORDED
from luminal.loaders.gguf import GGUFFile, StoredTensor
from luminal.loaders.mapped import Array
from luminal.loaders.shown import shown
from luminal.memory.mapped_pages import is_mapped, let_go
from luminal.memory.row_order import StoredRows
from luminal.models.architectures.architecture import Architecture
from luminal.models.gguf.changes import GROUPED, Change, Heads
from luminal.models.gguf.form import GGUF
from luminal.models.gguf.names import LAYER_NAMES, NAMES

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_LAYER, _OUR_LAYER, _FIRST = "blk.*.", "model.layers.*.", "blk.0."
_NO_WEIGHT = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight|blk\.\d+\.nextn\..*")
"""Tensors that are part of the configuration, or of layers that guess further tokens."""


def hugging_face_tensors(
    tensors: Mapping[str, StoredTensor],
    architecture: Architecture,
    heads: Heads,
    keep_quantized: bool = False,
    keep_order: bool = False,
) -> dict[str, Any]:
    """Under Hugging Face's names and as it stores them; a name that is not known stays as it is.

    `keep_quantized`: matrices of which no rows are joined or changed stay blocks, (rows, blocks)
    records, where their type can be read so. `keep_order`: mapped matrices stay as they lie, as
    StoredRows, where Parameters can keep their order.
    """
    form = form_of(architecture)
    names = {theirs: architecture.original(ours) for ours, theirs in _templates(form)}
    changes = _changes(architecture)
    joins = {part: ours for ours, join in form.joined.items() for part in join.parts}
    arrays: dict[str, Any] = {}
    parts: dict[tuple[str, str], dict[str, Array]] = {}
    copies = {f"{_FIRST}{copy}" for copy in form.copied}
    for name, tensor in tensors.items():
        if _NO_WEIGHT.fullmatch(name) or name in copies:
            continue
        whole, numbers = _template(name)
        last = whole.removeprefix(_LAYER)
        if last in form.stacked:
            stack = form.stacked[last]
            rows = _read(name, _stacked_rows, tensor.array(), len(stack))
            for part, row in zip(stack, rows, strict=True):
                arrays[_filled(architecture.original(_OUR_LAYER + part), numbers)] = row
            continue
        if last in joins:
            parts.setdefault((joins[last], numbers[0]), {})[last] = tensor.array()
            continue
        template, end = _known(whole, names)
        change = changes.get((template or "").removeprefix(_LAYER))
        # Blocks lie along rows, so moving whole rows keeps them and anything else needs the
        # numbers.
        keeps = keep_quantized and tensor.kind in RECORDED and len(tensor.shape) == 2
        array = tensor.data if keeps and (change is None or change.by_rows) else tensor.array()
        if template is None:
            arrays[name] = array
            continue
        ours = names[template] + end
        # A copy in another order would hold the matrix a second time beside the mapped file. A
        # Parameter that knows its order reads the file's own pages.
        if change is not None and change.order is not None and keep_order and _can_stay(array):
            arrays[_filled(ours, numbers)] = StoredRows(array, change.order(array, heads))
            continue
        if change is not None:
            array = _read(name, change.read, array, heads)
        if ours.count("*") > len(numbers):  # one tensor of all experts here, one of each there
            for number, part in enumerate(np.atleast_1d(array)):
                arrays[_filled(ours, [*numbers, str(number)])] = part
        else:
            arrays[_filled(ours, numbers)] = array
    for (ours, layer), halves in parts.items():
        join = form.joined[ours]
        if len(halves) == len(join.parts):  # else it is missing, which the model says
            name = _filled(architecture.original(_OUR_LAYER + ours), [layer])
            arrays[name] = _read(name, join.read, *(halves[part] for part in join.parts), heads)
    return arrays


def _stacked_rows(array: Array, count: int) -> Array:
    return array.reshape(count, 1, 1, -1)


def _can_stay(array: Array) -> bool:
    """Is it a matrix that a file holds, of numbers or of blocks?"""
    return array.ndim == 2 and is_mapped(array)


def _read(name: str, read: Callable[..., Array], *given: Any) -> Array:
    """What `read` makes of arrays, not to be written to, as what is mapped: nobody needs a copy of
    his own, and the file's pages are not held beside it. Raises LoadError for shapes that it is not
    for.
    """
    try:
        value = read(*given)
        value.flags.writeable = False
        arrays = (source for source in given if isinstance(source, np.ndarray))
        let_go(source for source in arrays if not np.may_share_memory(value, source))
        return value
    except LoadError:
        raise
    # NumPy's of a reshape, a transposition, a concatenation, a cut of what has no dims.
    except (ValueError, IndexError) as error:
        shapes = ", ".join(str(source.shape) for source in given if isinstance(source, np.ndarray))
        raise LoadError(f"weights: {name!r}: cannot be read from {shapes}") from error


def gguf_tensors(
    tensors: Mapping[str, Array], architecture: Architecture, heads: Heads
) -> dict[str, Array]:
    """Hugging Face's as GGUF names and stores them. Raises InputError for a name without one."""
    form = form_of(architecture)
    names, changes = dict(_templates(form)), _changes(architecture)
    stored: dict[str, Array] = {}
    experts: dict[str, dict[int, Array]] = {}
    places = {
        f"{_OUR_LAYER}{part}": (_LAYER + theirs, place)
        for theirs, parts in form.stacked.items()
        for place, part in enumerate(parts)
    }
    for name, array in tensors.items():
        whole, numbers = _template(architecture.renamed(name))
        if whole in places:
            theirs, place = places[whole]
            experts.setdefault(_filled(theirs, numbers), {})[place] = array.reshape(1, 1, -1)
            continue
        join = form.joined.get(whole.removeprefix(_OUR_LAYER))
        if join is not None and join.written is not None:
            for part, half in zip(join.parts, join.written(array, heads), strict=True):
                stored[_filled(_LAYER + part, numbers)] = half
            continue
        template, end = _known(whole, names)
        if template is None:
            raise InputError(f"{name}: GGUF files of {form.name} have no name for it")
        theirs = names[template]
        change = changes.get(theirs.removeprefix(_LAYER))
        if change is not None:
            array = change.written(array, heads)
        if template.count("*") > theirs.count("*"):
            *numbers, expert = numbers
            experts.setdefault(_filled(theirs + end, numbers), {})[int(expert)] = array
        else:
            stored[_filled(theirs + end, numbers)] = array
    for name, arrays in experts.items():
        stored[name] = np.stack([arrays[number] for number in sorted(arrays)])
    copies = {f"{_FIRST}{copy}": stored[f"{_FIRST}{of}"] for copy, of in form.copied.items()}
    return stored | copies


def with_listed(file: GGUFFile, form: GGUF) -> GGUFFile:
    """The file with weights that its metadata lists as tensors of the layers."""
    tensors = dict(file.tensors)
    for key in form.listed:
        numbers = file.metadata.get(key)
        if not isinstance(numbers, list) or not all(type(x) in (int, float) for x in numbers):
            raise LoadError(f"{key} is {shown(numbers)}; it must be a number for each layer")
        for layer, number in enumerate(numbers):
            array = np.array([number], np.float32)
            tensors[f"{_LAYER.replace('*', str(layer))}{key}"] = StoredTensor("F32", (1,), array)
    return replace(file, tensors=tensors)


def take_listed(tensors: dict[str, Array], form: GGUF) -> dict[str, list[float]]:
    """The numbers of weights that the metadata lists, which are no tensors any more."""
    lists: dict[str, list[float]] = {}
    for key in form.listed:
        names = [name for name in tensors if _template(name)[0] == _LAYER + key]
        lists[key] = [float(tensors.pop(name).reshape(())) for name in sorted(names, key=_layer_of)]
    return lists


def _layer_of(name: str) -> int:
    return int(_template(name)[1][0])


def form_of(architecture: Architecture) -> GGUF:
    """The form of its files in GGUF, which it must have."""
    assert architecture.gguf is not None
    return architecture.gguf


def _templates(form: GGUF) -> Iterator[tuple[str, str]]:
    """A Decoder's names and GGUF's. Of several for one of GGUF's, the last is read."""
    yield from {**NAMES, **form.outer}.items()
    common = {ours: theirs for ours, theirs in LAYER_NAMES.items() if ours not in form.names}
    for ours, theirs in (*common.items(), *form.names.items()):
        if theirs is not None:
            yield _OUR_LAYER + ours, _LAYER + theirs


def _changes(architecture: Architecture) -> Mapping[str, Change]:
    """What is stored otherwise than in Hugging Face's files, by GGUF's names."""
    grouped = {"attn_qkv": GROUPED} if architecture.grouped else {}
    return {**grouped, **form_of(architecture).changes}


def _template(name: str) -> tuple[str, list[str]]:
    """The name with stars for numbers, and the numbers."""
    return _NUMBER.sub("*", name), _NUMBER.findall(name)


def _known(whole: str, names: Mapping[str, str]) -> tuple[str | None, str]:
    """What of a name is listed: all, or what is before its end; None if neither; and the end."""
    if whole in names:
        return whole, ""
    stem, dot, end = whole.rpartition(".")
    return (stem, dot + end) if stem in names and end in ("weight", "bias") else (None, "")


def _filled(template: str, numbers: list[str]) -> str:
    parts = iter(numbers)
    return re.sub(r"\*", lambda star: next(parts), template)
