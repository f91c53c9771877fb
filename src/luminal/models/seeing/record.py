"""What a family of seeing models is: its tower, and how its images become arrays and tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Seeing:
    """`tower`: the module that a `config.json` describes, without values, for a decoder of so many
    features, whose `recorded(graph)` makes vectors (..., hidden) of inputs that it
    declares. `parts`: how the names of its weights begin in files, and `names`: what
    they are in it. `prepare`: by the configuration, the processor's settings and the names of ids.

    `tokens`, `placeholders`: keys of `config.json` for the token that vectors take the place of,
    and for that which stands for an image in a prompt. `whole`: the tokens of an image see all of
    it. `places`: positions (3, count) of so many tokens among which are these images, for models
    whose positions have rows and columns. `weights`: what becomes of the renamed ones.
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
