"""A rank of a program, as `luminal launch` starts it: `python -m luminal_rank SCRIPT ARGS`.

This process only watches another one, which runs the program: one that is killed, or out of memory,
cannot say itself what it was at. It stands outside of the package, since to import any part of that
takes half a second and memory.
"""

import contextlib
import mmap
import os
import signal
import sys
import time

NOTE_BYTES = 512
"""A page that both processes have, in which the rank notes what it does."""

SHOWN = 0.2  # seconds for what is written last to reach the launcher, which then ends all


def main() -> None:
    """Runs the program in a process of its own and ends as that does."""
    note = mmap.mmap(-1, NOTE_BYTES)
    rank = os.fork()
    if rank == 0:
        from luminal.runtime.collectives.started import run

        run(sys.argv[1:], note)
        return
    _, status = os.waitpid(rank, 0)
    if os.WIFSIGNALED(status):
        if folder := os.environ.get("LUMINAL_MEMBERSHIP"):
            # The launcher counts who is left. Its folder may be gone, as it may.
            with contextlib.suppress(OSError), open(f"{folder}/dead-{rank}", "x"):
                pass
        number = os.WTERMSIG(status)
        what = note[:].rstrip(b"\0").decode(errors="replace") or "a rank that has not come up"
        print(
            f"luminal: {what}: process {rank} was killed by {signal.Signals(number).name}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        time.sleep(SHOWN)
        os._exit(128 + number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
