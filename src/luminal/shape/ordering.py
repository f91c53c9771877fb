"""The order in which operands are written: it depends on nothing but their structure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from luminal.shape.expression import Symbol

if TYPE_CHECKING:
    from luminal.shape.expression import Expression, SortKey

_DIGITS = "0123456789"
_LAST = chr(0x10FFFF)
"""The name under which constants sort: after every symbol."""
_RANK = {op: rank for rank, op in enumerate(("symbol", "mul", "add", "floordiv", "mod"))}


def sort_key(node: Expression) -> SortKey:
    """The key that orders operands: the first symbol's name (a number at its end as a number),
    size, op, then content.
    """
    # By structure, never by identity or hash seed: the order of operands is in every printed IR and
    # so in every cache key, which must be the same in all processes.
    digest = hashlib.blake2b(node.op.encode(), digest_size=16)
    if isinstance(node, Symbol):
        stem = node.name.rstrip(_DIGITS)
        number = int(node.name[len(stem) :] or -1)
        inner = b"" if node.extent is None else node.extent.sort_key[4]
        digest.update(repr((node.name, node.lo, node.hi)).encode() + inner)
        return (stem, number, 1, 0, digest.digest())
    if node.op == "const":
        return (_LAST, node.constant, 1, 0, b"%d" % node.constant)
    keys = [arg.sort_key for arg in node.args]
    for key in keys:
        digest.update(b"%d:" % len(key[4]) + key[4])
    first = min(keys)
    size = 1 + sum(key[2] for key in keys)
    return (first[0], first[1], size, _RANK.get(node.op, 9), digest.digest())
