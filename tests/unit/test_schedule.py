"""Rule-made schedules of contractions over windows: which axes become vectors, rows, strips."""

from __future__ import annotations

from typing import Any

import pytest

import luminal as lm
from luminal.compiler import lower_to_program
from luminal.kernel.knobs import Choices, KnobError
from luminal.kernel.tile_ir import Kernel, Loop
from luminal.target import Target

TARGET = Target(
    "test", "", "", (), "", 256, 32, True, False, 2, 32 << 10, 1 << 20, 16 << 20
)  # 8 lanes of f32, 32 registers


def tiles(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> tuple[Kernel, set[Any]]:
    """The kernel of a convolution, and (extent, unroll, vector) of its loops in tiles."""
    cx = lm.Graph()
    cx.tensor(x, name="x").conv2d(cx.tensor(w, name="w"), **options).output("y")
    (found,) = lower_to_program(cx.graph(), TARGET).kernels
    loops = [s for s in found.statements() if isinstance(s, Loop)]
    return found, {
        (str(s.axis.extent), s.unroll, s.vector) for s in loops if s.unroll * s.vector > 1
    }


def test_strided_windows_are_packed_into_strips() -> None:
    """Lanes run along output columns though those lie two apart in x; the kernel's width is 3."""
    found, loops = tiles((1, 32, 33, 33), (64, 32, 3, 3), stride=2)
    assert found.scratch
    assert {vector for _, _, vector in loops} - {1} == {8}


@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_the_register_tile_are_output_channels(stride: int) -> None:
    """Also where the picture is higher than there are channels: only the weight has them."""
    _, loops = tiles((1, 3, 225, 225), (34, 3, 3, 3), stride=stride)
    assert any(extent == "34" and unroll > 1 for extent, unroll, _ in loops)


def test_knobs_are_legal_values_of_choices_that_are_asked_for_once() -> None:
    choices = Choices("Sum", (("streams", 2), ("tile", "8x2")))
    assert choices.pick("streams", 4, (2, 4, 1)) == 2
    assert choices.offered == {"streams": (4, 2, 1)}
    with pytest.raises(AssertionError, match="Sum: knob streams is asked for twice"):
        choices.pick("streams", 1)
    with pytest.raises(KnobError, match="Sum: knob tile=8x2 is not legal here; take one of 4x2"):
        choices.pick("tile", "4x2")
    with pytest.raises(KnobError, match="Sum: no knob pack here; its knobs are: none"):
        Choices("Sum", (("pack", 1),)).finish()
