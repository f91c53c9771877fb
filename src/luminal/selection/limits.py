"""Bounds of kernels and of looking around, for the sake of compiles: the same on every machine."""

KERNEL_TERMS = 300  # terms inlined in one kernel: bounds code size and recursion
REACH = 1000  # terms or kernels looked at for one merge or pass: keeps a compile's time linear
TILE_ROWS = 4  # of a matrix in register tiles: fewer leave registers to spare
