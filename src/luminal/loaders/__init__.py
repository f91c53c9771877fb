"""Checkpoints and tokenizers from files, as NumPy arrays and plain records."""
