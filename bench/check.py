"""`python -m bench.check`: are we as fast beside PyTorch as was recorded? Exit status 1 if not.

Each subject is measured in blocks, with a pause before each so that no core is hot and no idle
thread of the last one burns; the median of the blocks has to meet the threshold recorded for the
row in `thresholds.json`. Those leave room for a machine's moods: what they catch is a change that
costs a quarter. What cannot be measured here, for want of a peer, is a row that says so.
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

from bench.block import EFFORT
from bench.row import Row, Skipped
from luminal.base import config
from luminal.runtime.report_text import table_lines

THRESHOLDS = Path(__file__).parent / "thresholds.json"
BLOCKS = 3
PAUSE = 3.0  # seconds before each block
# Whose many rows are measured once, or a part of them.
SAMPLED = ("convolution", "search", "fuzz", "windows")
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
    found: list[Row | Skipped] = []
    with config.override(LUMINAL_THREADS=options.threads), torch.inference_mode():
        for subject in options.only:
            blocks = range(1 if subject in SAMPLED else options.blocks)
            found += judged([block(subject) for _ in blocks], recorded[subject])
    print("\n".join(table_lines([HEAD, *(row.cells() for row in found)])))
    missed = [row.name for row in found if isinstance(row, Row) and not row.passed]
    if missed:
        print(f"bench-check: {len(missed)} of {len(found)} missed: {', '.join(missed)}")
    return 1 if missed else 0


def block(subject: str) -> list[Row | Skipped]:
    """The rows of a subject, once."""
    time.sleep(PAUSE)
    EFFORT.quick = subject in SAMPLED
    return list(importlib.import_module(f"bench.{subject}").rows())


def judged(
    blocks: Sequence[Sequence[Row | Skipped]], thresholds: Mapping[str, float]
) -> list[Row | Skipped]:
    """The rows that have thresholds, each the median of its blocks and with that as its target;
    skipped ones stay for those whose names they begin.

    Raises KeyError for a threshold without a row: a measurement that went away passes nothing.
    """
    by_name: dict[str, list[Row]] = {}
    skipped: dict[str, Skipped] = {}
    for row in (row for rows in blocks for row in rows):
        if isinstance(row, Skipped):
            skipped[row.name] = row
        else:
            by_name.setdefault(row.name, []).append(row)
    found: dict[str, Row | Skipped] = {}
    for name, threshold in thresholds.items():
        if name in by_name:
            values = [row.measured for row in by_name[name]]
            median, spread = statistics.median(values), (min(values), max(values))
            first = by_name[name][0]
            found[name] = replace(first, measured=median, target=threshold, spread=spread)
            continue
        reason = next((row for start, row in skipped.items() if name.startswith(start)), None)
        if reason is None:
            raise KeyError(f"bench-check: {name}: recorded in {THRESHOLDS.name}, but not measured")
        found[reason.name] = reason
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
