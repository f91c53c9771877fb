"""Products whose factors come in boxes, over the stand-in: run by test_driver.py in a process of
its own. The kernels are those that an H100 gets: the stand-in makes tensor maps by the rules of the
driver, and boxes are cut out by what stands in these.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cuda.tensor_maps import encoded
from luminal.base.errors import DeviceError
from luminal.kernel.boxes import Tensor
from tests.simt import stand_in


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with stand_in.nvrtc_stands_in(monkeypatch, tmp_path, LUMINAL_POISON=None):
        yield


def calls(name: str) -> int:
    """How many tensor maps the driver has made, or clusters' kernels launched."""
    return int(ctypes.CDLL(stand_in.CUDA).stand_in_calls(name.encode()))


N = 256


def two_products() -> lm.Graph:
    """y = (a @ b) @ c, whose second product reads what the first one has left on the device."""
    cx = lm.Graph()
    a, b, c = (cx.tensor((N, N), lm.bfloat16, name) for name in "abc")
    ((a @ b) @ c).output("y")
    return cx


@pytest.mark.long
@pytest.mark.parametrize("dispatch", ["graph", "list", "one"])
def test_maps_are_made_once(dispatch: str) -> None:
    """For each operand at its place; small numbers, so that sums are exact whatever their order."""
    before, clustered = calls("map"), calls("clustered")
    runs, rng = 2, np.random.default_rng(0)
    exe = two_products().compile(backend="cuda", dispatch=dispatch)
    for _ in range(runs):
        a, b, c = (
            (rng.integers(-1, 2, (N, N)) * (rng.random((N, N)) < 0.1)).astype(lm.bfloat16.numpy)
            for _ in "abc"
        )
        found = exe({"a": a, "b": b, "c": c})["y"]
        wide = [each.astype(np.float64) for each in (a, b, c)]
        np.testing.assert_array_equal(found, (wide[0] @ wide[1] @ wide[2]).astype(found.dtype))
    assert calls("map") - before == 4
    # Blocks of the same columns are brought together, but by one kernel's tasks.
    assert (calls("clustered") > clustered) == (dispatch != "one")


def test_a_map_that_the_driver_refuses_is_an_error() -> None:
    tensor = Tensor("b0", 2, (64, 64), (1, 60), (64, 64), 128)
    with pytest.raises(DeviceError, match="INVALID_VALUE"):
        encoded(tensor, 1 << 12)
