"""luminal.pt2.compile: modules compiled ahead, through torch.export."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import luminal as lm
from luminal import pt2
from tests.long_share import mostly_long

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class Counting(nn.Module):
    """Counts its calls, and scales its second input where it lies."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        scale.mul_(2)
        return torch.relu(self.linear(x)) * scale, x.sum()


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    return pt2.compile(
        Counting(), (torch.randn(5, 4), torch.ones(3)), search_iterations=0, dynamic_dim=0
    )


def test_results_and_writes(model: Any) -> None:
    torch.manual_seed(0)
    plain = Counting()
    for n in (5, 2, 9):
        x, scale, other = torch.randn(n, 4), torch.ones(3), torch.ones(3)
        with torch.no_grad():
            wanted = plain(x, other)
        found = model(x, scale)
        assert isinstance(found, tuple)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(scale, other)
    assert model.writeback_inputs == ("scale",)


def test_dims_and_shapes(model: Any) -> None:
    (name,) = model.dim_params
    assert model.has_dynamic_dims
    model.set_dim(name, 7)
    assert model.output_shapes() == [(7, 3), ()]
    with pytest.raises(lm.DimError, match="set_dim: other: no such dim"):
        model.set_dim("other", 1)
    for wrong in (-1, "a", True):
        with pytest.raises(lm.DimError, match="is no length; pass an int >= 0"):
            model.set_dim(name, wrong)


def test_what_is_refused(model: Any) -> None:
    with pytest.raises(lm.DTypeBoundaryError, match=r"x: compiled for torch\.float32, got torch"):
        model(torch.ones(5, 4, dtype=torch.float64), torch.ones(3))
    with pytest.raises(lm.ShapeError, match=r"scale: compiled for \(3\), got \(4,\)"):
        model(torch.ones(5, 4), torch.ones(4))
    with pytest.raises(lm.InputError, match=r"takes 2 inputs \(x, scale\), got 1"):
        model(torch.ones(5, 4))
    with pytest.raises(lm.InputError, match="x: takes a dense tensor on cpu"):
        model(torch.ones(5, 4, device="meta"), torch.ones(3))
    with pytest.raises(lm.InputError, match="x: takes a dense tensor on cpu"):
        model(torch.ones(5, 4).to_sparse(), torch.ones(3))


def test_a_written_input_has_memory_of_its_own(model: Any) -> None:
    memory = torch.ones(23)
    model(memory[3:].view(5, 4), memory[:3])
    with pytest.raises(lm.InputError, match=r"scale: is written, and x shares its memory"):
        model(memory[2:22].view(5, 4), memory[:3])


@pytest.mark.parametrize("given", [5, -3, {"input": [0, 2]}], ids=["5", "-3", "list"])
def test_dims_that_are_none(given: Any) -> None:
    with pytest.raises(lm.InputError, match=r"is out of range; input .* has 2 dims"):
        pt2.compile(nn.Linear(4, 3), (torch.ones(5, 4),), 0, dynamic_dim=given)


def test_lengths_of_one() -> None:
    shapes = ({0: torch.export.Dim("n")},)
    made = pt2.compile(nn.Linear(4, 3), (torch.ones(5, 4),), 0, dynamic_shapes=shapes)
    assert [made(torch.ones(n, 4))[0].shape[0] for n in (1, 2, 9)] == [1, 2, 9]
    with pytest.raises(lm.DimError, match=r"0 is outside its interval 1\.\."):
        made(torch.ones(0, 4))


class Spread(nn.Module):
    """Reductions that only an export takes apart."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.var(), x.var(0), x.std(1, keepdim=True), torch.var(x, 1, correction=0)


def test_one_tensor_is_the_only_input() -> None:
    x = torch.randn(5, 4)
    found = pt2.compile(Spread(), x, search_iterations=0)(x)
    for y, wanted in zip(found, Spread()(x), strict=True):
        torch.testing.assert_close(y, wanted)


@pytest.mark.parametrize("given", mostly_long([{"x": 0}, -2, {0: [0]}, "auto"], 1), ids=str)
def test_open_dims(given: Any) -> None:
    made = pt2.compile(nn.Linear(4, 3), (torch.ones(5, 4),), 0, dynamic_dim=_named(given))
    assert made(torch.ones(2, 4))[0].shape == (2, 3)


def _named(given: Any) -> Any:
    return {"input": 0} if given == {"x": 0} else given


def test_lengths_that_take_another_way_than_the_exported_one_are_refused() -> None:
    class Rooted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = int(x.shape[0] ** 0.5)  # which export computes once
            return x.sum() * torch.ones(rows, x.shape[1])

    compiled = pt2.compile(Rooted(), torch.ones(16, 3), search_iterations=0, dynamic_dim=0)
    for n in (16, 24):
        assert compiled(torch.ones(n, 3))[0].shape == (4, 3)
    with pytest.raises(
        lm.DimError, match=r"holds for .*x\.size\(\)\[0\].* == 4; compile the module"
    ):
        compiled(torch.ones(25, 3))
