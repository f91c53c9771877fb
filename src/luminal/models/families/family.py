"""What a family of models is: how its `config.json` is read, its weights named, and it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.nn import Module


@dataclass(frozen=True, slots=True)
class Family:
    """`model`: the module that a configuration describes, without values. `weights`: the arrays of
    the files under its names. `runner`: what `models.load` gives for the folder and the module, of
    a mode and a backend.
    """

    model: Callable[[Fields], Module]
    weights: Callable[[Mapping[str, Array], Fields], dict[str, Array]]
    runner: Callable[[Path, Any, Any, str], Any]
