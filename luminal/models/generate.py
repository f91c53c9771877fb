"""Text from a language model: one program reads the prompt, another adds a token at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from luminal import dtypes
from luminal.errors import GraphError, InputError, LoadError
from luminal.loaders.checkpoint import folder_config, load_checkpoint, locate
from luminal.loaders.tokenizer import StreamDecoder, Tokenizer
from luminal.models.architectures import decoder_of
from luminal.models.choice import NOT_A_NUMBER, choose, declared
from luminal.models.decoder import Decoder
from luminal.models.families import family_of, read_family
from luminal.models.sampling import Draw, Sampling, arrays, checked_count, features_of
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode, mode_of
from luminal.session import Graph, compile

Array = np.ndarray[Any, Any]
MAX_CONTEXT = 4096  # positions the caches hold by default: more costs memory few prompts need


@dataclass(slots=True)
class Stats:
    """Seconds of each phase, tokens read and written by the last generation."""

    load: float = 0.0
    compile: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Of decoding: the first new token comes from the prefill."""
        steps = self.new_tokens - 1
        return steps / self.decode if steps > 0 and self.decode > 0 else 0.0

    def text(self) -> str:
        """One line a phase."""
        return "\n".join(
            (
                f"load     {self.load * 1e3:9.1f} ms",
                f"compile  {self.compile * 1e3:9.1f} ms",
                f"prefill  {self.prefill * 1e3:9.1f} ms  {self.prompt_tokens} tokens",
                f"decode   {self.decode * 1e3:9.1f} ms  {self.new_tokens} tokens, "
                f"{self.tokens_per_second:.1f} tokens/s",
            )
        )


