"""Kernels of each kind keep their values in registers on AMD's chips."""

from __future__ import annotations

import pytest

from tests.backends.c_family.offline import skip_without
from tests.backends.hip.resources import CHIPS, KINDS, packed, taken
from tests.backends.packed_products import KINDS as PACKED

pytestmark = pytest.mark.long


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_spilled(kind: str, chip: str) -> None:
    skip_without("hip")
    assert taken(KINDS[kind](), chip).spilled == 0


WHOLE = [("gfx942", kind) for kind in PACKED]
WHOLE += [("gfx1100", kind) for kind in ("Q8_0", "Q4_0", "Q5_1", "Q4_K", "Q6_K", "TQ2_0")]
"""Of RDNA, whose lanes have 256 registers, some kinds spill."""


@pytest.mark.parametrize(("chip", "kind"), WHOLE)
def test_packed_weights_are_decoded_into_fragments_from_8_rows_on(chip: str, kind: str) -> None:
    skip_without("hip")
    one, eight = (taken(packed(kind, rows)(), chip) for rows in (1, 8))
    assert one.spilled == eight.spilled == 0
    assert one.matrices == 0
    assert eight.matrices > 0
