"""ONNX's own backend suite, and the ledger of what does not pass.

`python -m tests.onnx.backend_suite` runs every case and writes the ledger anew (2 minutes).
"""

from __future__ import annotations

import os
import tempfile
import unittest
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import luminal.onnx

LEDGER = Path(__file__).with_name("backend_suite.txt")

EXPLAINED = {
    "test_attention_4d_causal_fp16": "rounded to float16 at each step there, once here",
    "test_dft_inverse": "expects the rounding errors of 2e-7 that NumPy makes; ours are 3e-15",
    "test_loop16_seq_none": "expects Python ints in the place of arrays",
}
"""Where numbers differ, by what the names of cases begin with."""


@cache
def cases() -> dict[str, Callable[[], None]]:
    """Every case for the CPU by name; calling one raises what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes what it expects with overflows
        from onnx.backend.test.runner import Runner

        runner = Runner(luminal.onnx.Backend)
    found = {}
    for items in runner._test_items.values():
        for name, item in items.items():
            if name.endswith("_cpu"):
                found[name] = lambda item=item: item.func(unittest.TestCase())
    return dict(sorted(found.items()))


def fault(name: str) -> str:
    """Why a case does not pass, in a line; nothing where it does."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["ONNX_MODELS"] = folder  # where cases of whole models put their data
        try:
            cases()[name]()
        except (Exception, unittest.SkipTest) as error:
            known = (EXPLAINED[start] for start in EXPLAINED if name.startswith(start))
            return next(known, None) or _line(f"{type(error).__name__}: {error}")
        finally:
            del os.environ["ONNX_MODELS"]
    return ""


def _line(text: str) -> str:
    """The part of a message that says why."""
    first = " ".join(text.split())
    for unsaid in ("Not equal to tolerance", "Arrays are not equal"):
        if unsaid in first:
            return "the numbers differ" if "shape" not in first else "the shapes differ"
    return first if len(first) <= 160 else first[:157] + "..."


def known_faults() -> dict[str, str]:
    """The ledger: reasons by the names of cases."""
    rows = [line for line in LEDGER.read_text().splitlines() if line.startswith("test_")]
    return {name: reason for name, _, reason in (row.partition(": ") for row in rows)}


def write() -> None:
    """Runs all and writes the ledger."""
    faults = {name: fault(name) for name in cases()}
    rows = [f"{name}: {reason}" for name, reason in sorted(faults.items()) if reason]
    head = (
        f"{len(faults) - len(rows)} of {len(faults)} cases of ONNX's backend suite pass.\n"
        "Written by `python -m tests.onnx.backend_suite`; the others, and why:\n\n"
    )
    LEDGER.write_text(head + "".join(f"{row}\n" for row in rows))


if __name__ == "__main__":
    write()
