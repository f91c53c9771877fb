"""luminal.pt2.compile: modules compiled ahead, through torch.export."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import luminal as lm
from luminal import pt2

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


def test_what_is_refused(model: Any) -> None:
    with pytest.raises(lm.DTypeBoundaryError, match=r"x: compiled for torch\.float32, got torch"):
        model(torch.ones(5, 4, dtype=torch.float64), torch.ones(3))
    with pytest.raises(lm.ShapeError, match=r"scale: compiled for \(3\), got \(4,\)"):
        model(torch.ones(5, 4), torch.ones(4))
    with pytest.raises(lm.InputError, match=r"takes 2 inputs \(x, scale\), got 1"):
        model(torch.ones(5, 4))


@pytest.mark.parametrize("given", [{"x": 0}, {0: [0]}, "auto"], ids=["name", "position", "auto"])
def test_open_dims(given: Any) -> None:
    made = pt2.compile(nn.Linear(4, 3), (torch.ones(5, 4),), 0, dynamic_dim=_named(given))
    assert made(torch.ones(2, 4))[0].shape == (2, 3)


def _named(given: Any) -> Any:
    return {"input": 0} if given == {"x": 0} else given
