"""What `torch.compile(..., options={...})` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import luminal as lm
from luminal.base.errors import InputError
from luminal.base.records import dataclass

_NAMES = ("mode", "search_iterations", "numerics", "fallback")
_FALLBACKS = ("eager", "error")


@dataclass(frozen=True, slots=True)
class Options:
    """`compile`: the arguments of `lm.compile`; `falls_back`: may PyTorch run what we have not?"""

    compile: Mapping[str, Any] = field(default_factory=dict)
    falls_back: bool = True

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """Raises InputError for what is no option."""
        for name in options:
            if name not in _NAMES:
                raise InputError(f"option {name!r}: takes {', '.join(map(repr, _NAMES))}")
        fallback = options.get("fallback", "eager")
        if fallback not in _FALLBACKS:
            raise InputError(f"option fallback={fallback!r}: takes 'eager' or 'error'")
        chosen: dict[str, Any] = {}
        mode = options.get("mode", "fast")
        chosen["mode"] = lm.TimeBudget(mode) if isinstance(mode, int | float) else mode
        if "numerics" in options:
            chosen["numerics"] = options["numerics"]
        if "search_iterations" in options:
            chosen["search"] = lm.SearchOptions(max_candidates=options["search_iterations"])
        return cls(chosen, fallback == "eager")
