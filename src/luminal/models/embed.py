"""Vectors of texts: a text encoder, then pooling as sentence-transformers' files say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import read_json, read_json_list
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.architectures.settings import refuse
from luminal.models.checkpoint import folder_tokenizer
from luminal.models.encoder import Encoder, within
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

Array = np.ndarray[Any, Any]
BATCH = 32  # texts at once: more gains nothing on a CPU, and padding grows


def _mean(hidden: Tensor, is_token: Tensor) -> Tensor:
    return where(is_token, hidden, 0).sum(1) / is_token.cast(hidden.dtype).sum(1)


def _max(hidden: Tensor, is_token: Tensor) -> Tensor:
    # Padding must lose against everything, also where all of a feature's values are negative.
    return where(is_token, hidden, -np.inf).amax(1)


def _cls(hidden: Tensor, is_token: Tensor) -> Tensor:
    # BERT's first token, [CLS], stands in front of every text and was trained to sum it up.
    return hidden[:, 0]


POOLINGS = {"mean": _mean, "max": _max, "cls": _cls}
"""(batch, s, hidden), and which tokens are a text's own (batch, s, 1), to (batch, hidden)."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """How the vectors of a text's tokens become one, of length 1 if `normalize`.

    `max_tokens`: the rest of a text is cut off; None where only the model limits it.
    """

    kind: str = "mean"
    normalize: bool = False
    max_tokens: int | None = None

    def __call__(self, hidden: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """(batch, s, hidden) to (batch, hidden)."""
        pooled = POOLINGS[self.kind](hidden, within(ids, lengths).unsqueeze(-1))
        return pooled.normalize(dim=-1) if self.normalize else pooled


def folder_pooling(folder: Path) -> Pooling:
    """The pooling that `modules.json` and the files it names describe; the mean where there are
    none.

    Raises LoadError for modules and modes that Luminal does not have.
    """
    path = folder / "modules.json"
    if not is_there(path):
        return Pooling()
    kind, normalize = "mean", False
    for module in read_json_list(path):
        fields = Fields(module if isinstance(module, dict) else {}, path, "a module")
        match fields.text("type", "").rpartition(".")[-1]:
            case "Transformer":
                pass
            case "Pooling":
                kind = _pooling_kind(folder / fields.text("path", "") / "config.json")
            case "Normalize":
                normalize = True
            case other:
                raise LoadError(
                    f"{path}: module {shown(other)} is not supported; Transformer, Pooling and "
                    "Normalize are"
                )
    limits = folder / "sentence_bert_config.json"
    if not is_there(limits):
        return Pooling(kind, normalize)
    settings = Fields(read_json(limits), limits)
    # A tokenizer that this file wants changed would give other tokens than the model was trained
    # with.
    refuse(settings, do_lower_case=False)
    most = settings.values.get("max_seq_length")
    return Pooling(kind, normalize, None if most is None else settings.integer("max_seq_length"))


_MODE = "pooling_mode"
_MODES = {f"{_MODE}_mean_tokens": "mean", f"{_MODE}_max_tokens": "max", f"{_MODE}_cls_token": "cls"}


def _pooling_kind(path: Path) -> str:
    """By one `pooling_mode`, or by the only flag that is true."""
    fields = Fields(read_json(path), path)
    flags = [key for key in fields.values if key.startswith(_MODE) and fields.values[key] is True]
    kind = fields.text(_MODE, "") or ", ".join(_MODES.get(flag, flag) for flag in flags)
    if kind not in POOLINGS:
        raise LoadError(
            f"{path}: {_MODE} {shown(kind)} is not supported; {', '.join(POOLINGS)} are"
        )
    return kind


class TextEncoder:
    """A loaded text encoder with its tokenizer; one program serves all numbers and lengths."""

    def __init__(
        self,
        model: Encoder,
        tokenizer: Tokenizer,
        pooling: Pooling,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.tokenizer, self.pooling = model, tokenizer, pooling
        self.mode, self.backend = mode, chosen_device(backend)
        longest = model.config.max_position_embeddings
        self.max_tokens = min(longest, pooling.max_tokens or longest)
        self._program: Executable | None = None

    @classmethod
    def of_folder(cls, folder: Path, model: Encoder, mode: Any, backend: str) -> TextEncoder:
        """With the tokenizer and pooling of its folder. Raises LoadError."""
        tokenizer = folder_tokenizer(folder, model.config.vocab_size)
        return cls(model, tokenizer, folder_pooling(folder), mode, backend)

    def __repr__(self) -> str:
        layers = self.model.config.layers
        return (
            f"TextEncoder({layers.num_hidden_layers} layers of {layers.hidden_size}, "
            f"{self.pooling.kind} pooling, at most {self.max_tokens} tokens; {self.backend})"
        )

    def compile(self) -> Executable:
        """The program, compiled at the first call: ids (b, s) and lengths (b,) to vectors."""
        if self._program is None:
            graph = Graph("embed")
            batch, s = graph.dim("b", 1, BATCH), graph.dim("s", 1, self.max_tokens)
            ids = graph.tensor((batch, s), dtypes.int32, "ids")
            lengths = graph.tensor((batch,), dtypes.int32, "lengths")
            hidden = self.model(ids, lengths)
            self.pooling(hidden, ids, lengths).output("vectors")
            self._program = compile(graph, backend=self.backend, mode=self.mode)
        return self._program

    def embed(self, texts: str | Sequence[str]) -> Array:
        """A vector for each text, float32 (hidden,) or (texts, hidden).

        Texts of more than `max_tokens` tokens are cut; those that end every text stay. Raises
        InputError for what is no text.
        """
        if not isinstance(texts, Iterable):
            raise InputError(f"embed: {shown(texts)} is no text; give strings")
        rows = [texts] if isinstance(texts, str) else texts
        vectors = self.vectors([self.tokens(text) for text in rows])
        return vectors[0] if isinstance(texts, str) else vectors

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text that are read, at most `max_tokens`; InputError as `embed`."""
        return tokens_of(self.tokenizer, text, self.max_tokens)

    def vectors(self, tokens: Sequence[list[int]]) -> Array:
        """A vector for the tokens of each text, float32 (texts, hidden)."""
        vectors = np.empty((len(tokens), self.model.config.layers.hidden_size), np.float32)
        for numbers, ids, lengths in in_batches(tokens):
            vectors[numbers] = self.compile()(ids=ids, lengths=lengths)["vectors"]
        return vectors


