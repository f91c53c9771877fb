"""ONNX's backend suite: what passes is what the ledger says."""

from __future__ import annotations

import pytest

from tests.long_share import Share
from tests.onnx import backend_suite

SHARES = 40  # of about 50 cases


def _check(number: int) -> None:
    share, known = Share(number, SHARES), backend_suite.known_faults()
    wrong = []
    for name in backend_suite.cases():
        if share.has(name):
            found = backend_suite.fault(name)
            if bool(found) != (name in known):
                wrong.append(f"{name}: {found or 'passes; write the ledger anew'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_a_share():
    _check(0)


@pytest.mark.long
@pytest.mark.parametrize("number", range(1, SHARES))
def test_all(number: int):
    _check(number)


@pytest.mark.long
def test_the_ledger_names_cases_and_enough_pass():
    known = backend_suite.known_faults()
    assert not set(known) - set(backend_suite.cases())
    assert all(known.values())
    assert len(backend_suite.cases()) - len(known) >= 1900
