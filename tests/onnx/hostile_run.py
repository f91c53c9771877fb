"""Loads and runs hostile models in a process of its own, and says what came of each.

`python -m tests.onnx.hostile_run FIRST LAST MEGABYTES`; see `tests.fuzz.damaged_run`.
"""

from __future__ import annotations

import sys

import luminal.onnx
from luminal.base.errors import LuminalError
from tests.fuzz.damaged_run import Outcome, answer, measured
from tests.onnx.hostile_models import Hostile, hostile


def _use(case: Hostile) -> None:
    luminal.onnx.load(case.model.SerializeToString())(case.inputs)


def main() -> None:
    first, last, megabytes = map(int, sys.argv[1:4])

    def outcome(number: int) -> Outcome:
        case = hostile(number)
        return measured(number, case.what, lambda: _use(case), LuminalError)

    answer(first, last, megabytes, outcome)


if __name__ == "__main__":
    main()
