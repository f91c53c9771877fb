"""`python -m bench`: the table of measurements (`table.py`), or another command.

`python -m bench fuzz`: drawn cases against PyTorch. `python -m bench gpu`: what a GPU shows.
"""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {"fuzz": "bench.fuzz.command", "gpu": "bench.gpu.command"}
"""Each is imported alone: a machine with a GPU needs no PyTorch to be measured."""


def main(arguments: list[str]) -> int:
    """Runs the command that the first argument names; the status that the process ends with."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    module = import_module(command or "bench.table")
    status: int = module.main(arguments[1:] if command else arguments)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
