"""Expanded IR as text of the C family: one walk, a dialect a file."""
