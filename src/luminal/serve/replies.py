"""Answers as OpenAI's API gives them: whole ones, and the chunks of a stream."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from luminal.base.records import dataclass
from luminal.loaders.token_bytes import TokenTexts
from luminal.loaders.tokenizer import StreamDecoder
from luminal.models.text import Ranked
from luminal.serve.errors import OLLAMA, RESPONSES, ApiError
from luminal.serve.jobs import Event, Job
from luminal.serve.tool_calls import calls_in


@dataclass(slots=True)
class Choice:
    """One of a request's texts, as its events come.

    `ranked`: its tokens are told with log-probabilities; `offsets`: where the text of each begins.
    """

    job: Job
    index: int
    decoder: StreamDecoder
    ranked: bool = False
    events: list[Event] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    begun: list[tuple[Event, int]] = field(default_factory=list)
    """What was there before the first step, with what `add` gave: the prompt, if it is told."""
    first: float = 0.0
    """When its first token came, by `time.perf_counter`."""
    _length: int = 0

    def begin(self, events: Sequence[Event]) -> None:
        """Takes what is there before the first step."""
        self.begun = [(event, self.add(event)) for event in events]

    def add(self, event: Event) -> int:
        """Takes what a step added; where the text of its token begins."""
        self.events.append(event)
        self.first = self.first or time.perf_counter()
        begin = self._length
        if event.token is not None and self.ranked:
            self.offsets.append(begin)
            self._length += len(self.decoder.push(event.token))
        return begin

    @property
    def text(self) -> str:
        """All characters so far."""
        return "".join(event.piece for event in self.events)

    @property
    def reason(self) -> str | None:
        """Why it ended; None before."""
        return self.events[-1].reason if self.events else None

    @property
    def new_tokens(self) -> int:
        """How many were generated, an end token not counted."""
        return sum(event.token is not None for event in self.events[len(self.begun) :])


def usage(prompts: Sequence[Sequence[int]], choices: Sequence[Choice]) -> dict[str, Any]:
    """How many tokens were read and written."""
    read = sum(map(len, prompts))
    written = sum(choice.new_tokens for choice in choices)
    # Only the first text of each prompt read it: its siblings took the blocks from it, and counting
    # these would tell more cached tokens than were sent.
    cached = sum(choice.job.cached for choice in choices[:: len(choices) // len(prompts)])
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class Replies:
    """How one endpoint tells of texts: `whole`, or what a stream has at its `begin`, for each
    event, and at its end. Here is what OpenAI's streams have in common: server-sent events.
    """

    __slots__ = ()
    path = ""
    """Where such answers are given."""
    media = "text/event-stream; charset=utf-8"
    last = b"data: [DONE]\n\n"
    """What a stream ends with."""

    def whole(self, choices: Sequence[Choice], used: dict[str, Any]) -> dict[str, Any]:
        """The answer that is no stream."""
        raise NotImplementedError

    def begin(self, choice: Choice) -> list[dict[str, Any]]:
        """Chunks before the first event."""
        raise NotImplementedError

    def chunks(self, choice: Choice, event: Event, offset: int) -> list[dict[str, Any]]:
        """The chunks of an event, the text of whose token begins at `offset`."""
        raise NotImplementedError

    def end(self, used: dict[str, Any]) -> list[dict[str, Any]]:
        """The last chunks, after all texts have ended."""
        raise NotImplementedError

    def failed(self, error: ApiError) -> bytes:
        """The end of a stream that tells of an error."""
        return failed_stream(self.path, error)

    def line(self, chunk: dict[str, Any]) -> bytes:
        """A chunk as it is sent."""
        return b"data: " + to_json(chunk) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Completions(Replies):
    """The form of `/v1/completions`. `uses`: chunks say that they do not tell the use of tokens."""

    model: str
    created: int
    texts: TokenTexts
    uses: bool = False
    id: str = field(default_factory=lambda: "cmpl-" + secrets.token_hex(12))

    def whole(self, choices: Sequence[Choice], used: dict[str, Any]) -> dict[str, Any]:
        """The answer that is no stream."""
        entries = [
            self._choice(
                choice, choice.text, choice.reason, self._logprobs(choice.events, choice.offsets)
            )
            for choice in choices
        ]
        return self._object(entries) | {"usage": used}

    def begin(self, choice: Choice) -> list[dict[str, Any]]:
        """Chunks before the first event: the prompt's, if it is told."""
        return [chunk for event in choice.begun for chunk in self.chunks(choice, *event)]

    def chunks(self, choice: Choice, event: Event, offset: int) -> list[dict[str, Any]]:
        """The chunks of an event, the text of whose token begins at `offset`."""
        # A token may end in the middle of a character; nothing is sent until the character is
        # whole.
        if not event.piece and event.reason is None and not choice.ranked:
            return []
        logprobs = self._logprobs([event], [offset] if choice.ranked else [])
        reply = self._object([self._choice(choice, event.piece, event.reason, logprobs)])
        return [reply | _no_usage(self.uses)]

    def end(self, used: dict[str, Any]) -> list[dict[str, Any]]:
        """The last chunk, where the use of tokens is asked for."""
        return [self._object([]) | {"usage": used}] if self.uses else []

    def _object(self, choices: list[Any]) -> dict[str, Any]:
        about = {"id": self.id, "object": "text_completion", "created": self.created}
        return about | {"model": self.model, "choices": choices}

    def _choice(
        self, choice: Choice, text: str, reason: str | None, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        entry = {"index": choice.index, "text": text, "logprobs": logprobs}
        return entry | {"finish_reason": reason}

    def _logprobs(self, events: Sequence[Event], offsets: Sequence[int]) -> dict[str, Any] | None:
        chosen = [event for event in events if event.token is not None]
        if not chosen or not offsets:
            return None
        return {
            "tokens": [
                self.texts[event.token].shown for event in chosen if event.token is not None
            ],
            "token_logprobs": [event.logprob for event in chosen],
            "top_logprobs": [
                None if event.logprob is None else self._by_text(event.top) for event in chosen
            ],
            "text_offset": [*offsets],
        }

    def _by_text(self, top: Sequence[Ranked]) -> dict[str, float]:
        """Log-probabilities by text; of tokens that read alike the less likely go by their ids."""
        by_text: dict[str, float] = {}
        for token, logprob in top:
            text = self.texts[token].shown
            # Several tokens can have one text (bytes that are no character yet), and a JSON object
            # has each key once.
            by_text[f"token_id:{token}" if text in by_text else text] = logprob
        return by_text


def _no_usage(uses: bool) -> dict[str, Any]:
    """What a chunk has where the last one tells the use of tokens."""
    return {"usage": None} if uses else {}


@dataclass(frozen=True, slots=True)
class Chats(Replies):
    """The form of `/v1/chat/completions`.

    `tools`: the functions that a text may call; of so many `calls` it tells (None: of all).
    `uses`: see Completions.
    """

    model: str
    created: int
    texts: TokenTexts
    uses: bool = False
    tools: tuple[str, ...] = ()
    calls: int | None = None
    id: str = field(default_factory=lambda: "chatcmpl-" + secrets.token_hex(12))

    def whole(self, choices: Sequence[Choice], used: dict[str, Any]) -> dict[str, Any]:
        """The answer that is no stream."""
        return self._object("chat.completion", [self._message(choice) for choice in choices]) | {
            "usage": used
        }

    def begin(self, choice: Choice) -> list[dict[str, Any]]:
        """Chunks before the first event: whose message it is."""
        return [self._chunk(choice, {"role": "assistant", "content": ""})]

    def chunks(self, choice: Choice, event: Event, offset: int) -> list[dict[str, Any]]:
        """The chunks of an event. Where functions may be called, text waits for the end."""
        logprobs = self._logprobs([event])
        # Whether a text is a call shows at its end only; what was streamed could not be taken back.
        if self.tools:
            return [] if event.reason is None else self._told(choice)
        chunks = []
        if event.piece or logprobs is not None:
            chunks.append(self._chunk(choice, {"content": event.piece}, None, logprobs))
        if event.reason is not None:
            chunks.append(self._chunk(choice, {}, event.reason))
        return chunks

    def _told(self, choice: Choice) -> list[dict[str, Any]]:
        """All of a text that may call functions, at its end."""
        calls = calls_in(choice.text, self.tools)[: self.calls]
        delta: dict[str, Any] = {"content": choice.text}
        if calls:
            delta = {"tool_calls": [{"index": k} | call for k, call in enumerate(calls)]}
        reason = "tool_calls" if calls else choice.reason
        logprobs = self._logprobs(choice.events)
        return [self._chunk(choice, delta, None, logprobs), self._chunk(choice, {}, reason)]

    def end(self, used: dict[str, Any]) -> list[dict[str, Any]]:
        """The last chunk, where the use of tokens is asked for."""
        return [self._object("chat.completion.chunk", []) | {"usage": used}] if self.uses else []

    def _object(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        about = {"id": self.id, "object": kind, "created": self.created}
        return about | {"model": self.model, "choices": choices}

    def _chunk(
        self,
        choice: Choice,
        delta: dict[str, Any],
        reason: str | None = None,
        logprobs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        entry = {"index": choice.index, "delta": delta, "logprobs": logprobs}
        chunk = self._object("chat.completion.chunk", [entry | {"finish_reason": reason}])
        return chunk | _no_usage(self.uses)

    def _message(self, choice: Choice) -> dict[str, Any]:
        text, reason = choice.text, choice.reason
        calls = calls_in(text, self.tools)[: self.calls] if self.tools else []
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": None, "tool_calls": calls}
            reason = "tool_calls"
        logprobs = self._logprobs(choice.events)
        entry = {"index": choice.index, "message": message, "logprobs": logprobs}
        return entry | {"finish_reason": reason}

    def _logprobs(self, events: Sequence[Event]) -> dict[str, Any] | None:
        chosen = [event for event in events if event.token is not None]
        if not any(event.logprob is not None for event in chosen):
            return None
        content = [
            self._ranked(event.token, event.logprob)
            | {"top_logprobs": [self._ranked(*ranked) for ranked in event.top]}
            for event in chosen
        ]
        return {"content": content, "refusal": None}

    def _ranked(self, token: int | None, logprob: float | None) -> dict[str, Any]:
        assert token is not None
        text, raw, _ = self.texts[token]
        return {"token": text, "logprob": logprob, "bytes": [*raw]}


def failed_stream(path: str, error: ApiError) -> bytes:
    """How a stream of a path ends with an error."""
    if path.startswith(OLLAMA):
        return to_json(error.body(path)) + b"\n"
    if path == RESPONSES:
        told = {"type": "error", "code": error.code, "message": error.message}
        return b"event: error\ndata: " + to_json(told | {"param": error.param}) + b"\n\n"
    return b"data: " + to_json(error.body(path)) + b"\n\n" + Replies.last


DEPTH = 5  # of a token in an answer: choices, a choice, logprobs, its list, the token


def to_json(value: Any) -> bytes:
    """ASCII, so that no text can break a line or an encoding."""
    return _JSON.encode(value).encode()


def in_pieces(value: Any, depth: int = DEPTH) -> bytes:
    """A reply as JSON, written piece by piece, so that other threads have their turns: an encoder
    keeps them all waiting for as long as one value takes it. What lies at `depth` is a piece.
    """
    if depth and isinstance(value, dict):
        pairs = (to_json(name) + b":" + in_pieces(item, depth - 1) for name, item in value.items())
        return b"{" + b",".join(pairs) + b"}"
    if depth and isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return b"[" + b",".join(in_pieces(item, depth - 1) for item in value) + b"]"
    return to_json(value)


_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
