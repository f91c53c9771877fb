"""The CPU backend: LLVM IR compiled in the process, run by a team of threads."""
