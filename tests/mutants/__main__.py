"""`python -m tests.mutants`: do the tests notice when the modules that decide are changed?

Every mutant of a subject's sample is run against those of the subject's tests that reach it. One
that they pass survives: a test is missing, or the change makes no difference and `survivors.txt`
says why. Outcomes are kept in `.mutants/`, so that a run that was ended goes on; `table.txt` has
the sums.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Set
from functools import cache

from tests.mutants import run
from tests.mutants.everywhere import PARTS, by_folder, everywhere, todays_part
from tests.mutants.mutate import Mutant, keys, mutants
from tests.mutants.reach import reach
from tests.mutants.results import Kept, Sum, survivors, write_table
from tests.mutants.run import ROOT
from tests.mutants.subjects import SUBJECTS, Subject


def main() -> int:
    """Runs the chosen subjects; 1 if a mutant survives that no one has explained."""
    options = arguments()
    run.preload()
    chosen = [s for s in SUBJECTS if not options.module or s.name in options.module]
    if options.all:
        chosen = [everywhere()]
    part, parts = (int(number) for number in options.shard.split("/"))
    if options.today:
        part, parts = todays_part(), PARTS
    tree = run.Tree(run.WORK / ("all" if options.all else "") / f"{part}-{parts}" / "tree")
    sums = []
    for subject in chosen:
        sums.append(examine(subject, options.count, part, parts, tree, options.again))
        if parts == 1:
            write_table(sums)
    return 1 if any(row.unexplained for row in sums) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    names = ", ".join(subject.name for subject in SUBJECTS)
    parser.add_argument("--module", action="append", help=f"one of {names}; may be repeated")
    parser.add_argument("--all", action="store_true", help="a sample of the whole package's")
    parser.add_argument("--today", action="store_true", help="with --all: the day's tenth of it")
    parser.add_argument("--count", type=int, help="mutants of each subject, at most")
    parser.add_argument("--shard", default="1/1", help="k/n: every n-th mutant from the k-th on")
    parser.add_argument("--again", action="store_true", help="forget outcomes of earlier runs")
    return parser.parse_args()


def sample_of(subject: Subject, count: int | None = None) -> list[Mutant]:
    """The mutants of a subject that are run, those with the lowest keys, in the order of keys."""
    chosen = frozenset(sorted(keys_of(subject))[: count or subject.count])
    sources = ((file, (ROOT / file).read_text()) for file in subject.files)
    drawn = [m for file, text in sources for m in mutants(file, text, chosen.__contains__)]
    return sorted(drawn, key=lambda m: m.key)


@cache
def keys_of(subject: Subject) -> Set[str]:
    """The keys of all mutants of a subject."""
    return {key for file in subject.files for key in keys(file, (ROOT / file).read_text())}


def examine(
    subject: Subject, count: int | None, part: int, parts: int, tree: run.Tree, again: bool
) -> Sum:
    """Runs every `parts`-th mutant of the sample that has no outcome yet, from the `part`-th on.

    All of the sample have beacons, so that what tests reach is asked once, whatever the parts.
    """
    every, whole = keys_of(subject), sample_of(subject, count)
    sample = whole[part - 1 :: parts]
    kept = Kept(subject)
    if again:
        kept.forget(m.key for m in sample)
    explained = {survivor.key for survivor in survivors()}
    log = tree.folder / "log.txt"
    missing = [m for m in sample if m.key not in kept.outcomes]
    print(f"{subject.name}: {len(sample)} mutants, {len(missing)} to run", flush=True)
    reached = reach(tree, subject.tests, whole) if missing else {}
    for mutant in missing:
        tests, seconds = reached[mutant.key]
        outcome = run.Outcome(0, 0.0)
        if tests:
            with tree.holding({mutant.file: mutant.source}):
                outcome = run.run(tree, tests, seconds, log)
        kept.add(mutant, outcome, log)
    alive = [m for m in sample if kept.outcomes[m.key].code == 0]
    unexplained = [m for m in alive if m.key not in explained]
    print(f"  {len(alive)} of {len(sample)} survive, {len(unexplained)} of them unexplained")
    if subject is everywhere():
        print(f"  {by_folder(sample, alive)}")
    for mutant in unexplained:
        print(f"  {mutant.key} line {mutant.line} {mutant.name}")
    for survivor in survivors():
        if survivor.subject == subject.name and survivor.key not in every:
            print(f"  no such mutant any more: {survivor.key} {survivor.name}")
    known = len(alive) - len(unexplained)
    killed = len(sample) - len(alive)
    return Sum(subject.name, len(every), len(sample), killed, known, len(unexplained))


if __name__ == "__main__":
    sys.exit(main())
