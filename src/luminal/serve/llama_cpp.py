"""`/completion` of llama.cpp's server: what is asked for, and answers in its form.

https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md has the fields. As there,
those that are not known are left aside.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from luminal.base.records import dataclass
from luminal.loaders.shown import shown
from luminal.loaders.token_bytes import Spelling, TokenTexts
from luminal.serve.errors import ApiError, refused
from luminal.serve.fields import Fields
from luminal.serve.jobs import Event
from luminal.serve.local_options import refuse, room_of, sampling_of
from luminal.serve.orders import Limits, Order, Ready, prompts_of, stops_of
from luminal.serve.replies import Choice, Replies
from luminal.serve.tools import schema_of
from luminal.serve.words import Words

OFF = {
    "grammar": "",
    "n_probs": 0,
    "ignore_eos": False,
    "image_data": [],
    "lora": [],
    "logit_bias": [],
}


def completion(body: Fields, words: Words, limits: Limits) -> Order:
    """The order of a body of `/completion`. Raises ApiError."""
    refuse(body, OFF)
    prompts = prompts_of(body.needed("prompt"), words)
    if len(prompts) > 1:
        raise refused("prompt", f"{len(prompts)} texts; send one, or ask /v1/completions")
    schema = body.get("json_schema")
    if schema is not None and not isinstance(schema, dict):
        raise refused("json_schema", f"{shown(schema)} is no JSON schema")
    return Order(
        prompts=prompts,
        count=1,
        new_tokens=room_of(body, "n_predict", prompts[0], words, limits),
        sampling=sampling_of(body, words, top_p=0.95, min_p=0.05),
        stops=stops_of(body.get("stop")),
        logprobs=None,
        stream=body.flag("stream"),
        usage_in_stream=True,
        schema=None if schema is None else schema_of("json_schema", schema),
    )


def tokenize(body: Fields, words: Words, limits: Limits) -> Ready:
    """The answer to a body of `/tokenize`. Raises ApiError."""
    text, bare = body.text("content") or "", not body.flag("add_special")
    if not body.flag("parse_special", True):
        text = words.tokenizer.marked(text)
    ids = words.tokenizer.encode(text, bare)
    if not body.flag("with_pieces"):
        return Ready({"tokens": ids})
    texts = TokenTexts(words.tokenizer)
    return Ready({"tokens": [{"id": token, "piece": _piece(texts[token])} for token in ids]})


def _piece(spelling: Spelling) -> str | list[int]:
    """The characters of a token, or its bytes where they are half of one."""
    whole = "\N{REPLACEMENT CHARACTER}" not in spelling.text
    return spelling.text if whole else [*spelling.own]


def detokenize(body: Fields, words: Words, limits: Limits) -> Ready:
    """The answer to a body of `/detokenize`. Raises ApiError."""
    value = body.needed("tokens")
    if value == []:
        return Ready({"content": ""})
    if not isinstance(value, list) or type(value[0]) is not int:
        raise refused("tokens", f"{shown(value)} is no list of token ids")
    (ids,) = prompts_of(value, words, "tokens")
    return Ready({"content": words.tokenizer.decode(ids)})


@dataclass(frozen=True, slots=True)
class LlamaCppReplies(Replies):
    """The form of `/completion`."""

    model: str
    start: float
    """When the request came, by `time.perf_counter`."""
    path = "/completion"
    last = b""

    def whole(self, choices: Sequence[Choice], used: dict[str, Any]) -> dict[str, Any]:
        """The answer that is no stream."""
        (choice,) = choices
        tokens = [e.token for e in choice.events if e.token is not None]
        return self._said(choice, choice.text, tokens) | self._ended(choice)

    def begin(self, choice: Choice) -> list[dict[str, Any]]:
        """Chunks before the first event: none, but of a text that has ended before."""
        return [chunk for event in choice.begun for chunk in self.chunks(choice, *event)]

    def chunks(self, choice: Choice, event: Event, offset: int) -> list[dict[str, Any]]:
        """The chunk of an event."""
        if not event.piece and event.reason is None:
            return []
        tokens = [] if event.token is None else [event.token]
        said = self._said(choice, event.piece, tokens)
        return [said if event.reason is None else said | self._ended(choice)]

    def end(self, used: dict[str, Any]) -> list[dict[str, Any]]:
        """Nothing: the last event's chunk has told all."""
        return []

    def failed(self, error: ApiError) -> bytes:
        """The end of a stream that tells of an error."""
        return self.line(error.body(self.path))

    def _said(self, choice: Choice, text: str, tokens: list[int]) -> dict[str, Any]:
        return {
            "index": choice.index,
            "content": text,
            "tokens": tokens,
            "stop": False,
            "id_slot": 0,
            "tokens_predicted": choice.new_tokens,
            "tokens_evaluated": choice.job.place.prompt,
        }

    def _ended(self, choice: Choice) -> dict[str, Any]:
        """What is told of a text at its end."""
        word, end = choice.job.text.stopped_by, time.perf_counter()
        first = choice.first or end
        kind = "limit" if choice.reason == "length" else "eos" if word is None else "word"
        read, written = choice.job.place.prompt - choice.job.cached, choice.new_tokens
        return {
            "stop": True,
            "model": self.model,
            "stop_type": kind,
            "stopping_word": word or "",
            "has_new_line": "\n" in choice.text,
            "truncated": False,
            "tokens_cached": choice.job.cached,
            "timings": _timings("prompt", read, first - self.start)
            | _timings("predicted", written, end - first),
        }


def _timings(name: str, tokens: int, seconds: float) -> dict[str, Any]:
    return {
        f"{name}_n": tokens,
        f"{name}_ms": seconds * 1e3,
        f"{name}_per_second": tokens / seconds if seconds else 0.0,
    }
