"""What a process's surroundings say of others that it was launched with; JAX is not needed to know."""

import os

COORDINATOR, PROCESSES, RANK = "STRANG_COORDINATOR", "STRANG_PROCESSES", "STRANG_RANK"
LAUNCHER_PIPE = "STRANG_LAUNCHER_PIPE"
NAMES = ((PROCESSES, RANK), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("SLURM_NTASKS", "SLURM_PROCID"))


def is_launched() -> bool:
    """Whether there are others."""
    return COORDINATOR in os.environ


def rank() -> int:
    """This process's number, also before it has joined the others; the first is 0."""
    if not is_launched():
        return 0
    return next((int(os.environ[name]) for _, name in NAMES if name in os.environ), 0)
