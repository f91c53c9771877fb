"""Where what draws gets random keys from: `with nn.keyed(key): y = model(x)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from luminal.errors import GraphError
from luminal.frontend.random import fold_in
from luminal.records import dataclass

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@dataclass(slots=True)
class _Keys:
    """One key, and how often was drawn from it."""

    key: Tensor
    taken: int = 0


_keys: ContextVar[_Keys | None] = ContextVar("luminal_nn_keys", default=None)


@contextmanager
def keyed(key: Tensor) -> Iterator[None]:
    """Inside the block each call of what draws (dropout) gets a key of its own from `key`.

    Make `key` an input of the graph, or carry it in a State, and give each run another one.
    """
    token = _keys.set(_Keys(key))
    try:
        yield
    finally:
        _keys.reset(token)


def next_key(what: str) -> Tensor:
    """The key of one call; raises GraphError outside of `keyed`."""
    keys = _keys.get()
    if keys is None:
        raise GraphError(
            f"{what}: it draws random numbers and has no random key; call model.eval() for "
            "inference, or call it inside `with nn.keyed(key):`, as for training"
        )
    keys.taken += 1
    return fold_in(keys.key, keys.taken)
