"""The documentation site: its reference is written from docstrings when it is built."""
