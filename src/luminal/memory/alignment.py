"""Where memory that is planned begins, and how much of it a lane of a device takes at once."""

from __future__ import annotations

ALIGNMENT = 64  # bytes: a line of memory, and the widest register
ACCESS = 16
"""Bytes that a lane loads, stores or copies to shared memory by one instruction, at most. A run of
so many is read at once only where it surely starts at a multiple of it."""
