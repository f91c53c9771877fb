"""What families share in reading a `config.json`."""

from __future__ import annotations

from luminal.errors import LoadError
from luminal.loaders.fields import Fields


def head_dim(fields: Fields, hidden: str, heads: str) -> int:
    """The width of a head: these keys' quotient. Raises LoadError where it is no integer."""
    width, count = fields.integer(hidden), fields.integer(heads)
    if width % count:
        raise LoadError(f"{fields.path}: {hidden} {width} does not divide among {heads} {count}")
    return width // count
