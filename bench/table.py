"""`python -m bench`: the table of measurements, and the same as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from bench.block import EFFORT
from bench.pictures import page, plot
from bench.row import HEAD, Row, Skipped
from luminal.base import config
from luminal.runtime.report_text import table_lines

SUBJECTS = (
    "start", "small", "pointwise", "reductions", "scatter", "matmul", "attention", "chains",
    "blocks", "convolution", "beside", "language_model", "training", "moe", "torch_compile",
    "onnx_runtime", "compile_time", "costs", "search", "serving", "growth", "fuzz",
    "windows",
)  # fmt: skip
QUICK = ("small", "pointwise", "reductions", "matmul", "attention", "blocks", "convolution")
RESULTS = Path(__file__).parent / "results.json"


def main(arguments: list[str]) -> int:
    """Measures, prints and writes; a missed target is a row, not an error."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=None)
    parser.add_argument("--threads", type=int, default=2, help="for both sides")
    parser.add_argument("--quick", action="store_true", help="a few rows each, in minutes")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where to write the rows")
    parser.add_argument("--plot", type=Path, help="a PNG of the ratios (needs matplotlib)")
    parser.add_argument("--page", type=Path, help="the table as a page of HTML")
    options = parser.parse_args(arguments)
    if options.quick:
        EFFORT.hurry()
    torch.set_num_threads(options.threads)
    found: list[Row | Skipped] = []
    with config.override(LUMINAL_THREADS=options.threads), torch.inference_mode():
        for subject in options.only or (QUICK if options.quick else SUBJECTS):
            for row in importlib.import_module(f"bench.{subject}").rows():
                found.append(row)
                print("  ".join(filter(None, row.cells())), flush=True)
    print("\n" + "\n".join(table_lines([HEAD, *(row.cells() for row in found)])))
    report = _report(found, options.threads)
    options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    if options.plot:
        plot(found, options.plot)
    if options.page:
        page(found, report, options.page)
    return 0


def _report(rows: list[Row | Skipped], threads: int) -> dict[str, Any]:
    packages = ("luminal", "llvmlite", "numpy", "torch", "transformers")
    return {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "threads": threads,
        "rows": [row.record() for row in rows],
    }
