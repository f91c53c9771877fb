"""Tiny models of thirty architectures against eager PyTorch: values, gradients, generated text."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from tests.torch_backend import zoo

QUICK = {"trained": "resnet"}

# Python that reads the length: Dynamo compiles for each length anew.
OF_ONE_LENGTH = ("mamba",)


def marked(kind: str, names: list[str]) -> list[object]:
    """All but a quick one, if there is any, are long."""
    return [
        pytest.param(name, marks=[] if name == QUICK.get(kind) else pytest.mark.long)
        for name in names
    ]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """transformers and Dynamo warn of much that is none of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize("name", marked("compared", [n for n in zoo.ZOO if n not in OF_ONE_LENGTH]))
def test_one_program_gives_what_eager_gives_at_three_lengths(name: str) -> None:
    worst, programs = zoo.compared(name)
    assert worst < 1e-4
    assert programs == 1


@pytest.mark.parametrize(
    "name", marked("trained", [n for n, each in zoo.ZOO.items() if each.trains])
)
def test_a_step_has_the_gradients_of_eager(name: str) -> None:
    assert zoo.trained(name) < 1e-4


@pytest.mark.parametrize(
    "name", marked("generated", [n for n, each in zoo.ZOO.items() if each.generates])
)
def test_generating_with_a_static_cache_compiles_twice(name: str) -> None:
    same, counts = zoo.generated(name)
    assert same
    assert counts[1:] == [counts[0] + 1] * (len(counts) - 1)
