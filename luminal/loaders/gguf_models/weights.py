"""The tensors of a GGUF file under Hugging Face's names, and the reverse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from luminal.errors import InputError
from luminal.loaders.gguf import StoredTensor
from luminal.loaders.gguf_models.rearranged import Heads
from luminal.loaders.gguf_models.table import GGUFArchitecture
from luminal.loaders.mapped import Array

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_LAYER = "blk.*."
_IN_CONFIG = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight")
"""Tensors that are part of the configuration."""


def hugging_face_tensors(
    tensors: Mapping[str, StoredTensor], architecture: GGUFArchitecture, heads: Heads
) -> dict[str, Array]:
    """Under Hugging Face's names and as it stores them; a name that is not known stays as it is."""
    names = {theirs: ours for ours, theirs in _templates(architecture)}
    found: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if _IN_CONFIG.fullmatch(name):
            continue
        template, numbers, last = _template(name)
        array = tensor.array()
        if template not in names:
            found[name] = array
            continue
        change = architecture.changes.get(template.removeprefix(_LAYER))
        if change is not None:
            array = change.read(array, heads)
        ours = names[template]
        if ours.count("*") > len(numbers):
            for number, part in enumerate(array):
                found[_filled(ours, [*numbers, str(number)]) + last] = part
        else:
            found[_filled(ours, numbers) + last] = array
    return found


def gguf_tensors(
    tensors: Mapping[str, Array], architecture: GGUFArchitecture, heads: Heads
) -> dict[str, Array]:
    """Hugging Face's as GGUF names and stores them. Raises InputError for a name without one."""
    names = dict(_templates(architecture))
    found: dict[str, Array] = {}
    experts: dict[str, dict[int, Array]] = {}
    for name, array in tensors.items():
        template, numbers, last = _template(name)
        if template not in names:
            raise InputError(f"{name}: GGUF files of {architecture.name} have no name for it")
        theirs = names[template]
        change = architecture.changes.get(theirs.removeprefix(_LAYER))
        if change is not None:
            array = change.written(array, heads)
        if template.count("*") > theirs.count("*"):
            *numbers, expert = numbers
            experts.setdefault(_filled(theirs, numbers) + last, {})[int(expert)] = array
        else:
            found[_filled(theirs, numbers) + last] = array
    for name, parts in experts.items():
        found[name] = np.stack([parts[number] for number in sorted(parts)])
    return found


def has_names(tensors: Iterable[str], architecture: GGUFArchitecture) -> bool:
    """Whether GGUF has names for all of Hugging Face's."""
    names = dict(_templates(architecture))
    return all(_template(name)[0] in names for name in tensors)


def _templates(architecture: GGUFArchitecture) -> Iterator[tuple[str, str]]:
    """Hugging Face's names and GGUF's."""
    yield from architecture.names.items()
    for ours, theirs in architecture.layers.items():
        yield architecture.prefix + ours, _LAYER + theirs


def _template(name: str) -> tuple[str, list[str], str]:
    """The name with stars for numbers and without its end, the numbers, and the end."""
    stem, dot, last = name.rpartition(".")
    if last not in ("weight", "bias"):
        stem, dot, last = name, "", ""
    padded = stem + "."
    return _NUMBER.sub("*", padded)[:-1], _NUMBER.findall(padded), dot + last


def _filled(template: str, numbers: list[str]) -> str:
    parts = iter(numbers)
    return re.sub(r"\*", lambda star: next(parts), template)
