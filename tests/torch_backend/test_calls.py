"""A share of the cases of `calls`: calls near samples of PyTorch's operator database."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import date

import pytest
from torch.testing._internal import common_methods_invocations

from tests.long_share import mostly_long
from tests.torch_backend.calls import drawn, failure
from tests.torch_backend.opinfo_sweep import unseeded

pytestmark = pytest.mark.usefixtures("fresh")

TODAY = 1000 * date.today().toordinal()
# Most were wrong in a way of their own. Seeds of the day, of which one in 200 may be, are long.
FOUND = (10117, 10280, 50000, 50041, 50266, 50304, 50739)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", unseeded)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("seed", mostly_long(FOUND, 4))
def test_calls_near_samples(seed: int) -> None:
    given = drawn(seed)
    assert failure(given) == "", given


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_many_calls_near_samples(part: int) -> None:
    for seed in range(TODAY + 100 + 50 * part, TODAY + 150 + 50 * part):
        given = drawn(seed)
        assert failure(given) == "", given
