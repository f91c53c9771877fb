"""What is said of an architecture of GGUF files, and what Hugging Face calls the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from luminal.base.records import dataclass
from luminal.loaders.gguf_models.rearranged import Change, Joined

Names = Mapping[str, str]
NO_LAYER, ALL_LAYERS, ANY_LAYER = "no layer", "only all layers", "any layer"


@dataclass(frozen=True, slots=True)
class GGUFArchitecture:
    """The class `hugging_face`, in GGUF files under `name`.

    `keys`: of the configuration, by those of the metadata without the name. `names`, `layers`:
    Hugging Face's names to the file's without `.weight` or `.bias`, `layers` of those that begin
    with `prefix`; a `*` stands for the number of a layer, then of an expert. `flags`: keys of the
    configuration by the tensor whose presence in a layer says that they are true. `changes`: by
    the file's name. `defaults`: of the configuration, where the file says nothing else.
    `only_with`: a key of the metadata, or a tensor of a layer, without which the file is of another
    class; `key=number`: the key has this number. Where several of Hugging Face's names are one of
    the file's, the last is theirs that is read. `joined`: names of layers for two of the file's.
    `rope`: of `rope_parameters`, whatever the file. `windowed`: how many layers of the class may
    have a window, NO_LAYER, ALL_LAYERS or ANY_LAYER. `windows`: of so many the last has none, where
    the file does not list them; 0: all have one. `local_theta`: the rotary base of layers with a
    window, which turn by other angles than those without; 0 is theirs.
    """

    hugging_face: str
    name: str
    model_type: str
    keys: Names
    layers: Names
    names: Names
    prefix: str = "model.layers.*."
    flags: Names = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    joined: Mapping[str, Joined] = field(default_factory=dict)
    rotary: bool = True
    rope: Mapping[str, Any] = field(default_factory=dict)
    windowed: str = NO_LAYER
    windows: int = 0
    local_theta: float | None = None
    only_with: str | None = None

    def may_slide(self, slides: Sequence[bool]) -> bool:
        """Whether the class can say that these layers have a window, and the others none."""
        return len({*slides}) < 2 if self.windowed == ALL_LAYERS else self.windowed == ANY_LAYER


def sliding(count: int, every: int) -> list[bool]:
    """Which of `count` layers have a window: all but every so many-th one; 0: all."""
    return [not every or (layer + 1) % every != 0 for layer in range(count)]
