"""`python -m bench.trees OLD NEW`: two trees of Luminal side by side, in turns.

Of every program: whether both compute the same bits, and the ratios of CPU time to compile it and
of time to run it, new to old. Each tree has a process of its own, on one core and thread; what one
does the other does next, so that whatever else the machine does meets both. With `--table` the
programs are rows of the table of `python -m bench`, on all cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.trees_worker import PROGRAMS, TABLE
from luminal.runtime.report_text import table_lines

WORKER = Path(__file__).with_name("trees_worker.py")
START = """
import runpy, sys
sys.path[:0] = [sys.argv[1] + "/src", sys.argv[1]]  # the package lay in the root once
runpy.run_path(sys.argv[2], run_name="__main__")
"""
BATCH_SECONDS = 0.05  # of calls that are timed together
HEAD = ("program", "same bits", "compile ms", "new/old", "run us", "new/old")


class Tree:
    """The worker of one tree."""

    def __init__(self, root: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, str(root.resolve()), str(WORKER), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = Path(self.read()["luminal"]).resolve().parents[1]
        if found not in (root.resolve(), root.resolve() / "src"):
            raise SystemExit(f"{root}: the worker imports luminal from {found}")

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended with {self.process.wait()}; its error is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        """The worker's answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compared(old: Tree, new: Tree, name: str, rounds: int) -> tuple[str, ...]:
    """A row of the table. Medians of both sides; the ratio is that of the pairs, by median."""
    compiling, running, same = [], [], True
    for turn in range(rounds + 1):
        sides = (old, new) if turn % 2 else (new, old)
        taken = {side: side.ask(compile=name)["seconds"] for side in sides}
        if turn:  # the first warms up what every compile shares
            compiling.append((taken[old], taken[new]))
    for side in (old, new):
        side.ask(run=name, calls=1)
    calls = max(1, round(BATCH_SECONDS / max(old.ask(run=name, calls=1)["seconds"], 1e-6)))
    new.ask(run=name, calls=1)  # States have moved on as far
    for turn in range(rounds):
        sides = (old, new) if turn % 2 else (new, old)
        found = {side: side.ask(run=name, calls=calls) for side in sides}
        same = same and found[old]["digest"] == found[new]["digest"]
        running.append(tuple(found[side]["seconds"] / calls for side in (old, new)))
    cells = [name, "yes" if same else "NO"]
    for pairs, scale in ((compiling, 1e3), (running, 1e6)):
        middle = [statistics.median(side) * scale for side in zip(*pairs, strict=True)]
        ratio = statistics.median(b / a for a, b in pairs)
        cells += [" against ".join(f"{each:.4g}" for each in reversed(middle)), f"{ratio:.3f}"]
    return tuple(cells)


def main() -> None:
    """Prints the table; fails where any bit differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.trees", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--table", action="store_true", help="the table's programs, on all cores")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs; all by default")
    options = parser.parse_args()
    programs = TABLE if options.table else PROGRAMS
    names = options.only or list(programs)
    if unknown := set(names) - {*programs}:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(programs)}")
    kind = ["--table"] if options.table else []
    with ExitStack() as stack:
        old, new = Tree(options.old, *kind), Tree(options.new, *kind)
        stack.callback(old.close)
        stack.callback(new.close)
        rows = [compared(old, new, name, options.rounds) for name in names]
    print("\n".join(table_lines([HEAD, *rows])))
    if any(row[1] != "yes" for row in rows):
        raise SystemExit("the trees do not compute the same")


if __name__ == "__main__":
    main()
