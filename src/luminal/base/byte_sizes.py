"""Sizes of memory as users write them."""

from __future__ import annotations

import re

from luminal.base.errors import CompileError

UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT", 1)
}


def bytes_of(limit: int | str, what: str = "memory_limit") -> int:
    """The bytes of a limit such as `2_000_000`, "2MB" or "1.5 GiB". Raises CompileError, which
    begins with `what`, for anything else.
    """
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(\w*)", str(limit).strip())
    if isinstance(limit, bool) or matched is None or matched[2] not in UNITS:
        raise CompileError(f"{what} {limit!r}: give bytes, or a text as '200MB' or '1.5GiB'")
    return int(float(matched[1]) * UNITS[matched[2]])
