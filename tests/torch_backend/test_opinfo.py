"""Samples of what the ledgers say passes of PyTorch's operator database.

`python -m tests.torch_backend.opinfo_sweep [--gradients] --list FILE` writes them anew.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal import common_methods_invocations

from tests.conformance.opinfo_run import database
from tests.torch_backend.opinfo_sweep import LISTS, Case, cases, failures, passing, unseeded

PARTS, LIMIT = 64, 2


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", unseeded)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def drawn(kind: str, part: int) -> list[Case]:
    """The first samples of every so many names of a ledger."""
    names = sorted(passing(LISTS[kind].read_text()))[part::PARTS]
    torch.manual_seed(0)
    found = []
    for op in database():
        if op.name in names and (kind == "values" or op.supports_autograd):
            found += itertools.islice(cases(op, LIMIT, kind), LIMIT)
    if kind == "gradients":
        found = [case for case in found if any(x.requires_grad for x in case.tensors)]
    return found


def parts() -> list[Any]:
    """One of them by default."""
    return [pytest.param(k, marks=pytest.mark.long if k else []) for k in range(PARTS)]


@pytest.mark.parametrize("part", parts())
@pytest.mark.parametrize("kind", sorted(LISTS))
def test_the_first_samples(kind: str, part: int) -> None:
    found = drawn(kind, part)
    for k in range(0, len(found), 16):
        assert failures(found[k : k + 16], kind) == []


def test_a_wrong_operator_is_named_and_no_other() -> None:
    ops = {op.name: op for op in database() if op.name in ("exp", "sin")}
    right, wrong = (next(iter(cases(ops[name], 1, "values"))) for name in ("sin", "exp"))
    wrong = wrong._replace(
        call=lambda given: given[0].exp() * (1.001 if torch.compiler.is_compiling() else 1)
    )
    (line,) = failures([right, wrong], "values")
    assert "values differ" in line
