"""The `luminal` command before anything is imported: until then Ctrl-C just ends the process.

It stands outside of the package, since to import any part of that takes half a second.
"""

import os
import signal
import sys

INTERRUPTED = 130  # as in luminal.cli.main, which is not imported yet


def _leave(number: int, frame: object) -> None:
    """Nothing is under way yet; an exception would come out of whatever is being imported."""
    os.write(2, b"luminal: interrupted\n")
    os._exit(INTERRUPTED)


signal.signal(signal.SIGINT, _leave)


def main() -> None:
    """Runs the command."""
    from luminal.cli.main import main as run

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # before or after what typer guards
        print("luminal: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
