"""A model as a server knows it: its name, its words, the engine that writes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.base.errors import InputError
from luminal.loaders.token_bytes import TokenTexts
from luminal.models.decoder import Decoder
from luminal.models.generate import LanguageModel
from luminal.models.seen import Images
from luminal.models.speculative import PromptLookup
from luminal.models.text import Matcher, Ranked, Text
from luminal.models.whole_texts import pooled, ranked
from luminal.serve.engine import Engine, EngineOptions
from luminal.serve.errors import ApiError
from luminal.serve.jobs import Job
from luminal.serve.orders import FILES, MOST_LOGPROBS, TEXTS, Order
from luminal.serve.words import Words
from luminal.serve.workshop import Workshop

Array = np.ndarray[Any, Any]
Score = tuple[float | None, tuple[Ranked, ...]]
SCORED = 128  # tokens whose logits lie in memory at a time


class Served:
    """One model under its name, and with each of its adapters under theirs. All of its programs are
    compiled when this is made.
    """

    def __init__(
        self,
        name: str,
        loaded: LanguageModel,
        options: EngineOptions,
        draft: Decoder | PromptLookup | None = None,
    ) -> None:
        self.tokenizer, self.context = loaded.tokenizer, loaded.context
        adapters = loaded.model.adapters
        self.names = (name, *(adapters.names if adapters else ()))
        """Of the model, and of its adapters by their numbers."""
        self._adapted = adapters is not None
        self.texts = TokenTexts(self.tokenizer)
        vocab_size = loaded.model.config.vocab_size
        sight = loaded.sight
        self.sight = None if isinstance(sight, str) else sight
        self.words = Words(
            self.names,
            self.tokenizer,
            loaded.chat_template,
            self.context,
            vocab_size,
            sight if isinstance(sight, str) else sight.processor,
        )
        self.workshop = Workshop(self.words)
        if self.sight is not None:
            self.sight.compile()
        self.engine = Engine(loaded.model, self.tokenizer, self.context, options, draft, self.sight)
        graph = pooled(loaded.model, self.context, "mean", adapters)
        ranks = options.ranks
        self._pooled = ranks.compile(graph, options.backend)
        most = min(MOST_LOGPROBS, vocab_size)
        graphs = ranked(loaded.model, self.context, SCORED, most, adapters)
        self._read, self._ranked = (ranks.compile(graph, options.backend) for graph in graphs)

    @property
    def body(self) -> int:
        """The most bytes of a request, where nobody says."""
        return TEXTS if self.sight is None else FILES

    def jobs(
        self, order: Order, matchers: Sequence[Matcher] = (), images: Images | None = None
    ) -> list[list[Job]]:
        """The jobs of an order: for each prompt those of its choices. `matchers`: what each text
        follows; none: nothing. Raises ApiError.
        """
        count = order.count
        texts = count * len(order.prompts)
        follows: Sequence[Matcher | None] = [*matchers] or [None] * texts
        try:
            return [
                [
                    self._job(order, prompt, first + k, follows[first + k], images)
                    for k in range(count)
                ]
                for first, prompt in zip(itertools.count(0, count), order.prompts, strict=False)
            ]
        except InputError as error:
            raise ApiError(400, str(error), "response_format", "invalid_value") from None

    def _job(
        self,
        order: Order,
        prompt: tuple[int, ...],
        number: int,
        matcher: Matcher | None,
        images: Images | None,
    ) -> Job:
        text = Text(
            self.tokenizer,
            prompt,
            order.new_tokens,
            order.sampling_of(number),
            order.stops,
            matcher,
            images,
        )
        return self.engine.job(
            text, prompt, order.logprobs, further=number > 0, adapter=order.adapter
        )

    def _whole(self, ids: Sequence[int], adapter: int) -> dict[str, Array]:
        """What programs of whole texts take."""
        numbers = {"adapters": np.array([adapter], np.int32)} if self._adapted else {}
        return {"ids": np.array(ids, np.int32)} | numbers

    def scores(self, ids: Sequence[int], adapter: int = 0) -> list[Score]:
        """For each token of a text, given those before it: its log-probability, and the likeliest.
        The first has neither.
        """
        scores: list[Score] = [(None, ())]
        hidden = self._read(self._whole(ids, adapter))["y"]
        for begin in range(0, len(ids) - 1, SCORED):
            rows = hidden[begin : min(begin + SCORED, len(ids) - 1)]
            after = np.array(ids[begin + 1 : begin + 1 + len(rows)], np.int32)
            ranked = self._ranked({"hidden": rows.copy(), "ids": after})
            tops = zip(ranked["tokens"].tolist(), ranked["top"].tolist(), strict=True)
            for logprob, (tokens, top) in zip(ranked["logprobs"].tolist(), tops, strict=True):
                scores.append((logprob, tuple(zip(tokens, top, strict=True))))
        return scores

    def vector(self, ids: Sequence[int], adapter: int = 0) -> Array:
        """The mean hidden state of a text, of length 1: float32 (hidden,)."""
        vector: Array = self._pooled(self._whole(ids, adapter))["y"]
        length = float(np.linalg.norm(vector))
        return vector / length if length else vector
