"""`memory_limit`: a step computes values again until it fits, or says what it needs at least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.byte_sizes import bytes_of
from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.training import ArrayDataset, Batches, fit
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
WIDTH, ROWS = 16, 256
X = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)


class Block(nn.Module):
    def __init__(self, inner: int) -> None:
        self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


def network(inner: Sequence[int]) -> nn.Sequential:
    lm.manual_seed(0)
    return nn.Sequential(*map(Block, inner))


def graph(inner: Sequence[int], rows: Any = ROWS) -> tuple[lm.Graph, nn.Module]:
    model = network(inner)
    cx = lm.Graph()
    loss = (model(cx.tensor((rows, WIDTH), name="x")) ** 2).mean().output("loss")
    optim.SGD(model.parameters(), lr=0.1).step(loss)
    return cx, model


EQUAL, VARIED = [64] * 8, [48, 64, 80, 96]


@pytest.mark.parametrize("inner", mostly_long([VARIED, EQUAL], 0), ids=["unlike", "rolled"])
def test_it_is_kept_with_the_same_steps(inner: list[int]) -> None:
    found = []
    arena = 0
    for share in (None, 0.7):
        cx, model = graph(inner)
        step = lm.compile(cx, memory_limit=None if share is None else int(share * arena))
        losses = [float(step({"x": X})["loss"]) for _ in range(3)]
        held = step.memory_report().arena_bytes
        arena = arena or held
        assert held <= (share or 1.0) * arena
        found.append((losses, [p.numpy() for p in model.parameters()]))
    for losses, parameters in found[1:]:
        # 8 ulp: the same sums by other kernels, two steps
        assert losses == pytest.approx(found[0][0], rel=1e-6)
        for one, other in zip(parameters, found[0][1], strict=True):
            # 8 ulp: the same sums by other kernels, two steps
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_limit_that_is_kept_anyway_changes_nothing() -> None:
    one, other = (lm.compile(graph(EQUAL)[0], memory_limit=n) for n in (None, "1GB"))
    assert len(one.report().kernels) == len(other.report().kernels)


@pytest.mark.long
def test_dims_count_as_large_as_they_may_be() -> None:
    def arena(limit: int | None) -> int:
        cx, _ = graph(EQUAL, lm.Graph().dim("n", 1, ROWS))
        step = lm.compile(cx, memory_limit=limit)
        step({"x": X})
        return step.memory_report().arena_bytes

    limit = arena(None) * 3 // 4
    assert arena(limit) <= limit


@pytest.mark.long
def test_a_limit_out_of_reach() -> None:
    with pytest.raises(lm.CompileError) as error:
        lm.compile(graph(EQUAL)[0], memory_limit="10KB")
    words = str(error.value).replace(",", "").split()
    least = int(words[words.index("needs") + 1])
    assert "10000 are allowed" in " ".join(words)
    made = lm.compile(graph(EQUAL)[0], memory_limit=least)
    made({"x": X})
    assert made.memory_report().arena_bytes <= least


@pytest.mark.long
def test_fit_keeps_it() -> None:
    def losses(limit: int | str | None) -> list[float]:
        model = network(EQUAL)
        data = Batches(ArrayDataset(X, -X), ROWS, seed=1)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        options: dict[str, Any] = {"steps": 2, "progress": False, "memory_limit": limit}
        return fit(model, F.mse_loss, data, optimizer, **options).losses

    # 8 ulp: the same sums by other kernels, two steps
    assert losses("1.2MB") == pytest.approx(losses(None), rel=1e-6)
    with pytest.raises(lm.CompileError, match="100,000 are allowed"):
        losses("100KB")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(5, 5), ("200MB", 200_000_000), ("1.5 GiB", 3 << 29), ("64KiB", 1 << 16), ("7", 7)],
)
def test_bytes(limit: int | str, expected: int) -> None:
    assert bytes_of(limit) == expected


@pytest.mark.parametrize("limit", ["much", "-5", "5 XB", True, 1.5e6])
def test_what_is_no_limit(limit: Any) -> None:
    if limit == 1.5e6:
        assert bytes_of(limit) == 1_500_000
        return
    with pytest.raises(lm.CompileError, match="give bytes"):
        lm.compile(graph([4])[0], memory_limit=limit)


def test_the_reference_has_no_arena() -> None:
    with pytest.raises(lm.CompileError, match="no arena"):
        lm.compile(graph([4])[0], "reference", memory_limit=10)
