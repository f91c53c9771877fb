"""The half of what sees that reads prompts: images become arrays, placeholders their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from luminal.base import lazy
from luminal.base.errors import InputError
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.image_model import opened
from luminal.models.seeing.record import Prepare, Prepared, Seeing

if TYPE_CHECKING:
    from luminal.models.image_model import Picture


class Processor:
    """`sees`: "module:RECORD" of this package; `fields`, `settings`: the configuration of the
    model, and how its images are prepared. `token` stands for a vector, `placeholder` for an image.

    It has no weights, so a process that only reads what clients send can be given it.
    """

    def __init__(
        self,
        sees: str,
        fields: Fields,
        settings: Fields,
        tokenizer: Tokenizer,
        token: int,
        placeholder: str,
    ) -> None:
        self._sees, self._fields, self._settings = sees, fields, settings
        self.tokenizer, self.token, self.placeholder = tokenizer, token, placeholder

    def __reduce__(self) -> tuple[Any, ...]:
        # What prepares is a function of its record's, which no process can be sent.
        parts = self._sees, self._fields, self._settings
        return Processor, (*parts, self.tokenizer, self.token, self.placeholder)

    @cached_property
    def prepare(self) -> Prepare:
        """What the model takes of an image. Raises LoadError for settings that are not supported,
        and when it is called InputError for images that the model takes none of.
        """
        record: Seeing = lazy.found(f"{__package__}.{self._sees}")
        return record.prepare(self._fields, self._settings, self.tokenizer.name_of)

    def read(
        self,
        prompt: str | Sequence[int],
        images: Sequence[Picture | Prepared],
        bare: bool = False,
        context: int | None = None,
    ) -> tuple[list[int], list[Prepared]]:
        """The ids of a prompt with placeholders, and its images, prepared.

        Of a text each placeholder becomes the tokens of its image; ids have all these tokens
        already. `bare`: see `Tokenizer.encode`. Raises InputError where the numbers differ, and
        for more than `context` tokens.
        """
        prepared = [
            image if isinstance(image, Prepared) else self.prepare(opened(image))
            for image in _listed(images)
        ]
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(self._expanded(prompt, prepared), bare)
        else:
            ids = [*prompt]
        there, wanted = ids.count(self.token), sum(image.tokens for image in prepared)
        if there != wanted:
            raise InputError(
                f"images: {len(prepared)} with {wanted} vectors, but the prompt has {there} "
                f"tokens of id {self.token} ({self.tokenizer.name_of(self.token)!r}), one of which "
                "stands for each; give as many"
            )
        if prepared and context is not None and len(ids) > context:
            raise InputError(
                f"prompt: {len(ids)} tokens, but the context is {context}; {wanted} stand for "
                "images: give fewer or smaller ones, or more context"
            )
        return ids, prepared

    def _expanded(self, prompt: str, prepared: Sequence[Prepared]) -> str:
        """The prompt with the tokens of images for their placeholders."""
        first, *others = prompt.split(self.placeholder)
        if len(others) != len(prepared):
            raise InputError(
                f"images: there are {len(prepared)}, but the prompt has {len(others)} "
                f"placeholders; write {self.placeholder!r} once for each image, or use chat"
            )
        pairs = zip(prepared, others, strict=True)
        return first + "".join(image.text + after for image, after in pairs)


def _listed(images: Any) -> Sequence[Any]:
    if not isinstance(images, list | tuple):
        raise InputError(f"images: {shown(images)} is no list; give a list of images")
    return images
