"""Genomes: the choices that make a program, by names that hold in every process.

What a genome does not mention is chosen as `fast` does. Decoding is total: names that mean nothing
in a program, and wishes that are not legal in it, are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from luminal.base.records import dataclass

Pairs = tuple[tuple[str, str], ...]
_CALL = "call"


# Choices go by fingerprints of terms and texts of kernels, never by numbers: a genome that was
# stored means the same in every process that records the same graph.
@dataclass(frozen=True, slots=True)
class Genome:
    """Choices that differ from those of `fast`, each a sorted tuple.

    `spellings`: (e-class, spelling) by fingerprint. `residences`: (term, residence). `layouts`:
    (weight, layout as text). `apart`: stored terms that join no merge. `joined`: (stored term,
    another one whose kernel it shares). `tuned`: (kernel, knobs as JSON), the kernel named by the
    text that its default schedule makes; `call=LIBRARY` among them has the library compute it, and
    the others are then of the call. `unrolled`: Loops are written out in the launch list.
    `dispatch`: how a device is given the launches.
    """

    spellings: Pairs = ()
    residences: Pairs = ()
    layouts: Pairs = ()
    apart: tuple[str, ...] = ()
    joined: Pairs = ()
    tuned: Pairs = ()
    unrolled: bool = False
    dispatch: str | None = None

    def with_choice(self, kind: str, key: str, value: str | None) -> Genome:
        """The genome with one choice of `kind` made (None: as `fast` does it)."""
        match kind:
            case "unrolled":
                return replace(self, unrolled=value is not None)
            case "dispatch":
                return replace(self, dispatch=value)
            case "apart":
                kept = set(self.apart) - {key}
                return replace(self, apart=tuple(sorted(kept | ({key} if value else set()))))
        chosen = dict(getattr(self, kind))
        chosen.pop(key, None)
        if value is not None:
            chosen[key] = value
        changed: dict[str, Any] = {kind: tuple(sorted(chosen.items()))}
        return replace(self, **changed)

    def with_tuned(self, tuned: Mapping[str, tuple[tuple[str, int | str], ...]]) -> Genome:
        """The genome with more kernels' knobs; () takes a kernel back to its default."""
        chosen = dict(self.tuned)
        for key, knobs in tuned.items():
            chosen.pop(key, None)
            if knobs:
                chosen[key] = json.dumps(knobs)
        return replace(self, tuned=tuple(sorted(chosen.items())))

    @property
    def calls(self) -> dict[str, str]:
        """The library that is wished for, by kernel."""
        libraries = ((key, library_of(knobs)) for key, knobs in self.knobs.items())
        return {key: library for key, library in libraries if library is not None}

    @property
    def knobs(self) -> dict[str, tuple[tuple[str, int | str], ...]]:
        """The knobs of each kernel, by the kernel's name."""
        return {key: _knobs(text) for key, text in self.tuned}

    def to_json(self) -> str:
        """One line of text that `parse` reads."""
        return json.dumps({entry.name: getattr(self, entry.name) for entry in fields(self)})

    @classmethod
    def parse(cls, text: str) -> Genome:
        """The genome of a text that `to_json` wrote; ValueError where the text is none."""
        try:
            read: dict[str, Any] = json.loads(text)
            pairs = {
                name: tuple((str(key), str(value)) for key, value in read[name])
                for name in ("spellings", "residences", "layouts", "joined", "tuned")
            }
            apart, dispatch = tuple(map(str, read["apart"])), read["dispatch"]
            if dispatch is not None and not isinstance(dispatch, str):
                raise ValueError(f"dispatch is {dispatch!r}, not a word")
            genome = cls(**pairs, apart=apart, unrolled=bool(read["unrolled"]), dispatch=dispatch)
            for _, text in genome.tuned:
                _knobs(text)
            return genome
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a genome: {error}") from None


def called_by(
    library: str, knobs: tuple[tuple[str, int | str], ...] = ()
) -> tuple[tuple[str, int | str], ...]:
    """What stands in the place of a kernel's knobs where a library computes it, called so."""
    return tuple(sorted((*knobs, (_CALL, library))))


def library_of(knobs: tuple[tuple[str, int | str], ...]) -> str | None:
    """The library that computes a kernel with these knobs, if one does."""
    library = dict(knobs).get(_CALL)
    return None if library is None else str(library)


def _knobs(text: str) -> tuple[tuple[str, int | str], ...]:
    """The knobs of a text; ValueError or TypeError where it holds none."""
    knobs = tuple((str(name), value) for name, value in json.loads(text))
    for name, value in knobs:
        if type(value) not in (int, str):
            raise ValueError(f"knob {name} is {value!r}, not an integer or a word")
    return knobs
