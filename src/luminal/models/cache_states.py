"""The States of a language model's caches, and how ranks share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from luminal.base.errors import InputError
from luminal.distribute.mesh import Mesh
from luminal.memory.state import State
from luminal.nn.cache import KVCache
from luminal.session.parallel import shard


def states_of(caches: Sequence[Any]) -> list[State]:
    """The States of caches of any kind, each once."""
    states: list[State] = []
    for cache in caches:
        held = (getattr(cache, field.name) for field in fields(cache))
        for holder in held:
            states += [state for state in _listed(holder) if isinstance(state, State)]
    return list(dict.fromkeys(states))


def _listed(x: Any) -> Sequence[Any]:
    return x if isinstance(x, tuple) else (x,)


def spread(caches: Sequence[Any], mesh: Mesh) -> None:
    """Cuts keys and values ([batch,] heads, positions, features) over the one axis of a mesh.

    Raises InputError for a cache of another kind, which has no heads.
    """
    for cache in caches:
        if not isinstance(cache, KVCache):
            raise InputError(
                f"--tensor {mesh.shape[0]}: the model keeps a {type(cache).__name__}, which has no "
                "heads of keys and values to be shared out; leave --tensor out"
            )
    for state in states_of(caches):
        shard(state, (*[None] * (len(state.shape) - 3), *mesh.names, None, None), mesh)
