"""Operators of lists: each is what its calls of single tensors are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from luminal.torch_backend.foreach import taken_apart
from tests.long_share import mostly_long
from tests.torch_backend.whole import compiled

# of PyTorch's own modules, when Dynamo imports them
pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
]

SHAPES = ((3,), (2, 2), ())


def drawn(argument: Any) -> Any:
    """An argument of a schema: lists of tensors in which many functions are defined."""
    kind = str(argument.type)
    if kind == "List[Tensor]":
        return [torch.rand(shape) * 0.8 + 0.1 for shape in SHAPES]
    if kind in ("List[number]", "List[float]"):
        return [0.5, 2.0, 1.5]
    if kind == "Tensor":
        return torch.tensor(1.5)
    return 1.5 if kind == "number" else None


def calls() -> dict[Any, list[Any]]:
    """A call of each operator with all that has no default, or with every number too."""
    found = {}
    for operator in taken_apart():
        of = operator._schema.arguments
        wanted = [a for a in of if not a.has_default_value() or str(a.type) == "number"]
        found[operator] = [drawn(a) for a in wanted if not a.kwarg_only]
    square = [torch.rand(2, 2) for _ in SHAPES]
    return found | {torch.ops.aten._foreach_mm.default: [square, square]}


@pytest.mark.long
def test_every_operator_of_lists() -> None:
    """All in one graph, which costs a compile once."""
    drawn_calls = calls()
    assert len(drawn_calls) > 60

    def every() -> list[Any]:
        return [operator(*args) for operator, args in drawn_calls.items()]

    for operator, found, wanted in zip(drawn_calls, compiled(every)(), every(), strict=True):
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, msg=lambda text, op=operator: f"{op}: {text}")


@pytest.mark.parametrize(
    "kind", mostly_long([torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop], 1)
)
def test_optimizers_that_update_lists(kind: Any) -> None:
    torch.manual_seed(0)
    pair = [[torch.nn.Parameter(torch.rand(shape)) for shape in SHAPES]]
    pair.append([torch.nn.Parameter(p.detach().clone()) for p in pair[0]])
    optimizers = [kind(parameters, lr=0.1, foreach=True) for parameters in pair]
    update = torch.compile(optimizers[1].step, backend="luminal", options={"fallback": "error"})
    for _ in range(3):
        for parameters, step in zip(pair, (optimizers[0].step, update), strict=True):
            for p in parameters:
                p.grad = p.detach().cos()
            step()
    for ours, theirs in zip(pair[1], pair[0], strict=True):
        torch.testing.assert_close(ours, theirs)
