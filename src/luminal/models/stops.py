"""Strings at which a text ends, found while the text comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """Cuts a text before the first of `strings` in it.

    What could be the beginning of one is held back until more of the text is there.
    """

    def __init__(self, strings: Sequence[str] = ()) -> None:
        self._strings = tuple(strings)
        self._longest = max(map(len, self._strings), default=0)
        self._held = ""
        self.found: str | None = None
        """The string that ended the text."""

    def push(self, piece: str) -> str:
        """The text that this piece makes certain; "" after the end."""
        if self.found is not None:
            return ""
        text = self._held + piece
        places = [(text.find(string), string) for string in self._strings if string in text]
        if places:
            # The first in the text, and of two that begin at one place the first by name: the order
            # in which they were given does not matter.
            place, self.found = min(places)
            self._held = ""
            return text[:place]
        keep = self._beginning(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _beginning(self, text: str) -> int:
        """How many characters at the end may be the beginning of a string."""
        for count in range(min(self._longest - 1, len(text)), 0, -1):
            if any(string.startswith(text[-count:]) for string in self._strings):
                return count
        return 0

    def finish(self) -> str:
        """What was held back, at the end of the text."""
        rest, self._held = self._held, ""
        return rest
