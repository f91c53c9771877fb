"""The innermost loops of a kernel in AArch64's assembly, and what they are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LABEL = re.compile(r"(\.L\w+):")
TARGET = re.compile(r"(\.L\w+)$")
MULTIPLY = re.compile(
    r"(fn?m(la|ls|add|sub|ad|sb)|ml[as]|[su]ml[as]l2?|bfdot|u?s?dot|sudot|bfmmla|[su]mmla)\b"
)
VECTOR = re.compile(r"\b[bhsdqvz]\d+\b")
STACK = re.compile(r"\bsp\b")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop's instructions, from its first to the branch back."""

    instructions: tuple[str, ...]

    @property
    def multiplies(self) -> int:
        """Instructions that multiply and add."""
        return sum(MULTIPLY.match(text) is not None for text in self.instructions)

    @property
    def loads(self) -> int:
        """Registers that are loaded: two by an instruction for pairs."""
        loads = [text for text in self.instructions if text.startswith("ld")]
        return sum(2 if text.startswith("ldp") else 1 for text in loads)

    @property
    def of_vectors(self) -> list[str]:
        """Instructions that name a register of vectors."""
        return [text for text in self.instructions if VECTOR.search(text)]

    @property
    def scalars(self) -> int:
        """The other ones: counters, addresses, branches."""
        return len(self.instructions) - len(self.of_vectors)

    @property
    def spills(self) -> list[str]:
        """What reads or writes the stack."""
        return [text for text in self.instructions if STACK.search(text)]


def innermost(assembly: str) -> list[Loop]:
    """The loops without loops in them, as they stand in the text. A loop is what lies between a
    label and a branch back to it.
    """
    spans = [*_spans(instructions := [*_lines(assembly)])]
    inner = [x for x in spans if not any(y != x and _is_within(y, x) for y in spans)]
    return [
        Loop(tuple(text for text in instructions[first : last + 1] if not LABEL.match(text)))
        for first, last in inner
    ]


def _lines(assembly: str) -> Iterator[str]:
    """Instructions and labels, with single spaces."""
    for line in assembly.splitlines():
        text = " ".join(line.split("//")[0].split())
        if text and (LABEL.match(text) or not text.startswith(".")):
            yield text


def _spans(lines: list[str]) -> Iterator[tuple[int, int]]:
    labels = {found[1]: n for n, text in enumerate(lines) if (found := LABEL.match(text))}
    for n, text in enumerate(lines):
        target = TARGET.search(text)
        if target and labels.get(target[1], n) < n:
            yield labels[target[1]], n


def _is_within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
