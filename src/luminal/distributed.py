"""Programs of several ranks: `lm.distributed`."""

from luminal.base.errors import CollectiveError, CollectiveTimeoutError
from luminal.distribute.pipeline.schedule import Schedule, schedule_of
from luminal.distribute.plans import read_plan
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.local import run_local
from luminal.runtime.collectives.process import engine, init, local_rank, local_size, rank, size
from luminal.runtime.collectives.tickets import Label, Ticket
from luminal.session.choosing import Auto, choose
from luminal.session.parallel import (
    DataParallel,
    LocalBackend,
    MpiBackend,
    NcclBackend,
    RcclBackend,
    TensorParallel,
)
from luminal.session.pipeline import PipelineParallel

__all__ = [
    "Auto",
    "CollectiveError",
    "CollectiveTimeoutError",
    "DataParallel",
    "Engine",
    "Label",
    "LocalBackend",
    "MpiBackend",
    "NcclBackend",
    "PipelineParallel",
    "RcclBackend",
    "Schedule",
    "TensorParallel",
    "Ticket",
    "choose",
    "engine",
    "init",
    "local_rank",
    "local_size",
    "rank",
    "read_plan",
    "run_local",
    "schedule_of",
    "size",
]