class LanguageModel:
    """A loaded model. One text is generated at a time: all share one cache of keys and values.

    `context` is the greatest number of tokens, prompt and continuation together.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        mode: CompilationMode | str = "fast",
        backend: str = "cpu",
        context: int | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.mode, self.backend = mode, backend
        wanted = MAX_CONTEXT if context is None else checked_count("context", context, 1)
        self.context = min(model.longest_text, wanted)
        self.stats = Stats()
        self._caches = model.make_caches(self.context)
        self._programs: dict[tuple[str, ...], tuple[Executable, Executable]] = {}
        self._current: object = None  # the generation that the caches belong to

    def __repr__(self) -> str:
        config = self.model.config
        state = "compiled" if self._programs else "not compiled"
        return (
            f"LanguageModel({type(self.model).__name__}, {config.num_hidden_layers} layers of "
            f"{config.hidden_size}, {config.vocab_size} tokens, context {self.context}; "
            f"{self.backend}, {self.mode}, {state})"
        )

    # --- programs

    def _record(self, lengths: tuple[int, int], features: tuple[str, ...]) -> Graph:
        """ids (s,) after `past` tokens to the token after the last; the caches grow by s."""
        graph = Graph("prefill" if lengths[1] > 1 else "decode")
        past = graph.dim("past", 0, self.context - 1)
        s = graph.dim("s", *lengths) if lengths[1] > lengths[0] else lengths[0]
        ids = graph.tensor((s,), dtype=dtypes.int32, name="ids")
        logits = self.model(ids, self._caches, past, last_only=True)
        inputs = declared(graph, 1, features, self.model.config.vocab_size)
        choose(logits, features, inputs).tokens.output("tokens")
        return graph

    def compile(self, features: tuple[str, ...] = ()) -> tuple[Executable, Executable]:
        """The prefill and decode programs, compiled at the first call for all lengths.

        They share the time of a budget. `features`: what the choice of tokens needs.
        """
        if features not in self._programs:
            start = time.perf_counter()
            mode = mode_of(self.mode).shared_by(2)
            prefill = compile(
                self._record((1, self.context), features), backend=self.backend, mode=mode
            )
            found = prefill.report().search
            if found is not None and found.interrupted:  # Ctrl-C ends all searching at once
                mode = CompilationMode.FAST
            decode = compile(self._record((1, 1), features), backend=self.backend, mode=mode)
            self._programs[features] = prefill, decode
            self.stats.compile = time.perf_counter() - start
        return self._programs[features]

    # --- text

    def generate(self, prompt: str, max_tokens: int = 200, **options: Any) -> str:
        """The continuation of `prompt`; options as for `stream`."""
        return "".join(self.stream(prompt, max_tokens, **options))

    def stream(
        self,
        prompt: str,
        max_tokens: int = 200,
        **sampling: Any,
    ) -> Iterator[str]:
        """The continuation in pieces of whole characters, as they come.

        `sampling` as for Sampling; greedy without. Raises InputError, at once, if the prompt is
        longer than the context or an option is out of its range.
        """
        ids = self.encode(prompt)
        return self._pieces(ids, self.tokens(ids, max_tokens, Sampling(**sampling)))

    def _pieces(self, ids: list[int], tokens: Iterator[int]) -> Iterator[str]:
        decoder = StreamDecoder(self.tokenizer, ids)
        for token in tokens:
            piece = decoder.push(token)
            if piece:
                yield piece
        rest = decoder.finish()
        if rest:
            yield rest

    def encode(self, prompt: str) -> list[int]:
        """The prompt's tokens; raises InputError if there are none or too many for the context."""
        if not isinstance(prompt, str):
            raise InputError(f"prompt: {prompt!r} is no text; give a str")
        try:
            prompt.encode()
        except UnicodeEncodeError as error:  # from a command line that is no UTF-8
            raise InputError(
                f"prompt: character {error.start} is no text ({prompt[error.start]!a}); give UTF-8"
            ) from None
        ids = self.tokenizer.encode(prompt)
        if not ids:
            raise InputError("prompt: it has no tokens; give some text")
        if len(ids) > self.context:
            raise InputError(
                f"prompt: {len(ids)} tokens, but the context is {self.context}; shorten it"
            )
        return ids

    def tokens(
        self, ids: Sequence[int], max_tokens: int, sampling: Sampling | None = None
    ) -> Iterator[int]:
        """The continuation as token ids, up to an end token, `max_tokens` or the context's end."""
        checked_count("max_tokens", max_tokens, 0)
        draw = Draw(sampling or Sampling(), [*ids], len(ids))
        self.compile(features_of([draw]))
        return self._tokens(draw, max_tokens)

    def _tokens(self, draw: Draw, max_tokens: int) -> Iterator[int]:
        features = features_of([draw])
        prefill, decode = self.compile(features)
        stats = self.stats
        stats.prompt_tokens, stats.new_tokens = draw.prompt, 0
        stats.prefill = stats.decode = 0.0
        generation = self._current = object()
        step = np.array(draw.tokens, np.int32)
        program, past = prefill, 0
        room = min(max_tokens, self.context - draw.prompt + 1)
        for number in range(room):
            if self._current is not generation:
                raise GraphError(
                    "stream: another text was started on this model; finish one before the next"
                )
            start = time.perf_counter()
            inputs = arrays([draw], features, self.model.config.vocab_size)
            found = program({"ids": step, **inputs}, dims={"past": past})
            token = int(found["tokens"][0])
            elapsed = time.perf_counter() - start
            if number == 0:
                stats.prefill = elapsed
            else:
                stats.decode += elapsed
            if token == NOT_A_NUMBER:
                raise InputError(
                    "logits: the model computes NaN; its weights are damaged, or overflow in their "
                    "dtype: load the model's original file"
                )
            if token in self.tokenizer.eos_ids:
                return
            stats.new_tokens += 1
            yield token
            past += len(step)
            draw.tokens = [*draw.tokens, token]
            program, step = decode, np.array([token], np.int32)


def load(
    path: str | Path,
    tokenizer: str | Path | None = None,
    mode: CompilationMode | str = "fast",
    backend: str = "cpu",
    context: int | None = None,
) -> Any:
    """The model in a folder, a `.gguf`, a llama2.c `.bin`, or of a Hugging Face id.

    A LanguageModel, or for `luminal.models.families` what runs them.

    `tokenizer`: a tokenizer file, where the model has none. Raises LoadError.
    """
    start = time.perf_counter()
    place = locate(path)
    if place.is_dir() and family_of(folder_config(place)) is not None:
        return read_family(place, mode, backend)
    checkpoint = load_checkpoint(place, tokenizer)
    model = decoder_of(checkpoint)
    found = checkpoint.tokenizer_for(model.config.vocab_size)
    if found is None:
        raise LoadError(
            f"{path}: the model has no tokenizer; name one, with --tokenizer or tokenizer=..."
        )
    loaded = LanguageModel(model, found, mode, backend, context)
    loaded.stats.load = time.perf_counter() - start
    return loaded
