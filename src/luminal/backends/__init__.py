"""Backends: a folder each, with its target facts, renderer, compiler and device."""
