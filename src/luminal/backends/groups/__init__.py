"""Schedules for devices that run kernels by groups of lanes."""
