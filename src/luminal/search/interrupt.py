"""Ctrl-C in searches: the first one ends a search with its best, the second whatever compiles.

A loop of compiles would go on for ever otherwise, a search further with each Ctrl-C.
"""

from __future__ import annotations

import time

SOON = 60.0  # seconds in which one who wants the end presses again
_latest = -SOON
_is_last_search = False  # did the first one end the search before this one?


def first() -> bool:
    """Notes a Ctrl-C in a search, and says whether that search ends with its best.

    Not within a minute of another one, nor in the search after one that was ended so.
    """
    global _latest, _is_last_search
    now = time.monotonic()
    is_first = not _is_last_search and now - _latest >= SOON
    _latest, _is_last_search = now, is_first
    return is_first


def finished() -> None:
    """Notes that a search came to its end by itself."""
    global _is_last_search
    _is_last_search = False


def forget() -> None:
    """Forgets every Ctrl-C, as if nobody had pressed it yet."""
    global _latest, _is_last_search
    _latest, _is_last_search = -SOON, False
