"""How many random instances of a rule are tried."""

from __future__ import annotations

SAMPLES = 150  # the rarest fault of `test_unsound` is met 3 to 9 times
