"""A model as a server knows it: its name, its words, the engine that writes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.errors import InputError
from luminal.models.constraints import json_schema
from luminal.models.generate import LanguageModel
from luminal.models.text import Constraint, Text
from luminal.models.whole_texts import pooled
from luminal.serve.engine import Engine, EngineOptions, Job
from luminal.serve.errors import ApiError
from luminal.serve.orders import Order
from luminal.session import compile

Array = np.ndarray[Any, Any]


class Served:
    """One model under one name. All of its programs are compiled when this is made."""

    def __init__(self, name: str, loaded: LanguageModel, options: EngineOptions) -> None:
        self.name, self._loaded = name, loaded
        self.tokenizer, self.context = loaded.tokenizer, loaded.context
        self.vocab_size = loaded.model.config.vocab_size
        self.engine = Engine(loaded.model, self.tokenizer, self.context, options)
        graph = pooled(loaded.model, self.context, "mean")
        self._pooled = compile(graph, backend=options.backend)

    def encode(self, text: str) -> list[int]:
        """A prompt's tokens."""
        return self.tokenizer.encode(text)

    def encode_chat(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]
    ) -> list[int]:
        """The tokens of a conversation that the assistant goes on with. Raises ApiError."""
        try:
            return self._loaded.chat_prompt(messages, list(tools) or None)
        except InputError as error:
            raise ApiError(400, str(error), "messages", "invalid_value") from None

    def jobs(self, order: Order) -> list[list[Job]]:
        """The jobs of an order: for each prompt those of its choices."""
        count = order.count
        try:
            constraint = None if order.schema is None else json_schema(order.schema)
            return [
                [self._job(order, prompt, first + k, constraint) for k in range(count)]
                for first, prompt in zip(itertools.count(0, count), order.prompts, strict=False)
            ]
        except InputError as error:
            raise ApiError(400, str(error), "response_format", "invalid_value") from None

    def _job(
        self, order: Order, prompt: tuple[int, ...], number: int, constraint: Constraint | None
    ) -> Job:
        text = Text(
            self.tokenizer,
            prompt,
            order.new_tokens,
            order.sampling_of(number),
            order.stops,
            None if constraint is None else constraint.matcher(self.tokenizer, self.vocab_size),
        )
        return self.engine.job(text, prompt, order.logprobs)

    def vector(self, ids: Sequence[int]) -> Array:
        """The mean hidden state of a text, of length 1: float32 (hidden,)."""
        found: Array = self._pooled({"ids": np.array(ids, np.int32)})["y"]
        length = float(np.linalg.norm(found))
        return found / length if length else found
