"""What a training run needs besides a step: mixed precision, accumulation, averages of weights."""
