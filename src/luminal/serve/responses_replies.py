"""Answers of `/v1/responses`: a list of items, a message or calls, and the events of a stream."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from luminal.base.records import dataclass
from luminal.serve.errors import RESPONSES
from luminal.serve.jobs import Event
from luminal.serve.orders import Order
from luminal.serve.replies import Choice, Replies, to_json
from luminal.serve.tool_calls import calls_in


def _new(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"


@dataclass(slots=True)
class Responses(Replies):
    """The form of `/v1/responses`. A text that may call functions is told at its end."""

    model: str
    created: int
    order: Order
    id: str = field(default_factory=lambda: _new("resp"))
    message: str = field(default_factory=lambda: _new("msg"))
    choice: Choice | None = None
    events: int = 0
    """How many a stream has had."""

    path = RESPONSES
    last = b""

    def whole(self, choices: Sequence[Choice], used: dict[str, Any]) -> dict[str, Any]:
        """The answer that is no stream."""
        (choice,) = choices
        return self._response(self._status(choice), self._items(choice), used)

    def begin(self, choice: Choice) -> list[dict[str, Any]]:
        """Events before the text."""
        self.choice = choice
        response = self._response("in_progress", [], None)
        chunks = [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]
        if not self.order.tools:
            item = self._message("", "in_progress") | {"content": []}
            chunks.append(self._event("response.output_item.added", output_index=0, item=item))
            part = _part("")
            chunks.append(self._of_part("response.content_part.added", part=part))
        return chunks

    def chunks(self, choice: Choice, event: Event, offset: int) -> list[dict[str, Any]]:
        """The events of what a step added to the text."""
        if self.order.tools or not event.piece:
            return []
        return [self._of_part("response.output_text.delta", delta=event.piece, logprobs=[])]

    def end(self, used: dict[str, Any]) -> list[dict[str, Any]]:
        """Events after the text: its items are whole, then all of the response is."""
        assert self.choice is not None
        status, items = self._status(self.choice), self._items(self.choice)
        chunks: list[dict[str, Any]] = []
        for number, item in enumerate(items):
            chunks.extend(self._whole_item(number, item))
        response = self._response(status, items, used)
        return [*chunks, self._event(f"response.{status}", response=response)]

    def line(self, chunk: dict[str, Any]) -> bytes:
        """An event as it is sent, by its name."""
        name: str = chunk["type"]
        return b"event: " + name.encode() + b"\ndata: " + to_json(chunk) + b"\n\n"

    # --- items

    def _items(self, choice: Choice) -> list[dict[str, Any]]:
        order = self.order
        calls = calls_in(choice.text, order.tools)[: order.calls] if order.tools else []
        if not calls:
            return [self._message(choice.text, self._status(choice))]
        return [
            {
                "type": "function_call",
                "id": _new("fc"),
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
                "status": "completed",
            }
            for call in calls
        ]

    def _message(self, text: str, status: str) -> dict[str, Any]:
        about = {"type": "message", "id": self.message, "status": status, "role": "assistant"}
        return about | {"content": [_part(text)]}

    def _whole_item(self, number: int, item: dict[str, Any]) -> list[dict[str, Any]]:
        """The events that an item ends with, and where functions may be called begins with."""
        at: dict[str, Any] = {"output_index": number}
        begun: list[dict[str, Any]] = []
        if self.order.tools:
            is_call = item["type"] == "function_call"
            empty: dict[str, Any] = {"arguments": ""} if is_call else {"content": []}
            added = item | {"status": "in_progress"} | empty
            begun = [self._event("response.output_item.added", **at, item=added)]
            if is_call:
                of = at | {"item_id": item["id"]}
                name, arguments = item["name"], item["arguments"]
                kind = "response.function_call_arguments"
                begun.append(self._event(f"{kind}.delta", **of, delta=arguments))
                begun.append(self._event(f"{kind}.done", **of, arguments=arguments, name=name))
                return [*begun, self._event("response.output_item.done", **at, item=item)]
            begun.append(self._of_part("response.content_part.added", part=_part("")))
        (part,) = item["content"]
        if self.order.tools:
            delta = {"delta": part["text"], "logprobs": []}
            begun.append(self._of_part("response.output_text.delta", **delta))
        return [
            *begun,
            self._of_part("response.output_text.done", text=part["text"], logprobs=[]),
            self._of_part("response.content_part.done", part=part),
            self._event("response.output_item.done", **at, item=item),
        ]

    # --- events

    def _event(self, kind: str, **about: Any) -> dict[str, Any]:
        self.events += 1
        return {"type": kind, "sequence_number": self.events - 1} | about

    def _of_part(self, kind: str, **about: Any) -> dict[str, Any]:
        at: dict[str, Any] = {"item_id": self.message, "output_index": 0, "content_index": 0}
        return self._event(kind, **at, **about)

    @staticmethod
    def _status(choice: Choice) -> str:
        return "incomplete" if choice.reason == "length" else "completed"

    def _response(
        self, status: str, items: list[dict[str, Any]], used: dict[str, Any] | None
    ) -> dict[str, Any]:
        told, sampling = self.order.told, self.order.sampling
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        choice = "auto" if told.get("tool_choice") is None else told["tool_choice"]
        parallel = told.get("parallel_tool_calls")
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": reason,
            "instructions": told.get("instructions"),
            "max_output_tokens": told.get("max_output_tokens"),
            "metadata": told.get("metadata") or {},
            "model": self.model,
            "output": items,
            "parallel_tool_calls": True if parallel is None else parallel,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": sampling.temperature,
            "text": told.get("text") or {"format": {"type": "text"}},
            "tool_choice": choice,
            "tools": told.get("tools") or [],
            "top_p": 1.0 if told.get("top_p") is None else told["top_p"],
            "truncation": "disabled",
            "usage": None if used is None else _usage(used),
            "user": told.get("user"),
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(used: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": used["prompt_tokens"],
        "input_tokens_details": used["prompt_tokens_details"],
        "output_tokens": used["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used["total_tokens"],
    }
