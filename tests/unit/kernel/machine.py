"""The machine whose schedules tests of placement ask for."""

from __future__ import annotations

from tests.machines import vectors

MACHINE = vectors(256, registers=16)  # like AVX2: 8 lanes of f32
