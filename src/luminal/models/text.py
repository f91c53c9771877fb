"""A text in the making: its tokens so far, and which of its characters are certain."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from luminal.base.errors import InputError
from luminal.frontend.handle import Array
from luminal.loaders.tokenizer import StreamDecoder, Tokenizer
from luminal.models.choice import NOT_A_NUMBER, NOTHING_LEFT
from luminal.models.sampling import Draw, Sampling
from luminal.models.seen import Images
from luminal.models.stops import Stops

Ranked = tuple[int, float]
"""A token id and its log-probability."""


class Matcher(Protocol):
    """What follows a text's tokens and says which may come next."""

    def allowed(self) -> Array:
        """A bit for every token id, uint32 (ceil(vocab_size / 32),)."""
        ...

    def accept(self, token: int) -> None:
        """Takes the token that came."""
        ...

    @property
    def complete(self) -> bool:
        """Can nothing but an end token come?"""
        ...


@runtime_checkable
class ForesightMatcher(Matcher, Protocol):
    """One that drafts can be checked with; a text of any other has one token a step."""

    def ahead(self, tokens: Sequence[int]) -> Sequence[Array]:
        """What `allowed` would be after each of these tokens, up to the first that may not come or
        after which nothing can. Takes none of them.
        """
        ...


class Constraint(Protocol):
    """What a text must match; see `luminal.models.constraints`."""

    def matcher(self, tokenizer: Tokenizer, vocab_size: int) -> Matcher:
        """For one text. Raises InputError where the constraint makes no sense."""
        ...


class Completion(NamedTuple):
    """A text that is done.

    `reason`: "stop" at an end token, a stop string or a constraint's end; "length" where the room
    was used up. `logprobs` and `top` are empty unless they were asked for: of each token its
    log-probability, and the likeliest at its place.
    """

    text: str
    tokens: tuple[int, ...]
    reason: str
    logprobs: tuple[float, ...] = ()
    top: tuple[tuple[Ranked, ...], ...] = ()


class Text:
    """Tokens are pushed one by one; each gives the characters that it makes certain.

    `room`: how many new tokens there may be. `draw` is what the next choice depends on, `read` how
    many of its tokens the caches hold; `reason` is None until the text is done. `images`: those in
    the prompt.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        room: int,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        matcher: Matcher | None = None,
        images: Images | None = None,
    ) -> None:
        self.images = images
        self._tokens, self._given = [*prompt], len(prompt)
        self.draw = Draw(sampling or Sampling(), self._tokens, len(prompt))
        self.read = 0
        self.room = room
        self.reason = None if room > 0 else "length"
        self.characters = ""
        self.logprobs: list[float] = []
        self.top: list[tuple[Ranked, ...]] = []
        self._ends = tokenizer.eos_ids
        self._decoder, self._stops = StreamDecoder(tokenizer, prompt), Stops(stop)
        self._matcher = matcher
        self._constrain()

    @property
    def follows(self) -> bool:
        """Whether a matcher decides which tokens may come."""
        return self._matcher is not None

    @property
    def tokens(self) -> list[int]:
        """The new tokens, without the prompt's."""
        return self._tokens[self._given :]

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended it; None where none did."""
        return self._stops.found

    @property
    def unread(self) -> Array:
        """The ids that the caches lack, int32."""
        return np.array(self._tokens[self.read :], np.int32)

    def push(self, token: int, logprob: float | None = None, top: tuple[Ranked, ...] = ()) -> str:
        """Characters that are certain now; all that is left where this ends the text.

        Raises InputError for the tokens that stand for logits of which none can be chosen.
        """
        if token == NOT_A_NUMBER:
            raise InputError(
                "logits: the model computes NaN; its weights are damaged, or overflow in their "
                "dtype: load the model's original file"
            )
        if token == NOTHING_LEFT:
            raise InputError(
                "logits: no token may come, or some are infinite, after logit_bias, penalties and "
                "constraint; weaken them"
            )
        # Characters are held back while they may be half of one, or begin a stop string.
        piece = ""
        if token in self._ends:
            self.reason = "stop"
        else:
            self._tokens.append(token)
            if logprob is not None:
                self.logprobs.append(logprob)
                self.top.append(top)
            piece = self._stops.push(self._decoder.push(token))
            if self._matcher is not None:
                self._matcher.accept(token)
            if self._stops.found is not None or (self._matcher and self._matcher.complete):
                self.reason = "stop"
            elif len(self._tokens) - self._given == self.room:
                self.reason = "length"
        if self.reason is not None:
            # What was held back is certain now, and may complete a stop string.
            piece += self._stops.push(self._decoder.finish()) + self._stops.finish()
            if self._stops.found is not None:
                self.reason = "stop"
        else:
            self._constrain()
        self.characters += piece
        return piece

    def ahead(self, proposed: Sequence[int]) -> list[Draw]:
        """The choice after each of the tokens that are proposed, up to the first that cannot come
        or would end the text: what is chosen in its place is that token, or another, in any case.
        """
        tokens = [*itertools.takewhile(lambda token: token not in self._ends, proposed)]
        draws = [self.draw.ahead(tokens[:count]) for count in range(1, 1 + len(tokens))]
        if self._matcher is None:
            return draws
        if not isinstance(self._matcher, ForesightMatcher):
            return []
        masks = self._matcher.ahead(tokens)
        return [replace(draw, allowed=mask) for draw, mask in zip(draws, masks, strict=False)]

    def _constrain(self) -> None:
        if self._matcher is not None:
            self.draw.allowed = self._matcher.allowed()

    def completion(self) -> Completion:
        """The record of a text that is done."""
        assert self.reason is not None
        return Completion(
            self.characters, (*self.tokens,), self.reason, (*self.logprobs,), (*self.top,)
        )
