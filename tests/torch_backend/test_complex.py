"""Complex tensors through torch.compile, nothing left to PyTorch: values, gradients, memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal import common_methods_invocations

from tests.conformance.opinfo_run import database
from tests.long_share import long_but
from tests.torch_backend.opinfo_sweep import case_of, unseeded
from tests.torch_backend.whole import compiled


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex64)


def total(results: Any) -> torch.Tensor:
    parts = [results] if isinstance(results, torch.Tensor) else results
    reals = [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in parts]
    return torch.stack([x.square().sum() for x in reals]).sum()


def rotary(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


def spectral(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    low = torch.fft.rfft(x)[..., : weight.shape[-1]]
    return torch.fft.irfft(torch.einsum("bix,iox->box", low, weight), n=x.shape[-1])


def arithmetic(z: torch.Tensor, x: torch.Tensor) -> Any:
    quotient = (z + 2j) / (z.conj() * z + 3) - x
    return quotient, torch.add(z, x, alpha=2).abs(), (1 - z).angle(), (z @ z.mH).exp(), z.norm()


def moved(z: torch.Tensor, x: torch.Tensor) -> Any:
    padded = torch.nn.functional.pad(z, (1, 2), value=0.5)
    filled = z.masked_fill(x > 0, 1j)
    return padded, filled, torch.cat([z, x.to(z.dtype)]), torch.stack([z.T, z.T * 2]).sum(0)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {
    "rotary": (rotary, lambda: [torch.randn(2, 5, 16), torch.randn(5, 8).exp() * numbers(5, 8)]),
    "spectral": (spectral, lambda: [torch.randn(2, 3, 16), numbers(3, 4, 5)]),
    "arithmetic": (arithmetic, lambda: [numbers(3, 4), torch.randn(3, 4)]),
    "moved": (moved, lambda: [numbers(3, 4), torch.randn(3, 4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", long_but(CASES, {"rotary", "arithmetic"}))
def test_values_and_gradients(name: str) -> None:
    function, operands = CASES[name]
    theirs = [x.requires_grad_() for x in operands()]
    ours = [x.detach().clone().requires_grad_() for x in theirs]
    found, wanted = compiled(function)(*ours), function(*theirs)
    torch.testing.assert_close(found, wanted, check_stride=True)
    total(found).backward()
    total(wanted).backward()
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)  # sums of squares


def test_memory_is_that_of_eager_mode() -> None:
    def views(z: torch.Tensor) -> Any:
        made = z * 2
        return made, made[1:], z[:, ::2], made.T, z[:, ::2] + 1

    z = numbers(4, 6)
    found, wanted = compiled(views)(z), views(z)
    torch.testing.assert_close(found, wanted, check_stride=True)
    found[0].zero_()
    assert not torch.cat([found[1].flatten(), found[3].flatten()]).any()  # one memory
    assert found[2].data_ptr() == z.data_ptr()


def test_writes_of_arguments() -> None:
    def written(z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        z.mul_(2j).add_(x)
        return z.abs()

    ours, theirs = ([torch.full((3,), 1 + 2j), torch.ones(3)] for _ in range(2))
    torch.testing.assert_close(compiled(written)(*ours), written(*theirs))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.long
def test_open_sizes() -> None:
    function = compiled(lambda z, w: z @ w + z.conj().sum(), dynamic=True)
    for n in (3, 5, 7):
        z, w = numbers(n, 4), numbers(4, n + 1)
        torch.testing.assert_close(function(z, w), z @ w + z.conj().sum())


PARTS = 40
# Nothing to compare; for devices alone; Dynamo itself fails.
PASSED_OVER = ("empty", "new_empty", "jiterator", "combinations")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of operators that are deprecated
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_have_pytorchs_values_or_are_left_to_it(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", unseeded)
    for op in [op for op in database() if torch.complex64 in op.dtypes][part::PARTS]:
        torch.manual_seed(0)
        given = op.sample_inputs("cpu", torch.complex64, requires_grad=False)
        if op.name.startswith(PASSED_OVER):
            continue
        for sample in itertools.islice(given, 0, 20, 7):
            case = case_of(op, sample, op.name)
            if any(x.layout is not torch.strided for x in case.tensors):
                continue
            torch._dynamo.reset()
            wanted = case.call(case.tensors)
            try:
                found = compiled(case.call)(case.tensors)
            except Exception as error:
                if "Unsupported" not in f"{type(error)} {error}":
                    raise
                continue
            # Samples reach 10, and sums of their products some hundreds.
            torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-4, equal_nan=True)
