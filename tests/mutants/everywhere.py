"""`make mutants ARGS=--all`: a sample of the mutants of the whole package, by its folders.

Each runs against the short tests of the folders of tests that its own folder belongs to: what is
asked is whether who changes a folder, and runs its tests, sees the fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache

from tests.mutants.mutate import Mutant, keys, mutants
from tests.mutants.run import ROOT
from tests.mutants.subjects import Subject

COUNT = 400
PARTS = 10  # of which a day has one
PACKAGE = "src/luminal"

UNIT, NUMERICS, MODELS = "tests/unit", "tests/numerics", "tests/models"
AUTOGRAD, BACKENDS, CPU = "tests/autograd", "tests/backends", "tests/backends/cpu"
RULES, EXPAND, TRAINING = "tests/rules", "tests/expand", "tests/training"

TESTS: Mapping[str, tuple[str, ...]] = {
    "array_api": (UNIT, NUMERICS),
    "autograd": (AUTOGRAD,),
    "backends": (BACKENDS,),
    "codegen": (EXPAND, CPU),
    "egraph": (RULES, UNIT),
    "expand": (EXPAND, CPU),
    "frontend": (NUMERICS, AUTOGRAD, UNIT),
    "kernel": (EXPAND, UNIT, BACKENDS),
    "loaders": (UNIT, MODELS),
    "models": (MODELS,),
    "nn": (UNIT, NUMERICS, MODELS),
    "onnx": ("tests/onnx",),
    "optim": ("tests/optim",),
    "program": (UNIT, CPU),
    "rules": (RULES,),
    "runtime": (UNIT, CPU),
    "rolling": (UNIT,),
    "schedule": (UNIT, BACKENDS),
    "selection": (UNIT, RULES, CPU),
    "serve": ("tests/serve",),
    "torch_backend": ("tests/torch_backend",),
    "training": (TRAINING, "tests/optim"),
}
"""By folder of the package; all others, and its own files, have those of `UNIT` and `NUMERICS`."""


def folder_of(file: str) -> str:
    """The folder of the package that a file lies in; "package" for what lies in none."""
    first, _, rest = file.removeprefix(f"{PACKAGE}/").partition("/")
    return first if rest else "package"


def subjects() -> list[Subject]:
    """One for each folder of the package."""
    files = defaultdict(list)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        files[folder_of(file)].append(file)
    return [
        Subject(f"all-{folder}", tuple(files[folder]), TESTS.get(folder, (UNIT, NUMERICS)))
        for folder in sorted(files)
    ]


@cache
def keys_by_file() -> Mapping[str, Sequence[str]]:
    """Of each file, the keys of its mutants."""
    files = [file for subject in subjects() for file in subject.files]
    return {file: keys(file, (ROOT / file).read_text()) for file in files}


def sample(among: Mapping[str, Sequence[str]], count: int, part: int, parts: int) -> list[Mutant]:
    """Of the mutants with so many lowest keys in these files every `parts`-th, from the `part`-th
    on.
    """
    lowest = sorted(key for found in among.values() for key in found)[:count]
    chosen = frozenset(lowest[part - 1 :: parts])
    return [
        mutant
        for file, found in among.items()
        if not chosen.isdisjoint(found)
        for mutant in mutants(file, (ROOT / file).read_text(), chosen.__contains__)
    ]


def keys_of(subject: Subject) -> set[str]:
    """The keys of all mutants of a subject."""
    return {key for file in subject.files for key in keys_by_file()[file]}


def todays_part() -> int:
    """1 to PARTS in turn, a day each."""
    return date.today().toordinal() % PARTS + 1
