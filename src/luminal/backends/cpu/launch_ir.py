"""The launch list's records, which the native driver walks (`launch_walk.py`).

A program is data: rows of launches and loop marks, the buffers each launch takes (found through
one table of addresses, by loop iteration), and one run record.
"""

from __future__ import annotations

import numpy as np

KERNEL, LOOP_BEGIN, LOOP_END = 0, 1, 2
"""Kinds of a launch."""

BARRIER, SERIAL = 1, 2
"""Flags of a launch: it waits for all chunks before it; the caller runs all its chunks."""

MAX_LOOP_DEPTH = 16

LAUNCH = np.dtype(
    [
        ("kind", "i4"),
        ("flags", "i4"),
        ("fn", "u8"),  # address of the kernel
        ("grid", "i8"),  # chunks; of a LOOP_BEGIN: trips
        ("n_slots", "i8"),
        ("slot_start", "i8"),  # its first row in the slot refs
        ("dims", "u8"),  # address of the kernel's i64 parameters
        ("jump", "i8"),  # LOOP_BEGIN: the row after its end; LOOP_END: the row of its begin
    ]
)
"""A row of the launch list."""

SLOT_REF = np.dtype(
    [(name, "i8") for name in ("base", "depth", "offset", "modulus", "stride", "start")]
)
"""A buffer: `table[base + (i + offset) % modulus] + start + i * stride` (bytes), i: iter[depth]."""

RUN = np.dtype(
    [
        ("launches", "u8"),
        ("n", "i8"),
        ("table", "u8"),  # addresses of buffers
        ("slot_refs", "u8"),
        ("scratch", "u8"),
        ("scratch_stride", "i8"),  # bytes of scratch per member
        ("max_threads", "i8"),
        ("times", "u8"),  # address of nanoseconds by launch (i64), or 0: a run without a profile
        ("wakes", "i8"),  # 0: only workers that are awake join
        ("places", "u8"),  # address of (entry of the table, number of an array) for `point`
        ("n_places", "i8"),
        ("bars", "u8"),  # of each member: a count, and room for so many bars (`Bars`)
        ("bar_room", "i8"),
    ]
)
"""What the native entry takes: one run of one program."""
