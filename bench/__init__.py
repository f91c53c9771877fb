"""Measurements of what the project promises: one file per subject, one table (`make bench`)."""
