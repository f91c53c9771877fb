"""`python -m bench.check`: are we as fast beside PyTorch as was recorded? Exit status 1 if not.

Each subject is measured in blocks, with a pause before each so that no core is hot and no idle
thread of the last one burns; the median of the blocks has to meet the threshold recorded for the
row in `thresholds.json`. Those leave room for a machine's moods: what they catch is a change that
costs a quarter.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from bench.row import Row
from luminal import config
from luminal.runtime.report_text import table_lines

THRESHOLDS = Path(__file__).parent / "thresholds.json"
BLOCKS = 3
PAUSE = 3.0  # seconds before each block
HEAD = ("what", "measured", "threshold", "", "blocks", "")


def main() -> int:
    """Measures what thresholds are recorded for; 1 if one is missed."""
    recorded = json.loads(THRESHOLDS.read_text("utf-8"))
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(recorded), default=list(recorded))
    parser.add_argument("--threads", type=int, default=2, help="for both sides")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found: list[Row] = []
    with config.override(LUMINAL_THREADS=options.threads), torch.inference_mode():
        for subject in options.only:
            found += judged([block(subject) for _ in range(options.blocks)], recorded[subject])
    print("\n".join(table_lines([HEAD, *(row.cells() for row in found)])))
    missed = [row.name for row in found if not row.passed]
    if missed:
        print(f"bench-check: {len(missed)} of {len(found)} missed: {', '.join(missed)}")
    return 1 if missed else 0


def block(subject: str) -> list[Row]:
    """The rows of a subject, once."""
    time.sleep(PAUSE)
    rows = importlib.import_module(f"bench.{subject}").rows()
    return [row for row in rows if isinstance(row, Row)]


def judged(blocks: Sequence[Sequence[Row]], thresholds: Mapping[str, float]) -> list[Row]:
    """The rows that have thresholds, each the median of its blocks and with that as its target.

    Raises KeyError for a threshold without a row: a measurement that went away passes nothing.
    """
    by_name: dict[str, list[Row]] = {}
    for rows in blocks:
        for row in rows:
            by_name.setdefault(row.name, []).append(row)
    found = []
    for name, threshold in thresholds.items():
        if name not in by_name:
            raise KeyError(f"bench-check: {name}: recorded in {THRESHOLDS.name}, but not measured")
        values = [row.measured for row in by_name[name]]
        spread = (min(values), max(values))
        median = statistics.median(values)
        found.append(replace(by_name[name][0], measured=median, target=threshold, spread=spread))
    return found


if __name__ == "__main__":
    sys.exit(main())
