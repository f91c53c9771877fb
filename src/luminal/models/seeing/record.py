"""What a family of seeing models is: its tower, and how its images become arrays and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.fields import Fields
from luminal.models.families.renaming import Names
from luminal.models.seen import Span

if TYPE_CHECKING:
    from PIL.Image import Image

TOKENS = "image_token_id", "image_token_index"


class Prepared(NamedTuple):
    """An image as a model takes it.

    `runs`: the inputs of the tower, one run after the other. `text`: what takes the place of the
    image's placeholder in a prompt; in it are as many image tokens as the runs make vectors,
    `tokens`. `grid`: their rows and columns, where the model reads by them.
    """

    runs: Sequence[Mapping[str, Array]]
    text: str
    tokens: int
    grid: tuple[int, int] = (0, 0)


Prepare = Callable[["Image"], Prepared]

CLIP_LAYER: Mapping[str, str] = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
"""What the parts of a tower's layer are called in mmproj files, and by CLIP and SigLIP."""


class Sees(NamedTuple):
    """What sees for a language model, as files have it, in the terms of a folder of Hugging Face's.

    `record`: "module:RECORD" of this package; `source`: the folder or file. `config`: what a
    `config.json` says; `settings`: how images are prepared; `tensors`: weights by their names
    there. `placeholder`: what stands for an image in a prompt, where it is no token.
    """

    record: str
    source: Path
    config: Fields
    settings: Fields
    tensors: Mapping[str, Any]
    placeholder: str = ""


class Said(NamedTuple):
    """What the metadata of an mmproj file says: parts of a `config.json`, and how images are
    prepared.
    """

    config: Mapping[str, Any]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProjectorFile:
    """How mmproj files in GGUF have a family; see `projector_file`.

    `tower`, `projector`: how the names of the weights of both begin in files of Hugging Face's.
    `layers`: what a layer's number follows in the tower, and `parts` what is in one, here and
    there. `names`: those of the projector, and of what is outside of layers if it differs.
    `output`: the weight that makes vectors, and which of its dims is that of their features.
    `changes`: what is stored otherwise. `read`: what the metadata says. `tokens`: keys of
    `config.json` for ids, and the names of these tokens, of which the first that the tokenizer has
    is taken. `placeholder`: see `Sees`.
    """

    tower: str
    projector: str
    names: Mapping[str, str]
    output: tuple[str, int]
    read: Callable[[Fields], Said]
    tokens: Mapping[str, tuple[str, ...]]
    changes: Mapping[str, Callable[[Array], Array]] = field(default_factory=dict)
    placeholder: str = ""
    layers: str = "encoder.layers."
    parts: Mapping[str, str] = field(default_factory=lambda: CLIP_LAYER)


@dataclass(frozen=True, slots=True)
class Seeing:
    """`tower`: the module that a `config.json` describes, without values, for a decoder of so many
    features, whose `recorded(graph)` makes vectors (..., hidden) of inputs that it
    declares. `parts`: how the names of its weights begin in files, and `names`: what
    they are in it. `prepare`: by the configuration, the processor's settings and the names of ids.

    `tokens`, `placeholders`: keys of `config.json` for the token that vectors take the place of,
    and for that which stands for an image in a prompt. `whole`: the tokens of an image see all of
    it. `places`: positions (3, count) of so many tokens among which are these images, for models
    whose positions have rows and columns. `weights`: what becomes of the renamed ones. `file`: how
    GGUF files have the family, where they do.
    """

    tower: Callable[[Fields, int], Any]
    parts: tuple[str, ...]
    names: Callable[[Fields], Names]
    prepare: Callable[[Fields, Fields, Callable[[int], str]], Prepare]
    tokens: tuple[str, ...] = TOKENS
    placeholders: tuple[str, ...] = TOKENS
    whole: bool = False
    places: Callable[[int, Sequence[Span]], Array] | None = None
    weights: Callable[[Mapping[str, Array]], dict[str, Array]] = dict
    file: ProjectorFile | None = None
