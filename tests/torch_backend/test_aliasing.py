"""Tensors that lie over each other or have gaps: a share of the cases of `aliasing`, and some."""

from __future__ import annotations

import random
import warnings
from datetime import date
from typing import Any

import pytest
import torch

from luminal import luminal_backend
from luminal.torch_backend import separate
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.separate import Places, Writes
from tests.long_share import mostly_long
from tests.torch_backend.aliasing import drawn, failure
from tests.torch_backend.whole import compiled

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.*is deprecated"),
    pytest.mark.filterwarnings("ignore:luminal. PyTorch runs"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore:Use of index_put_"),
]

TODAY = 100 * date.today().toordinal()
FOUND = (10, 137, 478, 1339, 1591, 2231, 2233, 3499)  # each was wrong in a way of its own
EVERY = [*FOUND[:4], *range(TODAY, TODAY + 4), *FOUND[4:]]


@pytest.mark.parametrize("seed", mostly_long(EVERY, 3))
def test_views_of_shared_memory(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert failure(drawn(seed)) == "", drawn(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_many_views_of_shared_memory(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(TODAY + 10_000 + 50 * part, TODAY + 10_050 + 50 * part):
            assert failure(drawn(seed)) == "", drawn(seed)


def halve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(0.5)
    return x + y


def test_a_later_call_with_arguments_that_lie_over_each_other() -> None:
    fast = torch.compile(halve, backend=luminal_backend)
    fast(torch.ones(4), torch.ones(4))
    ours, theirs = torch.arange(6.0), torch.arange(6.0)
    found, wanted = fast(ours[:4], ours[2:]), halve(theirs[:4], theirs[2:])
    torch.testing.assert_close((found, ours), (wanted, theirs))
    with pytest.raises(RuntimeError, match="single memory location"):
        fast(torch.ones(1).expand(4), torch.ones(4))


def test_a_copy_is_one_also_of_a_view_with_gaps_beside_another_view() -> None:
    def filled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.mul_(2)
        return x.contiguous()

    whole = torch.arange(48.0, requires_grad=True) * 1
    x, y = whole.as_strided((3, 1), (6, 1), 0), whole[17:29]
    found = torch.compile(filled, backend=luminal_backend)(x, y)
    assert found.stride() == (1, 1)
    assert found.data_ptr() != x.data_ptr()


def test_such_arguments_are_an_error_if_that_is_asked_for() -> None:
    fast, x = compiled(halve), torch.ones(6)
    fast(torch.ones(4), torch.ones(4))
    with pytest.raises(UnsupportedError, match="arguments lie over each other"):
        fast(x[:4], x[2:])


@pytest.mark.parametrize(
    ("written", "apart"),
    [({0}, [(0, 4), (4, 4)]), ({1}, [(4, 4), (0, 4)]), ({2}, [(0, 4), (0, 4), (4, 2)])],
)
def test_tensors_that_lie_apart(written: set[int], apart: Any) -> None:
    x = torch.zeros(8)
    places = Places([x[:n] for _, n in apart], Writes(written))
    args = [x[start : start + n] for start, n in apart]
    assert places.are_apart(args)
    assert places.are_apart(args)
    args[-1], last = x[3 : 3 + args[-1].numel()], args[-1]
    assert not places.are_apart(args)
    assert not places.are_apart(args)
    args[-1] = last
    assert places.are_apart(args)


def test_columns_lie_apart_though_their_spans_do_not() -> None:
    x = torch.zeros(4, 4)
    places = Places([x[:, :2], x[:, 2:]], Writes({0}))
    assert places.are_apart([x[:, :2], x[:, 2:]])
    assert not places.are_apart([x[:, :2], x[:, 1:3]])


@pytest.mark.parametrize("dynamic", [False, True], ids=["literal", "open"])
def test_results_with_gaps_have_the_strides_of_eager_mode(dynamic: bool) -> None:
    def views(x: torch.Tensor) -> Any:
        return (
            (x + 1)[:, ::2],
            (x * 2)[:, -1],
            x.sum(0, keepdim=True).expand(3, -1),
            (x - 1).unfold(1, 2, 1),
            (x[:1, :1].expand(1, 4) * 1).to(torch.float64),
        )

    fast = compiled(views, dynamic=dynamic)
    for n in (6, 6 if not dynamic else 9):
        x = torch.randn(4, n)
        found, wanted = fast(x), views(x)
        torch.testing.assert_close(found, wanted)
        assert [y.stride() for y in found] == [y.stride() for y in wanted]


def _places(x: torch.Tensor) -> set[int]:
    """The elements of its storage that a tensor has."""
    starts = {int(x.storage_offset())}
    for n, step in zip(x.shape, x.stride(), strict=True):
        starts = {start + k * step for start in starts for k in range(n)}
    return starts


def test_no_shared_element_is_missed() -> None:
    """PyTorch's own test of overlap misses `B[1:4, :1]` and `B[3:6, :1]` of two columns."""
    rng = random.Random(0)
    for _ in range(3000):
        base = torch.zeros(rng.randint(20, 200))
        views = []
        while len(views) < 2:
            rank = rng.randint(1, 3)
            shape = [rng.randint(1, 6) for _ in range(rank)]
            steps = [rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 24]) for _ in range(rank)]
            far = sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
            if far < len(base):
                start = rng.randint(0, len(base) - 1 - far)
                views.append(base.as_strided(shape, steps, start))
        a, b = views
        if not _places(a).isdisjoint(_places(b)):
            assert separate._overlap(a, b), (a.shape, a.stride(), b.shape, b.stride())


def test_columns_that_share_none_lie_apart() -> None:
    base = torch.zeros(6, 8)
    for left, right in ((slice(3), slice(3, 8)), (slice(0, 8, 2), slice(1, 8, 2))):
        assert not separate._overlap(base[:, left], base[1:, right])
    assert separate._overlap(base[:, :4], base[:, 3:])


def test_sliced_columns_over_each_other_run_in_eager_mode() -> None:
    def written(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return z * 2

    base = torch.zeros(6, 2)
    found = torch.compile(written, backend=luminal_backend)(base[1:4, :1], base[3:6, :1])
    assert found.flatten().tolist() == [2, 0, 0]


@pytest.mark.filterwarnings("ignore:luminal. PyTorch runs a training graph")
@pytest.mark.parametrize("copied", [lambda x: x.contiguous(), lambda x: x.flatten()])
def test_a_written_copy_of_a_written_view_with_gaps_stays_a_copy(copied: Any) -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        copied(x.clamp_(-2, 3)).mul_(2)
        return x + 1

    def memory(function: Any) -> list[float]:
        base = torch.arange(24.0, requires_grad=True) * 1
        function(base.as_strided((3, 2, 2), (6, 2, 1), 4))
        return base.tolist()

    assert memory(torch.compile(written, backend=luminal_backend)) == memory(written)


def test_a_written_dense_tensor_of_open_sizes_is_compiled() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).add_(1).reshape(-1).mul_(3)

    function = torch.compile(written, backend=luminal_backend, dynamic=True)
    for rows in (3, 5):
        x = torch.ones(rows, 4, requires_grad=True)
        with warnings.catch_warnings(action="error", category=UserWarning):
            result = function(x)
        result.sum().backward()
        assert result.tolist() == [9.0] * 4 * rows
        assert x.grad is not None
        assert x.grad.tolist() == [[6.0] * 4] * rows


@pytest.mark.filterwarnings("ignore:luminal. PyTorch runs a graph that writes one place")
def test_a_write_through_a_view_with_shared_places_is_seen_in_all_of_them() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        rows = x.as_strided((3, 2), (2, 2))
        rows.select(0, 1).sub_(3)
        return rows + 0

    compiled_one = torch.compile(written, backend=luminal_backend)
    assert compiled_one(torch.arange(8.0)).tolist() == written(torch.arange(8.0)).tolist()
