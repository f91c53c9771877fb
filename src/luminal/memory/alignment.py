"""Where memory that is planned begins."""

from __future__ import annotations

ALIGNMENT = 64  # bytes: a line of memory, and the widest register
