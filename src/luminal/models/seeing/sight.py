"""What sees for a language model: images become vectors, and tokens of a prompt stand for them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base.errors import InputError, LoadError
from luminal.frontend.handle import Array
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.image_model import opened
from luminal.models.seeing.record import Prepare, Prepared
from luminal.models.seen import Images, Span
from luminal.nn import Module
from luminal.runtime.executable import Executable
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from luminal.models.image_model import Picture

KEPT = 32  # images whose vectors are kept: a chat shows the same ones at every turn


class Sight:
    """A vision tower with a projector, the preparation of images, and the tokens that stand for
    them; see `luminal.models.seeing.record`. One program serves all images.
    """

    def __init__(
        self,
        tower: Module,
        prepare: Prepare,
        tokenizer: Tokenizer,
        *,
        token: int,
        placeholder: str,
        whole: bool,
        places: Callable[[int, Sequence[Span]], Array] | None,
        mode: Any,
        backend: str,
    ) -> None:
        self.tower, self.prepare, self.tokenizer = tower, prepare, tokenizer
        self.token, self.placeholder = token, placeholder
        self.whole, self.places = whole, places
        self.mode, self.backend = mode, backend
        self._program: Executable | None = None
        self._kept: OrderedDict[bytes, Array] = OrderedDict()

    def __repr__(self) -> str:
        return f"Sight({type(self.tower).__name__}, {self.placeholder!r}; {self.backend})"

    def compile(self) -> Executable:
        """The tower's program, compiled at the first image."""
        if self._program is None:
            graph = Graph("images")
            tower: Any = self.tower
            tower.recorded(graph).output("vectors")
            self._program = compile(graph, backend=self.backend, mode=self.mode)
        return self._program

    def read(
        self,
        prompt: str | Sequence[int],
        images: Sequence[Picture],
        bare: bool = False,
        context: int | None = None,
    ) -> tuple[list[int], Images | None]:
        """The ids of a prompt with placeholders, and what is in their place; None without images.

        Of a text each placeholder becomes the tokens of its image; ids have all these tokens
        already. `bare`: see `Tokenizer.encode`. Raises InputError where the numbers differ, and
        for more than `context` tokens, before the tower runs.
        """
        prepared = [self.prepare(opened(picture)) for picture in _listed(images)]
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(self._expanded(prompt, prepared), bare)
        else:
            ids = [*prompt]
        places = np.flatnonzero(np.array(ids) == self.token)
        wanted = sum(image.tokens for image in prepared)
        if len(places) != wanted:
            raise InputError(
                f"images: {len(prepared)} with {wanted} vectors, but the prompt has {len(places)} "
                f"tokens of id {self.token} ({self.tokenizer.name_of(self.token)!r}), one of which "
                "stands for each; give as many"
            )
        if prepared and context is not None and len(ids) > context:
            raise InputError(
                f"prompt: {len(ids)} tokens, but the context is {context}; {wanted} stand for "
                "images: give fewer or smaller ones, or more context"
            )
        return ids, self._images(len(ids), prepared, places) if prepared else None

    def vectors(self, prepared: Prepared) -> Array:
        """The vectors (count, hidden) of an image."""
        program = self.compile()
        parts = [np.asarray(program(dict(run))["vectors"], np.float32) for run in prepared.runs]
        vectors = np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])
        if len(vectors) != prepared.tokens:
            raise LoadError(
                f"images: one has {prepared.tokens} tokens, but the tower makes {len(vectors)} "
                "vectors of it; config.json and the processor's settings are of different models"
            )
        return vectors

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

    def _images(self, count: int, prepared: Sequence[Prepared], tokens: Array) -> Images:
        """What takes the place of these tokens of a text of `count`."""
        vectors, spans, used = [], [], 0
        for image in prepared:
            digest = _digest(image)
            vectors.append(self._remembered(digest, image))
            its_tokens = tokens[used : used + image.tokens]
            used += image.tokens
            # A large image is several ranges of tokens, with words between them.
            for part in np.split(its_tokens, np.flatnonzero(np.diff(its_tokens) != 1) + 1):
                spans.append(Span(int(part[0]), int(part[-1]) + 1, digest, image.grid))
        places = None if self.places is None else self.places(count, spans)
        return Images(np.concatenate(vectors), (*spans,), self.whole, places)

    def _remembered(self, digest: bytes, prepared: Prepared) -> Array:
        """The vectors of an image, made once for the last few of them."""
        vectors = self._kept.pop(digest, None)
        if vectors is None:
            vectors = self.vectors(prepared)
        self._kept[digest] = vectors
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return vectors


def _listed(images: Any) -> Sequence[Any]:
    if not isinstance(images, list | tuple):
        raise InputError(f"images: {shown(images)} is no list; give a list of images")
    return images


def _digest(prepared: Prepared) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for run in prepared.runs:
        for name in sorted(run):
            digest.update(f"{name} {run[name].shape};".encode())
            digest.update(np.ascontiguousarray(run[name]).tobytes())
    return digest.digest()
