"""Symbolic shapes: integer expressions, their intervals, and view maps."""

from luminal.shape import expression as expression  # before the modules that build on it
