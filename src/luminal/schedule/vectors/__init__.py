"""Schedules of kernels on the vectors and registers of one core."""
