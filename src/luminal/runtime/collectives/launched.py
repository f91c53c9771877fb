"""What launchers tell the processes they start, in environment variables."""

from __future__ import annotations

from luminal.base import config
from luminal.base.errors import CollectiveError

# MPICH's hydra, Intel MPI, Cray and Slurm's pmi2 say PMI_SIZE; Open MPI its own; MVAPICH its own.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def forget_launch() -> None:
    """Takes from the environment that this process was launched: those that it starts are none of
    the ranks.
    """
    config.forget(*_SIZES, "PMIX_RANK", "SLURM_STEP_NUM_TASKS")


def launched_ranks() -> int | None:
    """How many ranks the launcher has started, 1 where there was none, None where only MPI knows.

    Raises CollectiveError where srun has started several that MPI will not know of.
    """
    for name in _SIZES:
        if size := config.variable(name):
            return int(size)
    # Slurm says so of a step only; a batch script, which is one process, has SLURM_NTASKS too.
    size = config.variable("SLURM_STEP_NUM_TASKS")
    if config.variable("PMIX_RANK"):
        return None if size is None else int(size)
    if size is None or int(size) == 1:
        return 1
    raise CollectiveError(
        f"srun has started {size} ranks without a way for MPI to find them; say "
        "`srun --mpi=pmi2` (or pmix, as the MPI of mpi4py takes)"
    )
