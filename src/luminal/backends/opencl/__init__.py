"""The OpenCL backend: kernels as OpenCL C, run through pyopencl on any device it finds."""
