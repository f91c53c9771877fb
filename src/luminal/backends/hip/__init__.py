"""The HIP backend: kernels as HIP, compiled by hiprtc and run through hip-python on AMD's GPUs."""
