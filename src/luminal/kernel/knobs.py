"""Knobs: the named choices of a schedule as plain data, and the record of what could be chosen.

Rules that schedule a kernel ask for every choice by name (`pick`): the rule's own value is taken
unless a knob sets another. What was asked for, with its legal values, is the kernel's space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from luminal.base.errors import CompileError

Value = int | str
V = TypeVar("V", int, str)
Knobs = tuple[tuple[str, Value], ...]  # sorted by name; () is the rule-made schedule


class KnobError(CompileError):
    """A knob that this kernel does not have, or not with this value."""


# A list of knobs beside the rules would say everything twice, and would drift. Here a choice that
# does not arise in a kernel is no knob of it, and the search offers what the rules asked for.
class Choices:
    """The choices of one kernel while it is scheduled."""

    def __init__(self, kernel: str, knobs: Knobs = ()) -> None:
        self.kernel = kernel
        self.knobs = dict(knobs)
        self.offered: dict[str, tuple[Value, ...]] = {}  # by name, in the order asked for

    def pick(
        self,
        name: str,
        rule: V,
        others: Iterable[V] = (),
        refusal: Callable[[str], str] | None = None,
    ) -> V:
        """The knob's value, or `rule` where it is not set; legal are `rule` and `others`. `refusal`
        says why another one is not.

        A name is asked for once: what is offered under it then holds wherever it is set.
        """
        assert name not in self.offered, f"{self.kernel}: knob {name} is asked for twice"
        legal: list[V] = [rule]
        for value in others:
            if value not in legal:
                legal.append(value)
        self.offered[name] = tuple(legal)
        if name not in self.knobs:
            return rule
        if self.knobs[name] in self.offered[name]:
            return legal[self.offered[name].index(self.knobs[name])]
        listed, wanted = ", ".join(map(str, legal)), self.knobs[name]
        why = "" if refusal is None else f": {refusal(str(wanted))}"
        raise KnobError(
            f"{self.kernel}: knob {name}={wanted} is not legal here{why}; take one of {listed}"
        )

    def finish(self) -> None:
        """Raises where a knob was set that this kernel does not have."""
        for name in self.knobs:
            if name not in self.offered:
                listed = ", ".join(self.offered) or "none"
                raise KnobError(f"{self.kernel}: no knob {name} here; its knobs are: {listed}")


def with_knob(knobs: Knobs, name: str, value: Value) -> Knobs:
    """`knobs` with one more set."""
    return as_knobs({**dict(knobs), name: value})


def as_knobs(values: Mapping[str, Value]) -> Knobs:
    """Knobs in their one order."""
    return tuple(sorted(values.items()))
