"""Fingerprints: names of terms that are the same in every process that lowers the same graph.

A term's fingerprint is a hash over its operation, attributes and operands' fingerprints. Axes go by
their names, which lowering and rules give deterministically.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from luminal.algebra.lower import Lowered
from luminal.algebra.term_text import Printer
from luminal.algebra.terms import Term

HEX_DIGITS = 16


def fingerprints(lowered: Lowered) -> dict[Term, str]:
    """The fingerprint of every term below the roots."""
    printer = _Names(lowered.roots, lowered.arguments)
    for term in printer.order:
        text = f"{printer.content(term)}{printer.note(term)}"
        digest = hashlib.blake2b(text.encode(), digest_size=HEX_DIGITS // 2)
        printer.names[term] = digest.hexdigest()
    return printer.names


class _Names(Printer):
    """Prints a term with its operands' fingerprints in place of their numbers."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.names: dict[Term, str] = {}

    def number(self, term: Term) -> str:
        return self.names[term]

    def note(self, term: Term) -> str:
        """A Loop is named by its body too."""
        return "\n".join(self.body(term, "")) if term.op == "Loop" else ""


def by_fingerprint(names: Mapping[Term, str]) -> dict[str, Term]:
    """The terms by their names; where several have one name, the first."""
    terms: dict[str, Term] = {}
    for term, name in names.items():
        terms.setdefault(name, term)
    return terms
