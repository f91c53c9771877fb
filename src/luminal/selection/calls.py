"""Kernels that a library computes in the place of loops: a wish of the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from luminal.algebra.terms import Term
from luminal.program.selection import Selection


def with_calls(selection: Selection, calls: Mapping[Term, str]) -> Selection:
    """The selection with the kernels of these stored terms, in Loop bodies too, by libraries."""
    bodies = {number: with_calls(body, calls) for number, body in selection.bodies.items()}
    calls_here = {term: library for term, library in calls.items() if term in selection.choices}
    return replace(selection, bodies=bodies, calls=calls_here)
