"""Pipelines: a training step cut into stages, and the orders in which ranks run their pieces."""
