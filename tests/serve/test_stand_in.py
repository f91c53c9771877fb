"""A server's steps over what stands in for CUDA's driver, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.backends.cuda import presence
from tests.simt import compiling, stand_in


@pytest.mark.long
def test_over_the_stand_in_of_cuda() -> None:
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    for package in presence.PACKAGES:
        pytest.importorskip(package, reason=f"{package} is not installed (extra cuda)")
    cases = Path(__file__).with_name("stand_in_cases.py")
    stand_in.run(cases, stand_in.library(stand_in.CUDA))
