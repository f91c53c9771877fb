"""MPI as mpi4py has it, loaded but not started: who imports it decides when and for which threads.

The library is that of the `mpich` wheel of this environment where it has one, else the system's.
"""

from __future__ import annotations

import sys

import mpi4py

from luminal.base import config
from luminal.runtime.collectives.mpich import wheel_file

# Imported by itself mpi4py would start MPI, and end it before ranks have said farewell.
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False

# An environment may lie above another one, which has the wheels; mpi4py looks in its own only.
_library = wheel_file("libmpi.so.12")
_above = (
    {}
    if _library is None or _library.is_relative_to(sys.prefix)
    else {"MPI4PY_LIBMPI": str(_library)}
)
with config.environment(**_above):
    from mpi4py import MPI

__all__ = ["MPI"]
