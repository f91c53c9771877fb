"""The ops of PyTorch's list that pass, as the checked-in file says."""

from __future__ import annotations


def passing(text: str) -> frozenset[str]:
    """The names that the list says pass."""
    passes = text.split("passes:\n")[1].split("\nfails:")[0]
    return frozenset(line.split()[0] for line in passes.splitlines() if line.strip())
