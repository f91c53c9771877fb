"""The engine of ranks that are processes, on MPI; the only folder that imports mpi4py."""
