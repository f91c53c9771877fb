"""The chip that times are of, in words: rows of one chip say nothing of another's."""

from __future__ import annotations

from luminal.backends import registry
from luminal.backends.backend import Backend, Interpreter


def chip_of(backend: Backend) -> str:
    """The kind of a backend and its chip: the same on every machine that has such a one."""
    return f"{backend.name.partition(':')[0]}: {backend.hardware}"


def chips_here() -> tuple[str, ...]:
    """The chips of this machine that can be used, each once."""
    chips: dict[str, None] = {}
    for row in registry.BACKENDS.values():
        if row.unavailable() is None:
            for backend in map(row.current, range(row.count())):
                if not isinstance(backend, Interpreter):
                    chips.setdefault(chip_of(backend))
    return tuple(chips)
