"""Recording: Tensor methods and the Recorder turn user code into HLIR nodes."""
