"""Answers as Ollama's API gives them: objects of JSON, one on each line of a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from luminal.base.records import dataclass
from luminal.serve.errors import OLLAMA
from luminal.serve.jobs import Event
from luminal.serve.ollama_order import now
from luminal.serve.replies import Choice, Replies, to_json
from luminal.serve.tool_calls import calls_in


@dataclass(frozen=True, slots=True)
class OllamaReplies(Replies):
    """The form of `/api/chat`, and with `is_chat` false that of `/api/generate`."""

    model: str
    start: float
    """When the request came, by `time.perf_counter`."""
    is_chat: bool = True
    tools: tuple[str, ...] = ()
    path = OLLAMA
    media = "application/x-ndjson"
    last = b""

    def whole(self, choices: Sequence[Choice], used: dict[str, Any]) -> dict[str, Any]:
        """The answer that is no stream."""
        (choice,) = choices
        return self._said(choice.text) | self._ended(choice)

    def begin(self, choice: Choice) -> list[dict[str, Any]]:
        """Chunks before the first event: none, but of a text that has ended before."""
        return [chunk for event in choice.begun for chunk in self.chunks(choice, *event)]

    def chunks(self, choice: Choice, event: Event, offset: int) -> list[dict[str, Any]]:
        """The lines of an event. Where functions may be called, text waits for the end."""
        lines = []
        if self.tools and event.reason is not None:
            lines.append(self._said(choice.text))
        elif event.piece and not self.tools:
            lines.append(self._said(event.piece))
        if event.reason is not None:
            lines.append(self._said("") | self._ended(choice))
        return lines

    def end(self, used: dict[str, Any]) -> list[dict[str, Any]]:
        """Nothing: the last event's line has told all."""
        return []

    def line(self, chunk: dict[str, Any]) -> bytes:
        """A chunk as it is sent."""
        return to_json(chunk) + b"\n"

    def _said(self, text: str) -> dict[str, Any]:
        """A piece of the text, or the calls that all of it is."""
        about = {"model": self.model, "created_at": now(), "done": False}
        if not self.is_chat:
            return about | {"response": text}
        message: dict[str, Any] = {"role": "assistant", "content": text}
        calls = calls_in(text, self.tools) if text and self.tools else []
        if calls:
            told = [{"function": _with_object(call["function"])} for call in calls]
            message |= {"content": "", "tool_calls": told}
        return about | {"message": message}

    def _ended(self, choice: Choice) -> dict[str, Any]:
        """What is told of a text at its end; times are in nanoseconds."""
        end = time.perf_counter()
        first = choice.first or end
        return {
            "done": True,
            "done_reason": choice.reason,
            "total_duration": nanoseconds(end - self.start),
            "load_duration": 0,
            "prompt_eval_count": choice.job.place.prompt,
            "prompt_eval_duration": nanoseconds(first - self.start),
            "eval_count": choice.new_tokens,
            "eval_duration": nanoseconds(end - first),
        }


def nanoseconds(seconds: float) -> int:
    """Seconds as Ollama's API tells them."""
    return int(seconds * 1e9)


def _with_object(function: dict[str, Any]) -> dict[str, Any]:
    return function | {"arguments": json.loads(function["arguments"])}
