"""`/v1/responses` as OpenAI's own client reads it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from luminal.serve.fields import Fields
from luminal.serve.responses_order import responses
from luminal.serve.words import Chat
from tests.serve.running import LIMITS, Running

BODY: dict[str, Any] = {"model": "tiny", "input": "Hello", "temperature": 0, "max_output_tokens": 9}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "Hel"}]},
    {"type": "message", "role": "assistant", "content": "ok", "id": "msg_1", "status": "completed"},
    {"type": "function_call", "call_id": "c1", "name": "note", "arguments": '{"a": 1}'},
    {"type": "function_call", "call_id": "c2", "name": "note", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "done"},
    {"role": "developer", "content": "Go on."},
]
NOTE = {
    "type": "function",
    "name": "note",
    "parameters": {
        "type": "object",
        "properties": {"n": {"enum": [1]}},
        "required": ["n"],
        "additionalProperties": False,
    },
}


def chat(client: Any, messages: list[dict[str, Any]]) -> str:
    found = client.chat.completions.create(
        model="tiny", messages=messages, temperature=0, max_tokens=9
    )
    return str(found.choices[0].message.content)


def test_a_text(client: Any) -> None:
    found = client.responses.create(**BODY, instructions="Be kind.")
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    assert found.output_text == chat(client, messages)
    assert (found.object, found.status) == ("response", "incomplete")
    assert found.incomplete_details.reason == "max_output_tokens"
    assert (found.usage.output_tokens, found.instructions) == (9, "Be kind.")
    assert found.usage.total_tokens == found.usage.input_tokens + 9
    (item,) = found.output
    assert (item.type, item.role, item.content[0].type) == ("message", "assistant", "output_text")


def test_a_stream_has_the_same_text(client: Any) -> None:
    whole = client.responses.create(**BODY)
    events = list(client.responses.create(**BODY, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.incomplete",
    ]  # fmt: skip
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert "".join(event.delta for event in events[4:-4]) == whole.output_text == events[-4].text
    assert events[-1].response.output_text == whole.output_text
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1


def test_items_become_messages() -> None:
    class Words:
        vocab_size, context = 64, 100
        messages: Any = None

        def encode_chat(self, messages: Any, tools: Any) -> Chat:
            self.messages = messages
            return Chat([1], [])

    words: Any = Words()
    responses(Fields({"model": "tiny", "input": ITEMS}), words, LIMITS)
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "note", "arguments": arguments}}
        for n, arguments in ((1, {"a": 1}), (2, {}))
    ]
    assert words.messages == [
        {"role": "user", "content": "Hel"},
        {"role": "assistant", "content": "ok"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "done", "tool_call_id": "c1"},
        {"role": "system", "content": "Go on."},
    ]


def test_a_required_call(client: Any) -> None:
    pytest.importorskip("llguidance")
    body = BODY | {"tools": [NOTE], "tool_choice": "required", "max_output_tokens": 60}
    found = client.responses.create(**body)
    (item,) = found.output
    assert (item.type, item.name, json.loads(item.arguments)) == ("function_call", "note", {"n": 1})
    assert found.status == "completed"
    events = list(client.responses.create(**body, stream=True))
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert json.loads(done[0].arguments) == {"n": 1}
    assert events[-1].type == "response.completed"
    assert events[-1].response.output[0].name == "note"


def test_a_schema(client: Any) -> None:
    pytest.importorskip("llguidance")
    schema = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"]}
    form = {
        "type": "json_schema",
        "name": "one",
        "schema": schema | {"additionalProperties": False},
    }
    found = client.responses.create(**BODY | {"max_output_tokens": 40}, text={"format": form})
    assert json.loads(found.output_text) == {"a": 7}
    body = BODY | {"max_output_tokens": 40}
    with client.responses.stream(**body, text={"format": form}) as stream:  # which joins the text
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == found.output_text


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "previous": ({"previous_response_id": "resp_1"}, "no conversation is kept here; send all of"),
    "items": ({"input": []}, "input: it has no items"),
    "item": ({"input": [{"type": "reasoning"}]}, "'reasoning' is not one of 'message'"),
    "part": (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "image_url: it is",
    ),
    "unknown": ({"max_tokens": 3}, "'max_tokens': there is no such field here"),
    "background": ({"background": True}, "background: it is not supported"),
    "tool": ({"tools": [{"type": "web_search"}]}, "'web_search' is not one of 'function'"),
    "long": ({"max_output_tokens": 101}, "101 is no integer of 1 .. 100"),
    "format": ({"text": {"format": {"type": "json_schema"}}}, "None is no schema"),
    "number": ({"input": 7}, "input: 7 is no list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str, server: Running) -> None:
    change, message = WRONG[name]
    answer = httpx.post(f"{server.url}/v1/responses", json=BODY | change, timeout=30)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert message in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_an_error_in_a_stream(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("never")

    with server.client() as client:
        monkeypatch.setattr(server.served.engine._program, "run", fail)
        last = list(client.responses.create(**BODY, stream=True))[-1]
    assert (last.type, last.message) == ("error", "the model could not be run")
