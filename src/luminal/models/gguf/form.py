"""What GGUF files say of an architecture that its record does not say already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from luminal.base.records import dataclass
from luminal.models.decoder_config import DecoderConfig
from luminal.models.gguf.changes import Change, Joined

NO_LAYER, ALL_LAYERS, ANY_LAYER = "no layer", "only all layers", "any layer"


def _always(config: DecoderConfig) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class GGUF:
    """The files whose `general.architecture` is `name`; Hugging Face's `model_type` is the same
    unless it is given.

    `keys`: further keys of the metadata, and those of `config.json` for the same; None for what the
    format does not have of `models/gguf/names.py`. `names`: names of a layer's weights that are
    others than there, None for none; `outer`: of those outside of layers. `flags`: keys of
    `config.json` that are true where a layer has a tensor. `changes`: what is stored otherwise, by
    the file's names. `joined`: weights of a layer that the file has in two. `stacked`: those that
    it has as one, by its name. `copied`: names in the first layer of copies that nobody reads, and
    of what they copy. `listed`: keys of the metadata that have a number for each layer, which is a
    weight; the weight's name in `names` is the key. `hybrid`: layers of the class may have no
    attention, which files say as 0 heads of keys. `defaults`: of `config.json`, where the file says
    nothing. `rope`: of its `rope_parameters`, whatever the file says. `windowed`: how many layers
    of the class may have a window, NO_LAYER, ALL_LAYERS or ANY_LAYER. `windows`: of so many the
    last has none, where the file does not list them; 0: all have one. `local_theta`: the rotary
    base of layers with a window, which turn by other angles than those without; 0 is theirs.

    `only_with`, `only_without`: keys of the metadata, or tensors of a layer, by which files of this
    class are told from those of others of the name; `key=number`: the key has this number. A file
    is of one class alone, so that the order in which classes are asked means nothing.
    `only_for`: configurations that are written so, where a class has several forms. `read`: what
    only files of this form say, as keys of `config.json`; `written`: the reverse, as keys of the
    metadata.
    """

    name: str
    model_type: str = ""
    keys: Mapping[str, str | None] = field(default_factory=dict)
    names: Mapping[str, str | None] = field(default_factory=dict)
    outer: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    hybrid: bool = False
    changes: Mapping[str, Change] = field(default_factory=dict)
    joined: Mapping[str, Joined] = field(default_factory=dict)
    stacked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    copied: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    windowed: str = NO_LAYER
    windows: int = 0
    local_theta: float | None = None
    only_with: tuple[str, ...] = ()
    only_without: tuple[str, ...] = ()
    only_for: Callable[[DecoderConfig], bool] = _always
    read: Callable[[Any], Mapping[str, Any]] | None = None
    written: Callable[[DecoderConfig], Mapping[str, Any]] | None = None

    def may_slide(self, slides: Sequence[bool]) -> bool:
        """Can the class say that these layers have a window, and the others none?"""
        return len({*slides}) < 2 if self.windowed == ALL_LAYERS else self.windowed == ANY_LAYER


def sliding(count: int, every: int) -> list[bool]:
    """Which of `count` layers have a window: all but every so many-th one; 0: all."""
    return [not every or (layer + 1) % every != 0 for layer in range(count)]
