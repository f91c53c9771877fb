"""What collectives on devices are compared with: the host does each where it stands in the list,
once all before it has run, and no run is recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal.runtime.driver import DevicePointer, Driver
from luminal.runtime.exchange import Exchange
from tests.distributed.cards import CARDS


def carry(monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    """Has the devices of these ranks go by way of the host from now on."""
    kind = type(CARDS.backend(0).memory.driver)
    assert {type(CARDS.backend(rank).memory.driver) for rank in range(ranks)} == {kind}
    monkeypatch.setattr(kind, "exchange", _exchange)
    monkeypatch.setattr(kind, "record", lambda *_: None)


def _exchange(driver: Driver, exchange: Exchange) -> None:
    if exchange.phase == "wait":
        return
    assert exchange.communicator is not None
    moved, dtype = exchange.moved, exchange.moved.dtype.numpy
    source, target = (np.empty(size // dtype.itemsize, dtype) for size in exchange.sizes)
    driver.read(_place(driver, moved.source, source), source)
    exchange.communicator.engine.run(
        moved.kind, source, target, label=exchange.title, monoid=moved.monoid, pairs=moved.pairs,
        first=True,
    )  # fmt: skip
    driver.write(_place(driver, moved.target, target), target)


def _place(driver: Driver, address: int, array: Any) -> DevicePointer:
    return DevicePointer(driver.block_at(address, array.nbytes), 0)
