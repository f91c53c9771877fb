"""What can be wrong about a ring of blocks in shared memory, planted into the products' kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from luminal.kernel.product_blocks import Products
from luminal.kernel.tile_ir import Barrier, Commit

Fault = Callable[[pytest.MonkeyPatch], None]


def wait_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Products.wait
    monkeypatch.setattr(
        Products, "wait", lambda self, younger, *running: own(self, younger + 1, *running)
    )


def no_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Products.wait

    def without(self: Products, *batches: Any) -> None:
        own(self, *batches)
        assert isinstance(self.blocks.stack[-1].statements.pop(), Barrier)

    monkeypatch.setattr(Products, "wait", without)


def no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Products.send

    def without(self: Products, step: Any, turn: Any) -> None:
        own(self, step, turn)
        statements = self.blocks.stack[-1].statements
        assert isinstance(statements.pop(), Commit)

    monkeypatch.setattr(Products, "send", without)


def freed_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block goes where the one is that is multiplied now."""
    own = Products.send

    def early(self: Products, step: Any, turn: Any) -> None:
        own(
            self,
            step,
            turn if turn.is_const else (step + 1 - self.tiling.buffers) % self.tiling.buffers,
        )

    monkeypatch.setattr(Products, "send", early)


def never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks after the first ones go nowhere."""
    own = Products.send
    monkeypatch.setattr(
        Products, "send", lambda self, step, turn: own(self, step, turn) if turn.is_const else None
    )


FAULTS = (wait_too_short, no_barrier, no_commit, freed_early, never_freed)
