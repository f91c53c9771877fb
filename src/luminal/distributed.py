"""Programs of several ranks: `lm.distributed`."""

from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.local import run_local
from luminal.runtime.collectives.tickets import Label, Ticket

__all__ = ["Engine", "Label", "Ticket", "run_local"]
