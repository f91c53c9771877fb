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

from bench.row import Row, Skipped
from luminal import config
from luminal.runtime.report_text import table_lines

SUBJECTS = (
    "start", "small", "pointwise", "scatter", "matmul", "attention", "language_model", "training",
    "moe", "torch_compile", "onnx_runtime", "compile_time", "search", "serving",
)  # fmt: skip
HEAD = ("what", "measured", "target", "", "spread", "detail")
RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    """Measures, prints and writes; a missed target is a row, not an error."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=SUBJECTS)
    parser.add_argument("--threads", type=int, default=2, help="for both sides")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where to write the rows")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found: list[Row | Skipped] = []
    with config.override(LUMINAL_THREADS=options.threads), torch.inference_mode():
        for subject in options.only:
            for row in importlib.import_module(f"bench.{subject}").rows():
                found.append(row)
                print("  ".join(filter(None, row.cells())), flush=True)
    print("\n" + "\n".join(table_lines([HEAD, *(row.cells() for row in found)])))
    options.json.write_text(json.dumps(_report(found, options.threads), indent=2) + "\n", "utf-8")


def _report(rows: list[Row | Skipped], threads: int) -> dict[str, Any]:
    packages = ("luminal", "llvmlite", "numpy", "torch", "transformers")
    return {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "threads": threads,
        "rows": [row.record() for row in rows],
    }


if __name__ == "__main__":
    main()
