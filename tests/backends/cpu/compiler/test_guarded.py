"""Kernels touch nothing beside their operands."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

import luminal as lm
from tests.fuzz.cpu_run import compiled

SUMS = """
from tests import guarded
guarded.install()
from tests.backends.cpu.compiler.test_guarded import sums_of_products
sums_of_products(7)
"""


def sums_of_products(width: int) -> None:
    """Of rows, each the last vector's masked part; the last row ends where the array does."""
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 1, 50), width), name="x")
    (x * (cx.arange(width) + 2).cast("f32")).sum(-1).output("y")
    exe, _ = compiled(cx.graph())
    exe({"x": np.ones((21, width), np.float32)})


def test_sums_end_where_arrays_do() -> None:
    run = subprocess.run([sys.executable, "-c", SUMS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


TRANSPOSED = """
from tests import guarded
guarded.install()
from tests.backends.cpu.compiler.test_guarded import transposed
transposed(9)
"""


def transposed(columns: int) -> None:
    """Fewer than there are lanes, each row of which is read as one masked vector."""
    cx = lm.Graph()
    (cx.tensor((48, columns), name="x").permute(1, 0) * 2).output("y")
    exe, _ = compiled(cx.graph())
    exe({"x": np.ones((48, columns), np.float32)})


def test_rows_that_are_transposed_end_where_arrays_do() -> None:
    run = subprocess.run([sys.executable, "-c", TRANSPOSED], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
