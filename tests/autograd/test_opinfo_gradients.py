"""Gradients of samples of PyTorch's OpInfo for every op that passes.

`python -m tests.autograd.opinfo_gradients --list tests/autograd/opinfo.txt` runs every sample and
writes the list; what passes there is what is checked here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import luminal as lm
from tests.autograd.opinfo_gradients import LIST, Case, cases, differentiable, failures
from tests.conformance import opinfo_map
from tests.conformance.opinfo_list import passing
from tests.long_share import mostly_long

PARTS, LIMIT = 8, 4


def drawn(part: int, limit: int) -> list[Case]:
    """The first samples of a share of the ops, drawn where the stack is short (`test_opinfo`)."""
    names = passing(LIST.read_text())
    ops = [op for op in differentiable() if op.name in names][part::PARTS]
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: [case for op in ops for case in cases_of(op, limit)]).result()


def cases_of(op: Any, limit: int) -> list[Case]:
    entry = opinfo_map.entry(op.name, op.variant_test_name)
    assert not isinstance(entry, str)
    return list(cases(op, entry, limit))


def test_the_list_is_long() -> None:
    assert len(passing(LIST.read_text())) >= 400


def test_torch_is_the_version_of_the_list() -> None:
    assert torch.__version__.split("+")[0] in LIST.read_text().splitlines()[0]


@pytest.mark.parametrize("part", mostly_long(range(PARTS), 2))
def test_the_first_sample(part: int) -> None:
    assert failures(drawn(part, 1), "reference") == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_the_first_samples_on_the_cpu(part: int) -> None:
    assert failures(drawn(part, LIMIT), "cpu") == []


def test_a_wrong_derivative_is_named() -> None:
    (op,) = (each for each in differentiable() if each.name == "exp")
    (case,) = cases_of(op, 1)
    lying = lm.custom_vjp(lambda x: x.exp(), lambda g, y, x: g * y * 1.001)
    (line,) = failures([case._replace(entry=opinfo_map.Entry(lying))], "reference")
    assert line.startswith("exp sample 0: Unequal: gradient 0: ")
