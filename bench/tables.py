"""`python -m bench.tables OLD NEW`: the table of `python -m bench` of two trees, in turns.

Each tree runs its own benchmarks, a subject at a time, one tree after the other. Most rows are
ratios against a peer in the same run, so a slow minute of the machine meets both sides of a row.
Of each row: the median of both trees, and by how much the new one is better (above 1) or worse.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from bench.table import SUBJECTS
from luminal.runtime.report_text import table_lines

HEAD = ("what", "old", "new", "", "better by")


def measured(tree: Path, subject: str) -> dict[tuple[str, str], float]:
    """What a tree's own benchmark of a subject measures, by name and unit of the row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "bench", "--only", subject, "--json", str(path)]
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(path.read_text("utf-8"))["rows"]
    return {(row["name"], row["unit"]): row["measured"] for row in rows if "measured" in row}


def main() -> None:
    """Prints the rows that both trees have, and the geometric mean of their ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=SUBJECTS)
    options = parser.parse_args()
    found: defaultdict[tuple[str, str], dict[Path, list[float]]]
    found = defaultdict(lambda: {options.old: [], options.new: []})
    for subject in options.only:
        for turn in range(options.rounds):
            sides = (options.old, options.new) if turn % 2 else (options.new, options.old)
            for side in sides:
                for key, value in measured(side, subject).items():
                    found[key][side].append(value)
    table, ratios = [HEAD], []
    for (name, unit), sides_of in found.items():
        if not all(sides_of.values()):
            continue
        old, new = (statistics.median(values) for values in sides_of.values())
        better = new / old if unit == "x" else old / new
        ratios.append(better)
        table.append((name, f"{old:.4g}", f"{new:.4g}", unit, f"{better:.3f}"))
    print("\n".join(table_lines(table)))
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"geometric mean over {len(ratios)} rows: {mean:.3f}")


if __name__ == "__main__":
    main()
