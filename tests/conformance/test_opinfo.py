"""The first samples of every op of PyTorch's OpInfo that passes, on the CPU.

`make conformance` runs every sample on the reference and writes `opinfo.txt`; what passes there is
what is checked here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import luminal as lm
from tests.conformance.opinfo_batch import Sample, failures, samples
from tests.conformance.opinfo_list import passing
from tests.conformance.opinfo_map import Entry
from tests.conformance.opinfo_run import database
from tests.long_share import long_rows, mostly_long

LIST = Path(__file__).with_name("opinfo.txt")
LIMIT, PARTS = 3, 16


@cache
def drawn() -> list[Sample]:
    """The samples of what passes.

    Drawn in a thread of their own, whose stack is short: each SampleInput looks at all of it, which
    takes 40 s below pytest's.
    """
    names = passing(LIST.read_text())
    ops = [op for op in database() if op.name in names]
    torch.manual_seed(0)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: list(samples(ops, LIMIT))).result()


def test_the_list_is_long() -> None:
    assert len({sample.op.name for sample in drawn()}) >= 450
    assert len(drawn()) >= 1300


@pytest.mark.parametrize("part", mostly_long(range(PARTS), 1))
def test_the_first_samples_on_the_cpu(part: int) -> None:
    assert failures(drawn()[part::PARTS], "cpu") == []


# --- what must fail -------------------------------------------------------------------------------


def lying(call: Any) -> list[Sample]:
    """Samples of `exp` and `sin`, where `call` stands for exp."""
    ops = [op for op in database() if op.name in ("exp", "sin")]
    return [
        sample._replace(entry=Entry(call)) if sample.op.name == "exp" else sample
        for sample in samples(ops, 1)
    ]


WRONG = [
    (lambda x: x.exp() * 1.0001, "values differ"),
    (lambda x: x.exp().double(), "dtype float64"),
    (lambda x: x.exp()[:1], "shape"),
    (lambda x: x.no_such_method(), "no_such_method"),
    (lambda x: [x.exp(), x], "2 results"),
    (lambda x: lm.custom_call_that_is_missing(x), "custom_call_that_is_missing"),
]


@pytest.mark.parametrize(("call", "text"), long_rows(WRONG, WRONG[:2]))
def test_a_wrong_op_is_named_and_no_other(call: Any, text: str) -> None:
    (line,) = failures(lying(call), "reference")
    assert line.startswith("exp sample 0: ")
    assert text in line


def test_a_sample_that_breaks_the_compile_is_found() -> None:
    def broken(x: Any) -> Any:
        return x.graph.tensor((3,), name="nobody_sets_this") + 1

    (line,) = failures(lying(broken), "cpu")
    assert line.startswith("exp sample 0: ")


def test_torch_is_the_version_of_the_list() -> None:
    assert torch.__version__.split("+")[0] in LIST.read_text().splitlines()[0]
