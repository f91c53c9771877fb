"""Powers of two around a number: lanes are dealt by them."""

from __future__ import annotations


def ceiling(n: int) -> int:
    """The least that is not below."""
    return 1 << (max(1, n) - 1).bit_length()


def floor(n: int) -> int:
    """The greatest that is not above; 1 at least."""
    return 1 << (max(1, n).bit_length() - 1)


def powers_to(most: int) -> list[int]:
    """Powers of two, up to that."""
    return [1 << n for n in range(most.bit_length())]
