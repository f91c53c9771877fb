"""The reference backend: NumPy over HLIR, the oracle that every other backend is compared with."""

from luminal.backends.reference.bounded import Bounded
from luminal.backends.reference.bounds import evaluate_with_bounds
from luminal.backends.reference.interpreter import Results, evaluate, interpret

__all__ = ["Bounded", "Results", "evaluate", "evaluate_with_bounds", "interpret"]