def tokens_of(tokenizer: Tokenizer, text: str, most: int) -> list[int]:
    """At most so many; of a longer text those at the end that end every text stay.

    Raises InputError for what is no text.
    """
    if not isinstance(text, str):
        raise InputError(f"embed: {shown(text)} is no text; give strings")
    ids = tokenizer.encode(text)
    if not ids:
        raise InputError(f"embed: {shown(text)} has no tokens; give some text")
    if len(ids) <= most:
        return ids
    # The empty text's tokens are those that frame every text; what both end with must stay.
    ends = _common_end(ids, tokenizer.encode(""))
    return ids[: most - ends] + ids[len(ids) - ends :]


def in_batches(tokens: Sequence[list[int]]) -> Iterator[tuple[Array, Array, Array]]:
    """Texts of about the same length together: their numbers, ids (b, s) and lengths (b,)."""
    # Texts of like length share a batch: rows are padded to the longest, and padding is computed
    # too.
    order = np.argsort([len(ids) for ids in tokens], kind="stable")
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        lengths = np.array([len(tokens[row]) for row in rows], np.int32)
        ids = np.zeros((len(rows), lengths.max()), np.int32)
        for place, row in enumerate(rows):
            ids[place, : lengths[place]] = tokens[row]
        yield rows, ids, lengths


def _common_end(a: Sequence[int], b: Sequence[int]) -> int:
    """How many items both end with."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return next((n for n, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
