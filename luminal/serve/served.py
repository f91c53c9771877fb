"""A model as a server knows it: its name, its words, the engine that writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.errors import InputError
from luminal.loaders.tokenizer import Tokenizer
from luminal.models.decoder import Decoder
from luminal.models.text import Constraint, Text
from luminal.models.whole_texts import pooled
from luminal.serve.engine import Engine, EngineOptions, Job
from luminal.serve.errors import ApiError
from luminal.serve.orders import Order
from luminal.session import compile

Array = np.ndarray[Any, Any]
Template = Callable[[Sequence[dict[str, Any]], Sequence[dict[str, Any]]], list[int]]
"""The tokens of a conversation, of its messages and tools."""


class Served:
    """One model under one name. All of its programs are compiled when this is made.

    `template`: makes a prompt of a conversation; None: the model is none for conversations.
    `constraint`: makes of a JSON schema what texts must match; None: it cannot be asked for.
    """

    def __init__(
        self,
        name: str,
        model: Decoder,
        tokenizer: Tokenizer,
        context: int,
        options: EngineOptions,
        template: Template | None = None,
        constraint: Callable[[Any], Constraint] | None = None,
    ) -> None:
        self.name, self.tokenizer, self.context = name, tokenizer, context
        self.vocab_size = model.config.vocab_size
        self.engine = Engine(model, tokenizer, context, options)
        self._template, self._constraint = template, constraint
        self._pooled = compile(pooled(model, context, "mean"), backend=options.backend)

    def encode(self, text: str) -> list[int]:
        """A prompt's tokens."""
        return self.tokenizer.encode(text)

    def encode_chat(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]
    ) -> list[int]:
        """The tokens of a conversation that the assistant goes on with. Raises ApiError."""
        if self._template is None:
            raise ApiError(
                400,
                f"{self.name} has no chat template; use /v1/completions",
                "model",
                "no_template",
            )
        try:
            return self._template(messages, tools)
        except InputError as error:
            raise ApiError(400, str(error), "messages", "invalid_value") from None

    def jobs(self, order: Order) -> list[list[Job]]:
        """The jobs of an order: for each prompt those of its choices."""
        constraint = None
        if order.schema is not None:
            if self._constraint is None:
                raise ApiError(
                    400, "response_format: install luminal[constrain] to use it", "response_format"
                )
            constraint = self._constraint(order.schema)
        number, found = 0, []
        for prompt in order.prompts:
            jobs = []
            for _ in range(order.count):
                jobs.append(self._job(order, prompt, number, constraint))
                number += 1
            found.append(jobs)
        return found

    def _job(
        self, order: Order, prompt: tuple[int, ...], number: int, constraint: Constraint | None
    ) -> Job:
        room = self.context - len(prompt)
        text = Text(
            self.tokenizer,
            prompt,
            room if order.new_tokens is None else min(room, order.new_tokens),
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
