"""The process that compiles kernels for another one: `python -m luminal.backends.cpu.ahead_helper`.

It reads batches from its standard input until that closes, and is killed when it is not needed.
"""

from __future__ import annotations

import signal
import sys

from luminal.backends.cpu.ahead import serve
from luminal.backends.cpu.kernels import object_code

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this
    serve(sys.stdin.buffer, sys.stdout.buffer, object_code)
