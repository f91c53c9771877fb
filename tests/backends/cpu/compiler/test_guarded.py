"""Kernels touch nothing beside their operands."""

from __future__ import annotations

import subprocess
import sys

SUMS = """
from tests import guarded
guarded.install()
from tests.backends.cpu.compiler.masked_programs import sums_of_products
sums_of_products(7)
"""


def test_sums_end_where_arrays_do() -> None:
    run = subprocess.run([sys.executable, "-c", SUMS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


TRANSPOSED = """
from tests import guarded
guarded.install()
from tests.backends.cpu.compiler.masked_programs import transposed
transposed(9)
"""


def test_rows_that_are_transposed_end_where_arrays_do() -> None:
    run = subprocess.run([sys.executable, "-c", TRANSPOSED], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
