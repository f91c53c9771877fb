"""embedding_bag and its gradients against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from luminal import luminal_backend

pytestmark = pytest.mark.usefixtures("fresh")

IDS, OFFSETS = torch.tensor([1, 3, 3, 2, 8, 0]), torch.tensor([0, 2, 2, 5])


@pytest.mark.long
def test_gradients_of_all_modes() -> None:
    """Row 2 is row 3, so that a bag has two maxima: the first one gets the gradient."""
    torch.manual_seed(0)
    table, factors = torch.randn(9, 4), torch.randn(6, requires_grad=True)
    table[2] = table[3]
    table.requires_grad_()

    def bags(table: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        weighted = functional.embedding_bag(
            IDS, table, OFFSETS, mode="sum", per_sample_weights=factors, padding_idx=3
        )
        others = [
            functional.embedding_bag(IDS, table, OFFSETS, mode=mode, padding_idx=padding)
            for mode in ("sum", "mean", "max")
            for padding in (None, 3)
        ]
        return torch.cat([weighted, *others], 1)

    fast = torch.compile(
        bags, backend=luminal_backend, fullgraph=True, options={"fallback": "error"}
    )
    found, wanted = fast(table, factors), bags(table, factors)
    torch.testing.assert_close(found, wanted)
    g = torch.linspace(-1, 2, wanted.numel()).reshape(wanted.shape)
    torch.testing.assert_close(
        torch.autograd.grad(found, (table, factors), g),
        torch.autograd.grad(wanted, (table, factors), g),
    )


@pytest.mark.parametrize("offsets", [[1, 2], [0, 7]], ids=str)
def test_offsets_that_do_not_fit_raise(offsets: list[int]) -> None:
    fast = torch.compile(
        functional.embedding_bag, backend=luminal_backend, options={"fallback": "error"}
    )
    table = torch.randn(9, 4)
    torch.testing.assert_close(
        fast(IDS, table, torch.tensor([0, 6])),
        functional.embedding_bag(IDS, table, torch.tensor([0, 6])),
    )
    with pytest.raises(RuntimeError, match=r"embedding_bag: the (first|last) offset"):
        fast(IDS, table, torch.tensor(offsets))


@pytest.mark.long
def test_bags_of_open_sizes() -> None:
    def bags(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return functional.embedding_bag(ids, table)

    fast = torch.compile(bags, backend=luminal_backend, dynamic=True, options={"fallback": "error"})
    for n in (4, 7):
        ids, table = torch.randint(0, 5, (n, 6)), torch.randn(5, 3)
        torch.testing.assert_close(fast(ids, table), bags(ids, table))
