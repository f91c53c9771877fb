"""The states of the random generators that a loader may draw from, kept and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from luminal.memory.arrays import Array
from luminal.memory.data import array_of

Generators = dict[str, Any]
"""States by the name of their generator, as a checkpoint can hold them."""


def states(loader: Any) -> Generators:
    """The states of Python's, NumPy's and PyTorch's own generators, the latter's where it is
    imported, and of those that a DataLoader or its samplers were made with.
    """
    version, words, normal = random.getstate()
    now: Generators = {"python": (version, np.array(words, np.uint32), normal)}
    now["numpy"] = tuple(np.random.get_state())
    if (torch := sys.modules.get("torch")) is not None:
        now["torch"] = array_of(torch.get_rng_state()).copy()
    return now | {name: array_of(g.get_state()).copy() for name, g in _of_loader(loader).items()}


def restore(loader: Any, kept: Mapping[str, Any]) -> None:
    """Puts back what `states` gave; what is not there any more is left out."""
    if "python" in kept:
        version, words, normal = kept["python"]
        random.setstate((version, tuple(map(int, words)), normal))
    if "numpy" in kept:
        np.random.set_state(kept["numpy"])
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if "torch" in kept:
        torch.set_rng_state(_tensor(torch, kept["torch"]))
    for name, generator in _of_loader(loader).items():
        if name in kept:
            generator.set_state(_tensor(torch, kept[name]))


@contextmanager
def kept(loader: Any) -> Iterator[None]:
    """Inside the block generators may be drawn from; afterwards they are as they were."""
    before = states(loader)
    try:
        yield
    finally:
        restore(loader, before)


def _of_loader(loader: Any) -> dict[str, Any]:
    """The generators of a DataLoader and its samplers by where they are, each once."""
    by_id: dict[int, tuple[str, Any]] = {}
    batches = getattr(loader, "batch_sampler", None)
    holders = {"loader": loader, "sampler": getattr(loader, "sampler", None),
               "batch_sampler": batches, "inner": getattr(batches, "sampler", None)}  # fmt: skip
    for name, holder in holders.items():
        generator = getattr(holder, "generator", None)
        if hasattr(generator, "get_state") and hasattr(generator, "set_state"):
            by_id.setdefault(id(generator), (name, generator))
    return dict(by_id.values())


def _tensor(torch: Any, array: Array) -> Any:
    return torch.from_numpy(np.array(array, np.uint8))
