"""Measured search: candidates are built, timed on this machine, and the fastest one found runs."""
