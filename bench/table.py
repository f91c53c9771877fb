"""`python -m bench`: the table of measurements, and a record of it as JSON (`record.py`)."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.block import EFFORT
from bench.load import Load, watched
from bench.record import Record
from bench.row import HEAD, KEPT, Row, Rows, Skipped
from luminal.base import config
from luminal.base.errors import LuminalError
from luminal.runtime.report_text import table_lines

SUBJECTS = (
    "start", "small", "pointwise", "reductions", "scatter", "matmul", "attention", "chains",
    "blocks", "convolution", "beside", "language_model", "training", "moe", "torch_compile",
    "onnx_runtime", "compile_time", "costs", "search", "serving", "growth", "fuzz",
    "windows", "large", "large_training",
)  # fmt: skip
QUICK = ("small", "pointwise", "reductions", "matmul", "attention", "blocks", "convolution")
LOADED = "LOADED"
TOGETHER = 0.05  # seconds between rows of one measurement


def main(arguments: list[str]) -> int:
    """Measures, prints and writes; a missed target is a row, not an error."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=None)
    parser.add_argument("--rows", metavar="TEXT", default="", help="only those named so, or longer")
    parser.add_argument("--threads", type=int, default=2, help="for both sides")
    parser.add_argument("--quick", action="store_true", help="a few rows each, in minutes")
    file = parser.add_mutually_exclusive_group()
    file.add_argument("--json", type=Path, help="the record; build/bench/<time>.json by default")
    file.add_argument("--resume", type=Path, metavar="RECORD", help="go on with a record")
    parser.add_argument("--page", type=Path, help="the record as a page of HTML (`bench.page`)")
    options = parser.parse_args(arguments)
    EFFORT.named = options.rows
    if options.quick:
        EFFORT.hurry()
    torch.set_num_threads(options.threads)
    subjects = options.only or (QUICK if options.quick else SUBJECTS)
    with config.override(LUMINAL_THREADS=options.threads), torch.inference_mode():
        try:
            if options.resume:
                record = Record.resumed(options.resume, options.threads)
            else:
                record = Record.begun(options.json, subjects, options.threads)
        except LuminalError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"writing {record.path}; go on with it by --resume, should this end", flush=True)
        left = [*record.left]
        found = [row for subject in left for row in measured(record, subject)]
    if options.rows and left and not found:
        if not options.resume:
            record.path.unlink()
        print(
            f"bench: no row of {', '.join(left)} has a name that begins with {options.rows!r}; a "
            "run without --rows (with --quick in minutes) prints the names",
            file=sys.stderr,
        )
        return 2
    print("\n" + "\n".join(table_lines([HEAD, *found])))
    if options.page:
        from bench.page import write

        write([record.path], options.page)
    return 0


def measured(record: Record, subject: str) -> Iterator[tuple[str, ...]]:
    """Measures what the record lacks of a subject; the cells of its rows."""
    KEPT.clear()
    KEPT.update(record.kept(subject))
    rows: Rows = importlib.import_module(f"bench.{subject}").rows()
    load = Load()
    while True:
        with watched() as beside:
            row = next(rows, None)
        # What comes right behind another row was measured with it, and beside the same programs.
        if beside.seconds > TOGETHER or not load.seconds:
            load = beside
        if row is None:
            break
        if not row.name.startswith(EFFORT.named):
            continue
        if row is not KEPT.get(row.name):
            record.add(subject, row, load)
        cells = marked(row, load)
        print("  ".join(filter(None, cells)), flush=True)
        yield cells
    record.finish(subject)


def marked(row: Row | Skipped, load: Load) -> tuple[str, ...]:
    """The row in columns; one of a loaded machine says so."""
    cells = row.cells()
    if not load.is_loaded or isinstance(row, Skipped):
        return cells
    return (*cells[:-1], f"{LOADED} ({load.others + load.stolen:.1f} cores taken); {cells[-1]}")
