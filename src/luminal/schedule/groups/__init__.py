"""Schedules of kernels by groups of lanes that share memory."""
