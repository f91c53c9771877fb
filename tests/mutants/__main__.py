"""`python -m tests.mutants`: do the tests notice when the modules that decide are changed?

Every mutant of a subject's sample is run against those of the subject's tests that reach it. One
that they pass survives: a test is missing, or the change makes no difference and `survivors.txt`
says why. Outcomes are kept in `.mutants/`, so that a run that was ended goes on; `table.txt` has
the sums.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.mutants import everywhere, run
from tests.mutants.mutate import Mutant, mutants
from tests.mutants.reach import reach
from tests.mutants.results import Kept, Sum, survivors, write_table
from tests.mutants.subjects import SUBJECTS, Subject


def main() -> int:
    """Runs the chosen subjects; 1 if a mutant survives that no one has explained."""
    options = arguments()
    run.preload()
    if options.all:
        return everywhere_in_the_package(options)
    chosen = [s for s in SUBJECTS if not options.module or s.name in options.module]
    tree = run.Tree(run.WORK / options.shard.replace("/", "-") / "tree")
    part, parts = (int(number) for number in options.shard.split("/"))
    sums = []
    for subject in chosen:
        sample = sample_of(subject, options.count)[part - 1 :: parts]
        every = {m.key for m in all_of(subject)}
        sums.append(examine(subject, sample, sample, every, tree, options.again))
        if parts == 1:
            write_table(sums)
    return 1 if any(row.unexplained for row in sums) else 0


def everywhere_in_the_package(options: argparse.Namespace) -> int:
    """Runs a sample of the mutants of all folders, or the day's part of it."""
    part, parts = (int(number) for number in options.shard.split("/"))
    if options.today:
        part, parts = everywhere.todays_part(), everywhere.PARTS
    count = options.count or everywhere.COUNT
    drawn = everywhere.sample(everywhere.keys_by_file(), count, part, parts)
    tree = run.Tree(run.WORK / "all" / f"{part}-{parts}" / "tree")
    sums = []
    for subject in everywhere.subjects():
        mine = [m for m in drawn if m.file in subject.files]
        if mine and (not options.module or subject.name in options.module):
            every = everywhere.keys_of(subject)
            sums.append(examine(subject, mine, drawn, every, tree, options.again))
    total = Sum("all", *map(sum, zip(*(row[1:] for row in sums), strict=True)))
    print(f"all: {total.explained + total.unexplained} of {total.run} survive")
    if parts == 1 and not options.module:
        write_table([total])
    return 1 if total.unexplained else 0


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


def all_of(subject: Subject) -> list[Mutant]:
    """The mutants of a subject, in the order of their keys."""
    found = [m for file in subject.files for m in mutants(file, (run.ROOT / file).read_text())]
    return sorted(found, key=lambda m: m.key)


def sample_of(subject: Subject, count: int | None = None) -> list[Mutant]:
    """The mutants of a subject that are run: those with the lowest keys."""
    return all_of(subject)[: count or subject.count]


def examine(
    subject: Subject,
    sample: Sequence[Mutant],
    marked: Sequence[Mutant],
    every: set[str],
    tree: run.Tree,
    again: bool,
) -> Sum:
    """Runs the mutants that have no outcome yet. `marked`: those whose reach is asked in one run of
    the tests, `every`: the keys of all that there are.
    """
    kept = Kept(subject)
    if again:
        kept.forget(m.key for m in sample)
    explained = {survivor.key for survivor in survivors()}
    log = tree.folder / "log.txt"
    missing = [m for m in sample if m.key not in kept.outcomes]
    print(f"{subject.name}: {len(sample)} mutants, {len(missing)} to run", flush=True)
    reached = reach(tree, subject.tests, marked) if missing else {}
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
