"""Images and texts in one space: how well they fit, and labels that are any texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.loaders.image import Preparation
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import Tokenizer
from luminal.models import embed, image_model
from luminal.models.checkpoint import folder_tokenizer
from luminal.models.clip import Clip
from luminal.models.image_model import Guess, folder_preparation, likeliest, prepared
from luminal.models.sampling import checked_count
from luminal.models.siglip import Siglip
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

if TYPE_CHECKING:
    from luminal.models.image_model import Picture

Array = np.ndarray[Any, Any]


class ImageTextModel:
    """A loaded CLIP or SigLIP: one program for images, one for texts, each for all numbers of them.

    `filler`: the token that every text is filled up with; None where texts have their own lengths.
    """

    def __init__(
        self,
        model: Clip | Siglip,
        prepare: Preparation,
        tokenizer: Tokenizer,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
        filler: int | None = None,
    ) -> None:
        self.model, self.prepare, self.tokenizer = model, prepare, tokenizer
        self.filler = filler
        self.mode, self.backend = mode, chosen_device(backend)
        self._programs: dict[str, Executable] = {}

    @classmethod
    def of_folder(cls, folder: Path, model: Clip, mode: Any, backend: str) -> ImageTextModel:
        """With the preparation and tokenizer of its folder. Raises LoadError."""
        tokenizer = folder_tokenizer(folder, model.config.vocab_size)
        return cls(model, folder_preparation(folder), tokenizer, mode, backend)

    def __repr__(self) -> str:
        return f"ImageTextModel({type(self.model).__name__}; {self.backend})"

    def _program(self, kind: str) -> Executable:
        """The program for "images" or "texts", compiled when it is first needed."""
        if kind not in self._programs:
            graph = Graph(kind)
            if kind == "images":
                assert self.prepare.shape is not None
                shape = graph.dim("b", 1, image_model.BATCH), 3, *self.prepare.shape
                vectors = self.model.embed_images(graph.tensor(shape, dtypes.float32, "images"))
            else:
                longest = self.model.config.max_position_embeddings
                batch = graph.dim("b", 1, embed.BATCH)
                s = graph.dim("s", 1, longest) if self.filler is None else longest
                ids = graph.tensor((batch, s), dtypes.int32, "ids")
                lengths = graph.tensor((batch,), dtypes.int32, "lengths")
                vectors = self.model.embed_texts(ids, lengths)
            vectors.output("vectors")
            self._programs[kind] = compile(graph, backend=self.backend, mode=self.mode)
        return self._programs[kind]

    def embed_images(self, images: Sequence[Picture]) -> Array:
        """Files, or images of Pillow, to (len(images), width) of length 1. Raises LoadError."""
        program = self._program("images")
        batches = prepared(images, self.prepare)
        return np.concatenate([program(images=batch)["vectors"] for batch in batches])

    def embed_texts(self, texts: Sequence[str]) -> Array:
        """(len(texts), width) of length 1; long texts are cut. Raises InputError."""
        longest = self.model.config.max_position_embeddings
        if isinstance(texts, str):
            raise InputError(f"texts: got {shown(texts)}; give a list of texts")
        tokens = [embed.tokens_of(self.tokenizer, text, longest) for text in texts]
        vectors = np.empty((len(tokens), self.model.config.width), np.float32)
        if self.filler is not None:
            tokens = [ids + [self.filler] * (longest - len(ids)) for ids in tokens]
        for rows, ids, lengths in embed.in_batches(tokens):
            vectors[rows] = self._program("texts")(ids=ids, lengths=lengths)["vectors"]
        return vectors

    def similarity(self, images: Sequence[Picture], texts: Sequence[str]) -> Array:
        """(images, texts): cosines times the model's scale, logits over the texts; of SigLIP, which
        adds a bias, logits of "yes" for each pair.
        """
        # It is trained as its logarithm, so that it stays positive.
        scale = np.exp(self.model.logit_scale.numpy().astype(np.float32))
        similarities: Array = self.embed_images(images) @ self.embed_texts(texts).T * scale
        if isinstance(self.model, Siglip):
            similarities = similarities + self.model.logit_bias.numpy().astype(np.float32)
        return similarities

    def classify(
        self, images: Sequence[Picture], labels: Sequence[str], top: int = 5
    ) -> list[list[Guess]]:
        """The `top` texts that fit each image best, the best first. Raises InputError.

        Probabilities of CLIP are shares of the labels, those of SigLIP each label's own.
        """
        checked_count("top", top, 1)
        if not labels:
            raise InputError("classify: there are no labels; give some texts")
        independent = isinstance(self.model, Siglip)
        return [
            likeliest(logits, labels, top, independent)
            for logits in self.similarity(images, labels)
        ]


def folder_filler(folder: Path, count: int, default: int) -> tuple[Tokenizer, int]:
    """The tokenizer of a folder, and the token that it fills texts up with: the `pad_token` of its
    settings, or the default. Raises LoadError.
    """
    tokenizer, path = folder_tokenizer(folder, count), folder / "tokenizer_config.json"
    name = read_json(path).get("pad_token") if is_there(path) else None
    name = name.get("content") if isinstance(name, dict) else name
    if name is None:
        return tokenizer, default
    filler = tokenizer.id_of(name) if isinstance(name, str) else None
    if filler is None:
        raise LoadError(f"{path}: pad_token is {shown(name)}, which is none of the tokens")
    return tokenizer, filler
