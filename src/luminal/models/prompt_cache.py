"""Keys and values of a prompt in a file, so that it is read once and not in every process.

A safetensors file: "ids", the States of all layers up to the prompt's end, and digests of the model
and of all of it. Nothing in it is run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.mapped import given_path
from luminal.loaders.safetensors_file import read_safetensors
from luminal.loaders.write_safetensors import save_safetensors
from luminal.memory.arrays import HOST
from luminal.models.cache_states import states_of
from luminal.models.decoder import Decoder
from luminal.models.programs import Programs
from luminal.models.text import Text

DIGEST_BYTES = 32
SAMPLED_BYTES = 1 << 16  # of each weight: a digest of all would take as long as loading


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's ids and, for each State of the caches, its first positions."""

    ids: tuple[int, ...]
    arrays: tuple[Array, ...]

    def restore(self, programs: Programs, text: Text) -> None:
        """Fills the caches where `text` begins with this prompt, and counts it as read."""
        count = len(self.ids)
        if tuple(text.draw.tokens[:count]) != self.ids:
            return
        with programs.filling(text):
            for state, array in zip(states_of(programs.caches), self.arrays, strict=True):
                with state.lock:
                    state.on(HOST).array[..., :count, :] = array
            # At least one token is always read: its logits are what the next is chosen by, and no
            # file has them.
            text.read = min(count, len(text.draw.tokens) - 1)


def write_prompt(path: str | Path, programs: Programs, text: Text) -> None:
    """Writes what the caches hold of a text that was read alone; atomically."""
    if not programs.can_rewind:
        raise InputError("save_prompt: the model has recurrent layers, which keep no positions")
    ids = np.array(text.draw.tokens[: text.read], np.int32)
    held = {"ids": ids, "model": _model_digest(programs.model)}
    for number, state in enumerate(states_of(programs.caches)):
        held[f"states.{number}"] = state.numpy()[..., : len(ids), :]
    save_safetensors(path, {**held, "digest": _digest(held)})


def read_prompt(path: str | Path, programs: Programs) -> Prompt:
    """Raises LoadError for a file that is damaged, or of another model or a longer context."""
    place = given_path(path)
    held = read_safetensors(place)
    states = states_of(programs.caches)
    names = ["ids", "model", *(f"states.{number}" for number in range(len(states)))]
    if {"ids", "model", "digest"} - held.keys() or held["ids"].ndim != 1:
        raise LoadError(f"{place}: not a file of save_prompt: it has no ids and digests")
    digest = held.pop("digest")
    # Before anything of it is used: keys of a damaged file would give wrong text, and nothing else
    # would tell.
    if not np.array_equal(digest, _digest(held)):
        raise LoadError(f"{place}: damaged: its digest does not fit; save the prompt again")
    if not np.array_equal(held["model"], _model_digest(programs.model)) or held.keys() != {*names}:
        raise LoadError(f"{place}: the prompt of another model; save it with this one")
    ids = held["ids"]
    if len(ids) > programs.context:
        raise LoadError(f"{place}: {len(ids)} tokens, but the context is {programs.context}")
    arrays = tuple(held[name] for name in names[2:])
    return Prompt(tuple(ids.tolist()), arrays)


def _digest(held: Mapping[str, Array]) -> Array:
    """The hash of the arrays' names, types and elements."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name in sorted(held):
        array = np.ascontiguousarray(held[name])
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def _model_digest(model: Decoder) -> Array:
    """The hash of the configuration, and of bytes of every weight at even distances."""
    held: dict[str, Array] = {"config": np.frombuffer(repr(model.config).encode(), np.uint8)}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        # Bytes at even distances over the whole weight: a model that was trained further differs
        # everywhere.
        data = np.ascontiguousarray(parameter.numpy()).reshape(-1).view(np.uint8)
        held[f"{name} {parameter.shape}"] = data[:: max(1, len(data) // SAMPLED_BYTES)]
    return _digest(held)
