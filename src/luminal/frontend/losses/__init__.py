"""Losses, with the names and defaults of PyTorch."""
