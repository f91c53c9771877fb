"""The Metal backend: kernels in the Metal Shading Language, run through pyobjc on a Mac's GPU."""
