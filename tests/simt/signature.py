"""A kernel as found in a text."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """A kernel of a text and the C++ that makes it callable with arguments given by address.

    `most_threads` is what its launch bounds allow in a group.
    """

    name: str
    wrapper: str
    most_threads: int = 1024
