"""The CUDA backend: kernels as CUDA C++, compiled by NVRTC and run through cuda-core."""
