"""A model as a server knows it: its name, its words, the engine that writes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.errors import InputError
from luminal.models.generate import LanguageModel
from luminal.models.text import Matcher, Text
from luminal.models.whole_texts import pooled
from luminal.serve.engine import Engine, EngineOptions, Job
from luminal.serve.errors import ApiError
from luminal.serve.orders import Order
from luminal.serve.words import Words
from luminal.serve.workshop import Workshop
from luminal.session import compile

Array = np.ndarray[Any, Any]


class Served:
    """One model under one name. All of its programs are compiled when this is made."""

    def __init__(self, name: str, loaded: LanguageModel, options: EngineOptions) -> None:
        self.name, self.tokenizer, self.context = name, loaded.tokenizer, loaded.context
        vocab_size = loaded.model.config.vocab_size
        template = loaded.chat_template
        self.words = Words(name, self.tokenizer, template, self.context, vocab_size)
        self.workshop = Workshop(self.words)
        self.engine = Engine(loaded.model, self.tokenizer, self.context, options)
        graph = pooled(loaded.model, self.context, "mean")
        self._pooled = compile(graph, backend=options.backend)

    def jobs(self, order: Order, matchers: Sequence[Matcher] = ()) -> list[list[Job]]:
        """The jobs of an order: for each prompt those of its choices. `matchers`: what each text
        follows; none: nothing. Raises ApiError.
        """
        count = order.count
        texts = count * len(order.prompts)
        follows: Sequence[Matcher | None] = [*matchers] or [None] * texts
        try:
            return [
                [self._job(order, prompt, first + k, follows[first + k]) for k in range(count)]
                for first, prompt in zip(itertools.count(0, count), order.prompts, strict=False)
            ]
        except InputError as error:
            raise ApiError(400, str(error), "response_format", "invalid_value") from None

    def _job(
        self, order: Order, prompt: tuple[int, ...], number: int, matcher: Matcher | None
    ) -> Job:
        text = Text(
            self.tokenizer,
            prompt,
            order.new_tokens,
            order.sampling_of(number),
            order.stops,
            matcher,
        )
        return self.engine.job(text, prompt, order.logprobs)

    def vector(self, ids: Sequence[int]) -> Array:
        """The mean hidden state of a text, of length 1: float32 (hidden,)."""
        found: Array = self._pooled({"ids": np.array(ids, np.int32)})["y"]
        length = float(np.linalg.norm(found))
        return found / length if length else found
