"""What the beacons of a marked module call: it notes the test that is running.

It is linked into the tree of the sources, as `_reached`, so that commands and servers that a test
starts find it too. They are told who runs, and where to note it, by the environment.
"""

import os
from collections.abc import Sequence

NOTES = "MUTANTS_REACHED"  # the variable that names the file of notes

seen: set[str] = set()
"""Keys that the running test has reached: noted once."""


def reached(keys: Sequence[str]) -> None:
    """Notes keys with the running test, or with its file where it is being set up."""
    for key in keys:
        if key not in seen:
            seen.add(key)
            name, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
            test = name.partition("::")[0] if phase == "(setup)" else name
            note(key, test)


def note(*fields: str) -> None:
    """A line of the notes; the file is open no longer than that, since tests count open files."""
    path = os.environ.get(NOTES)
    if path is not None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, ("\t".join(fields) + "\n").encode())
        os.close(file)
