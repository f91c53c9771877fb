"""Text from text by an encoder and a decoder: translation, summaries, answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError
from luminal.frontend.tensor import Tensor
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import StreamDecoder, Tokenizer
from luminal.models.checkpoint import folder_config, folder_tokenizer
from luminal.models.choice import Chooser
from luminal.models.sampling import Draw, Sampling, checked_count
from luminal.models.sequence_to_sequence import SequenceToSequence
from luminal.models.t5 import T5
from luminal.search.options import CompilationMode
from luminal.session.graph import Graph


class TextToText:
    """A loaded model with its tokenizer. `start`: the token that every written text follows."""

    def __init__(
        self,
        model: T5,
        tokenizer: Tokenizer,
        start: int,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.tokenizer, self.start = model, tokenizer, start
        self.writer = SequenceToSequence(model, self._input, mode, backend)
        self._choose = Chooser(model.config.vocab_size, self.writer.backend)

    def _input(self, graph: Graph) -> Tensor:
        return graph.tensor((graph.dim("m", 1, self.model.longest_input),), dtypes.int32, "x")

    @classmethod
    def of_folder(cls, folder: Path, model: T5, mode: Any, backend: str) -> TextToText:
        """With the tokenizer of its folder. Raises LoadError."""
        count = model.config.vocab_size
        tokenizer = folder_tokenizer(folder, count)
        fields = Fields(folder_config(folder), folder / "config.json")
        start = fields.id_or_none("decoder_start_token_id", count)
        if start is None:
            # T5 begins with its padding token where a file says nothing else.
            start = fields.token_id("pad_token_id", count)
        return cls(model, tokenizer, start, mode, backend)

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"TextToText({type(self.model).__name__}, {config.encoder.num_hidden_layers} and "
            f"{config.decoder.num_hidden_layers} layers of {config.encoder.hidden_size}; "
            f"{self.writer.backend})"
        )

    def generate(self, text: str, max_tokens: int = 200, **options: Any) -> str:
        """What the model makes of `text`; options as for `stream`."""
        return "".join(self.stream(text, max_tokens, **options))

    def stream(
        self,
        text: str,
        max_tokens: int = 200,
        **sampling: Any,
    ) -> Iterator[str]:
        """The new text in pieces of whole characters, as they come; `sampling` as for Sampling.

        Raises InputError, at once, for a text that is too long or an option out of its range.
        """
        checked_count("max_tokens", max_tokens, 0)
        return self._pieces(self._ids(text), max_tokens, Sampling(**sampling))

    def _ids(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise InputError(f"generate: {shown(text)} is no text; give a str")
        ids, longest = self.tokenizer.encode(text), self.model.longest_input
        if not 0 < len(ids) <= longest:
            raise InputError(
                f"generate: the text has {len(ids)} tokens; the model takes 1 to {longest}"
            )
        return ids

    def tokens(
        self, ids: list[int], max_tokens: int, sampling: Sampling | None = None
    ) -> Iterator[int]:
        """What follows from `ids` as ids, up to an end token."""
        settings = sampling or Sampling()
        self.writer.encode(np.array(ids, np.int32))
        tokens = self.writer.tokens(
            [self.start],
            lambda new, logits: self._choose(Draw(settings, new), logits),
            self.tokenizer.eos_ids,
        )
        # The count comes first: zip asks in order, and a token more than wanted would cost a run.
        return (token for _, token in zip(range(max_tokens), tokens, strict=False))

    def _pieces(self, ids: list[int], max_tokens: int, sampling: Sampling) -> Iterator[str]:
        decoder = StreamDecoder(self.tokenizer)
        for token in self.tokens(ids, max_tokens, sampling):
            piece = decoder.push(token)
            if piece:
                yield piece
        rest = decoder.finish()
        if rest:
            yield rest
