"""Schedules: how a kernel is walked, on vectors of a CPU and by groups of a device."""
