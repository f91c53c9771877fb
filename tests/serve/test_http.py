"""The server as its clients see it: OpenAI's own client, and plain HTTP."""

from __future__ import annotations

import inspect
import json
import socket
import threading
from contextlib import ExitStack
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from luminal.serve.app import make_app
from luminal.serve.orders import Limits
from luminal.serve.tools import call_schema
from tests.close import close_each
from tests.long_share import long_but
from tests.serve.running import CONTEXT, LIMITS, Running, asked

PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "a"}]


def greedy(client: Any, prompt: str = PROMPT, tokens: int = 12, **more: Any) -> Any:
    return client.completions.create(
        model="tiny", prompt=prompt, max_tokens=tokens, temperature=0, **more
    )


def test_completion(client: Any) -> None:
    found = greedy(client)
    assert found.object == "text_completion"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (len(PROMPT), 12)
    (choice,) = found.choices
    assert (choice.finish_reason, len(choice.text)) == ("length", 12)
    assert greedy(client).choices[0].text == choice.text


def test_several_prompts_and_choices(client: Any) -> None:
    prompts = [PROMPT, "The end"]
    found = greedy(client, prompts, n=2)
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    texts = [choice.text for choice in found.choices]
    alone = [greedy(client, prompt).choices[0].text for prompt in prompts]
    assert texts == [alone[0], alone[0], alone[1], alone[1]]
    assert found.usage.prompt_tokens == sum(map(len, prompts))
    ids = client.completions.create(model="tiny", prompt=[3, 4, 5], max_tokens=2)
    assert ids.usage.prompt_tokens == 3


def test_a_stream_has_the_same_text(client: Any) -> None:
    whole = greedy(client, tokens=20)
    stream = list(greedy(client, tokens=20, stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].text for part in stream[:-1]) == whole.choices[0].text
    assert stream[-2].choices[0].finish_reason == "length"
    assert stream[-1].usage.completion_tokens == 20
    assert all(part.usage is None and "usage" in part.model_fields_set for part in stream[:-1])
    assert all("usage" not in part.model_fields_set for part in greedy(client, stream=True))
    assert len({part.id for part in stream}) == 1


def test_chat(client: Any) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}],
        },
    ]
    options: Any = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 9}
    whole = client.chat.completions.create(**options)
    assert whole.choices[0].message.role == "assistant"
    text = whole.choices[0].message.content
    prompt = "s: Be kind.\nu: Hello\na:"
    assert text == greedy(client, prompt, 9).choices[0].text
    parts = list(client.chat.completions.create(**options, stream=True))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == text
    assert parts[-1].choices[0].finish_reason == "length"


def test_the_seed_decides(client: Any) -> None:
    def text(seed: int) -> str:
        found = client.completions.create(
            model="tiny", prompt=PROMPT, max_tokens=20, temperature=1.5, seed=seed
        )
        return str(found.choices[0].text)

    assert text(1) == text(1)
    assert text(1) != text(2)
    two = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=20, temperature=1.5, seed=1, n=2
    )
    assert [choice.text for choice in two.choices] == [text(1), text(2)]


def test_a_text_stops_before_a_string(client: Any) -> None:
    text = greedy(client, tokens=30).choices[0].text
    stop = text[10:13]
    found = greedy(client, tokens=30, stop=[stop, "never there"])
    assert found.choices[0].text == text[: text.index(stop)]
    assert found.choices[0].finish_reason == "stop"
    parts = list(greedy(client, tokens=30, stop=stop, stream=True))
    assert "".join(part.choices[0].text for part in parts) == found.choices[0].text


def test_logprobs(client: Any) -> None:
    found = greedy(client, tokens=5, logprobs=3).choices[0]
    logprobs = found.logprobs
    assert "".join(logprobs.tokens) == found.text
    assert logprobs.text_offset == [0, 1, 2, 3, 4]
    for token, own, top in zip(
        logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
    ):
        assert len(top) == 3
        assert own == max(top.values()) == top[token]
    chat = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        logprobs=True,
        top_logprobs=2,
        temperature=0,
        max_tokens=3,
    )
    content = chat.choices[0].logprobs.content
    assert [len(each.top_logprobs) for each in content] == [2, 2, 2]
    assert "".join(each.token for each in content) == chat.choices[0].message.content
    assert bytes(content[0].bytes).decode() == content[0].token


def test_a_prompt_is_scored(client: Any, server: Running) -> None:
    """As evaluation harnesses ask: no new tokens, the prompt's with their log-probabilities."""
    prompts = ["Once upon", "a"]
    scored: Any = {"echo": True, "logprobs": 2}
    found = greedy(client, prompts, 0, **scored)
    assert [choice.text for choice in found.choices] == prompts
    assert [choice.finish_reason for choice in found.choices] == ["length", "length"]
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (10, 0)
    logprobs, alone = (choice.logprobs for choice in found.choices)
    assert (alone.tokens, alone.token_logprobs, alone.top_logprobs) == (["a"], [None], [None])
    assert logprobs.tokens == list(prompts[0])
    assert logprobs.text_offset == [*range(9)]
    assert (logprobs.token_logprobs[0], logprobs.top_logprobs[0]) == (None, None)
    for count in range(1, 9):  # what the model writes after each beginning has its own score
        (choice,) = greedy(client, prompts[0][:count], 1, logprobs=2).choices
        top = logprobs.top_logprobs[count]
        assert max(top, key=lambda each: top[each]) == choice.logprobs.tokens[0]
        # logarithms of a softmax, sent as decimal digits, of prompts with other lengths
        assert top == pytest.approx(choice.logprobs.top_logprobs[0], abs=1e-4)
        own = logprobs.token_logprobs[count]
        # logarithms of a softmax, sent as decimal digits, of prompts with other lengths
        assert own == pytest.approx(top.get(prompts[0][count], own), abs=1e-4)
    assert server.blocks_are_free()


@pytest.mark.parametrize("tokens", [0, 4])
@pytest.mark.parametrize("more", [{}, {"logprobs": 1}], ids=["text", "scored"])
def test_a_prompt_is_told_before_its_text(client: Any, tokens: int, more: dict[str, int]) -> None:
    """The whole is that of a stream, and of a text that is written without."""
    whole = greedy(client, tokens=tokens, echo=True, n=2, **more)
    plain = greedy(client, tokens=max(1, tokens), **more).choices[0]
    parts = list(greedy(client, tokens=tokens, echo=True, n=2, stream=True, **more))
    assert whole.usage.completion_tokens == 2 * tokens
    for choice in whole.choices:
        assert choice.text == PROMPT + (plain.text if tokens else "")
        own = [part.choices[0] for part in parts if part.choices[0].index == choice.index]
        assert "".join(part.text for part in own) == choice.text
        assert own[-1].finish_reason == choice.finish_reason == "length"
        told = [part.logprobs for part in own if part.logprobs is not None]
        assert (choice.logprobs is None) == (not told) == (not more)
        if more:
            assert len(choice.logprobs.tokens) == len(PROMPT) + tokens
            for name in ("tokens", "token_logprobs", "text_offset"):
                joined = [each for part in told for each in getattr(part, name)]
                assert joined == getattr(choice.logprobs, name)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_a_text_obeys_a_schema(client: Any) -> None:
    found = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        temperature=1.5,
        n=4,
        seed=1,
    )
    for choice in found.choices:
        value = json.loads(choice.message.content)
        assert value["name"] in ("Ann", "Bob")
        assert choice.finish_reason == "stop"


def nested(depth: int) -> dict[str, Any]:
    """A schema of objects in objects."""
    found: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}, "required": ["a"]}
    return found


MANY: dict[str, Any] = {f"n{number}": {} for number in range(1500)}
SCHEMAS: dict[str, tuple[Any, str]] = {
    "loop": ({"$ref": "#"}, "json_schema: "),
    "deep": (nested(300), "json_schema: it is no schema: recursion limit exceeded"),
    "no type": ({"type": "king"}, "json_schema: Invalid type: king"),
    "nothing": ({"type": "integer", "minimum": 5, "maximum": 3}, "Unsatisfiable schema"),
    "wide": ({"type": "object", "properties": MANY}, "json_schema: "),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_that_cannot_be_followed(server: Running, name: str) -> None:
    """At once, or where the text meets what is too large."""
    schema, message = SCHEMAS[name]
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = {"model": "tiny", "messages": MESSAGES, "response_format": form, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"], message in error["message"]) == ("response_format", True)
    assert "\n" not in error["message"]


WIDE = {"type": "object", "properties": MANY}  # too large to follow, which shows late
WRONG_TOOLS: dict[str, tuple[list[Any], Any, str]] = {
    "one": ([{"type": "king"}], "required", "tools[0].function.parameters"),
    "one of two": ([SCHEMA, {"type": "king"}], "required", "tools[1].function.parameters"),
    "late": ([WIDE], "required", "tools[0].function.parameters"),
    "chosen": (
        [SCHEMA, {"type": "king"}],
        {"type": "function", "function": {"name": "f1"}},
        "tools[1].function.parameters",
    ),
}


def called(schemas: list[Any], choice: Any) -> dict[str, Any]:
    """A body that asks for a call of functions f0, f1 ... of these parameters."""
    functions = [{"name": f"f{k}", "parameters": each} for k, each in enumerate(schemas)]
    tools = [{"type": "function", "function": each} for each in functions]
    about = {"messages": MESSAGES, "tools": tools, "tool_choice": choice, "temperature": 0}
    return {"model": "tiny"} | about


@pytest.mark.parametrize("name", WRONG_TOOLS)
def test_tools_that_cannot_be_called_are_named(server: Running, name: str) -> None:
    schemas, choice, field = WRONG_TOOLS[name]
    path = f"{server.url}/v1/chat/completions"
    error = httpx.post(path, json=called(schemas, choice), timeout=60).json()["error"]
    assert (error["param"], error["message"].startswith(f"{field}: ")) == (field, True)


@pytest.mark.parametrize(
    ("lengths", "field"), [([9, 70_000], "tools[1].function.parameters"), ([40_000] * 2, "tools")]
)
def test_tools_that_are_too_long_are_named(server: Running, lengths: list[int], field: str) -> None:
    """One by itself, or all of them together."""
    schemas = [{"type": "object", "title": "a" * length} for length in lengths]
    app = make_app(server.served, Limits())
    answer = asked(app, called(schemas, "required"), "/v1/chat/completions")
    error = answer.json()["error"]
    assert error["message"].startswith(f"{field}: a schema of ")
    assert (answer.status_code, error["param"]) == (400, field)


@pytest.mark.parametrize("count", [1, 3])
def test_parameters_that_refer_to_themselves(server: Running, count: int) -> None:
    """As pydantic writes those of nested models: they are part of a larger schema."""
    person = {"type": "object", "properties": {"const": {"$ref": "#/$defs/P"}, "a": {"const": 7}}}
    closed = person | {"required": ["a"], "additionalProperties": False}
    parameters = {
        "type": "object",
        "properties": {"who": {"$ref": "#/$defs/P"}, "same": {"const": {"$ref": "#/$defs/P"}}},
        "required": ["who", "same"],
        "additionalProperties": False,
        "$defs": {"P": closed},
    }
    schema = call_schema(
        [{"function": {"name": f"f{k}", "parameters": parameters}} for k in range(count)],
        [f"f{k}" for k in range(count)],
    )
    (matcher,) = server.served.words.matchers(schema.text, 1)
    call = {"name": f"f{count - 1}", "arguments": {"who": {"const": {"a": 7}, "a": 7}}}
    call["arguments"] |= {"same": {"$ref": "#/$defs/P"}}
    for token in server.served.words.encode(json.dumps(call, separators=(",", ":"))):
        matcher.accept(token)
    assert matcher.complete


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_required_call(client: Any, stream: bool) -> None:
    function = {"name": "note", "description": "Notes a person", "parameters": SCHEMA}
    found = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Note Ann"}],
        tools=[{"type": "function", "function": function}],
        tool_choice="required",
        stream=stream,
        seed=2,
    )
    if stream:
        parts = [part.choices[0] for part in found]
        (call,) = [call for part in parts for call in part.delta.tool_calls or ()]
        reason = parts[-1].finish_reason
    else:
        (call,) = found.choices[0].message.tool_calls
        assert found.choices[0].message.content is None
        reason = found.choices[0].finish_reason
    assert (call.function.name, reason) == ("note", "tool_calls")
    assert json.loads(call.function.arguments)["name"] in ("Ann", "Bob")


def test_a_bias_decides(client: Any) -> None:
    found = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=4, logit_bias={"40": 100}, temperature=0
    )
    assert len(set(found.choices[0].text)) == 1


def test_embeddings(client: Any) -> None:
    texts = ["one", "two", "one"]
    found = client.embeddings.create(model="tiny", input=texts)
    vectors = np.array([each.embedding for each in found.data])
    # a norm of 32 squares, sent as decimal digits of float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert not np.allclose(vectors[0], vectors[1])
    plain = client.embeddings.create(model="tiny", input="one", encoding_format="float")
    close_each(plain.data[0].embedding, vectors[0])


def test_models(client: Any) -> None:
    assert [each.id for each in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "luminal"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("other")


def test_page_health_and_metrics(server: Running, client: Any) -> None:
    page = httpx.get(server.url)
    assert page.headers["content-type"].startswith("text/html")
    assert "v1/chat/completions" in page.text
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    greedy(client)
    metrics = httpx.get(f"{server.url}/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line[0] != "#")
    assert float(figures["luminal_new_tokens_total"]) >= 12
    assert float(figures["luminal_first_token_seconds_count"]) >= 1
    assert figures["luminal_free_blocks"] == figures["luminal_blocks"]
    path = 'luminal_requests_total{path="/v1/completions",status="200"}'
    assert float(figures[path]) >= 1


def test_a_shared_prefix_is_computed_once(server: Running, client: Any) -> None:
    prefix = "a prefix that nobody else has, of 40 cha"
    assert len(prefix) == 40
    greedy(client, prefix + "1", 1)
    before = server.served.engine.load.computed
    found = greedy(client, prefix + "2", 1)
    assert found.usage.prompt_tokens_details.cached_tokens == 40
    assert server.served.engine.load.computed - before == 1


def test_request_ids(server: Running) -> None:
    given = httpx.get(f"{server.url}/v1/models", headers={"x-request-id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    made = httpx.get(f"{server.url}/v1/models", headers={"x-request-id": "no good"})
    assert made.headers["x-request-id"] not in ("", "no good")


OK: dict[str, Any] = {"model": "tiny", "prompt": "a", "max_tokens": 1}
WRONG: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "no model": ("completions", {"prompt": "a"}, 400, "model: it is missing"),
    "other model": ("completions", OK | {"model": "gpt"}, 404, "'gpt' does not exist; there is"),
    "no prompt": ("completions", {"model": "tiny"}, 400, "prompt: it is missing"),
    "empty prompt": ("completions", OK | {"prompt": ""}, 400, "it has no tokens"),
    "prompt is no text": ("completions", OK | {"prompt": {}}, 400, "{} is no text, no list"),
    "unknown token": (
        "completions",
        OK | {"prompt": [97]},
        400,
        "97 is no token; ids are below 97",
    ),
    "long prompt": (
        "completions",
        OK | {"prompt": "a" * 500},
        400,
        "maximum context length is 128",
    ),
    "half a character": ("completions", OK | {"prompt": "\ud800"}, 400, "half a surrogate pair"),
    "tokens": ("completions", OK | {"max_tokens": 101}, 400, "101 is no integer of 1 .. 100"),
    "temperature": ("completions", OK | {"temperature": 3}, 400, "3 is no number of 0 .. 2"),
    "flag": ("completions", OK | {"stream": "yes"}, 400, "stream: 'yes' is not true or false"),
    "choices": ("completions", OK | {"prompt": ["a"] * 3, "n": 3}, 400, "3 prompts times 3 texts"),
    "stop": ("completions", OK | {"stop": [""]}, 400, "stop: [''] is no text"),
    "bias": ("completions", OK | {"logit_bias": {"x": 1}}, 400, "'x' is no token"),
    "unknown field": ("completions", OK | {"tempratur": 1}, 400, "there is no such field here"),
    "stream options": (
        "completions",
        OK | {"stream_options": {"include_usage": True}},
        400,
        "stream_options: it is for streams only",
    ),
    "echo": ("completions", OK | {"echo": 1}, 400, "echo: 1 is not true or false"),
    "suffix": ("completions", OK | {"suffix": "a"}, 400, "suffix: it is not supported"),
    "nothing": ("completions", OK | {"max_tokens": 0}, 400, "0 is no integer of 1 .. 100"),
    "no messages": ("chat/completions", {"model": "tiny", "messages": []}, 400, "there are none"),
    "role": (
        "chat/completions",
        {"model": "tiny", "messages": [{"role": "king", "content": "a"}]},
        400,
        "messages[0].role: 'king' is not one of",
    ),
    "picture": (
        "chat/completions",
        {"model": "tiny", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "messages[0].content[0].image_url: it is missing",
    ),
    "schema": (
        "chat/completions",
        {"model": "tiny", "messages": MESSAGES, "response_format": {"type": "json_schema"}},
        400,
        "response_format.json_schema.schema: None is no schema",
    ),
    "form": (
        "chat/completions",
        {"model": "tiny", "messages": MESSAGES, "response_format": {}},
        400,
        "response_format.type: it is missing",
    ),
    "tool": (
        "chat/completions",
        {"model": "tiny", "messages": MESSAGES, "tool_choice": "required"},
        400,
        "a call is required, but there are no tools",
    ),
    "other choice": (
        "chat/completions",
        {"model": "tiny", "messages": MESSAGES, "tool_choice": {"type": "allowed_tools"}},
        400,
        "tool_choice.type: 'allowed_tools' is not one of 'function'",
    ),
    "call and form": (
        "chat/completions",
        {
            "model": "tiny",
            "messages": MESSAGES,
            "tools": [{"function": {"name": "f"}}],
            "tool_choice": "required",
            "response_format": {"type": "json_object"},
        },
        400,
        "response_format: all of the text is a required call; leave one of them out",
    ),
    "vectors": ("embeddings", {"model": "tiny", "input": []}, 400, "input: [] is no text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_field_and_the_rule(server: Running, name: str) -> None:
    path, body, status, message = WRONG[name]
    answer = httpx.post(f"{server.url}/v1/{path}", content=json.dumps(body))
    assert answer.status_code == status
    error = answer.json()["error"]
    assert message in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


SMALL: dict[str, dict[str, Any]] = {
    "completions": OK,
    "chat/completions": {"model": "tiny", "messages": MESSAGES, "max_tokens": 1},
    "embeddings": {"model": "tiny", "input": "a"},
}
HARMLESS = {
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier",
    "store", "user",
}  # fmt: skip
"""Parameters of the official client that change no answer, whatever they are."""


@pytest.mark.parametrize("path", long_but(SMALL, SMALL.keys() - {"completions"}))
def test_every_parameter_of_the_client_is_read_or_refused(
    server: Running, client: Any, path: str
) -> None:
    """A value that none of them may have is an error that names it."""
    makers = {
        "completions": client.completions.create,
        "chat/completions": client.chat.completions.create,
        "embeddings": client.embeddings.create,
    }
    more = {"extra_headers", "extra_query", "extra_body", "timeout"}
    ignored = set()
    for name in inspect.signature(makers[path]).parameters.keys() - more:
        body = SMALL[path] | {name: {"x": [1]}}
        answer = httpx.post(f"{server.url}/v1/{path}", json=body)
        if answer.status_code == 200:
            ignored.add(name)
        else:
            assert name in answer.json()["error"]["param"], name
    assert ignored <= HARMLESS


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[1]", "[1] is no JSON object"),
        (b'{"model": NaN}', "NaN is no number of JSON"),
        (b"[" * 9000, "nest too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "it is not JSON"),
        (b'{"tools": [{"\\uD800": 1}]}', "half a surrogate pair"),
        (b'{"\\ud83d\\ude00": 1}', "model: it is missing"),
    ],
    ids=["empty", "bytes", "list", "nan", "deep", "digits", "half", "pair"],
)
def test_bodies_that_are_no_objects(server: Running, body: bytes, message: str) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", content=body)
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (400, True)


def test_whoever_walks_a_body_may_find_it_too_deep(server: Running) -> None:
    """What the parser can just read is too deep for those that walk it with more on the stack."""
    found = set()
    start = '{"model":"tiny","messages":[{"role":"user","content":"a"}],"max_tokens":1,"tools":'
    for depth in range(200, 996, 40):
        deep = '{"a":' * depth + "1" + "}" * depth
        body = start + '[{"function":{"name":"f","parameters":' + deep + "}}]}"
        answer = httpx.post(f"{server.url}/v1/chat/completions", content=body)
        message = answer.json().get("error", {}).get("message", "")
        found.add((answer.status_code, message.rpartition(": ")[2]))
    assert found == {(200, ""), (400, "lists or objects nest too deeply")}


def test_other_paths_and_methods(server: Running) -> None:
    assert httpx.get(f"{server.url}/v2").status_code == 404
    wrong = httpx.get(f"{server.url}/v1/completions")
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "invalid_request_error")


def test_a_body_above_the_limit(server: Running) -> None:
    """At once, where its length is said before."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
    body = json.dumps(OK | {"prompt": "a" * 30_000})
    answer = httpx.post(f"{server.url}/v1/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_keys(server: Running) -> None:
    app = make_app(server.served, LIMITS, keys=["right", "other"])
    for key in ("Bearer wrong", "Bearer righ", "Bearer right1", "right", "Basic right", ""):
        answer = asked(app, path="/v1/models", authorization=key)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    for key in ("Bearer right", "bearer other"):
        assert asked(app, path="/v1/models", authorization=key).status_code == 200
    assert asked(app, path="/metrics").status_code == 401
    assert asked(app, path="/health").status_code == 200


def test_pages_of_other_origins(server: Running) -> None:
    """A browser asks before it sends a key, and shows a page no answer without the header."""
    allowed, reads = "access-control-allow-origin", "/v1/models"
    question = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-os",
    }
    plain, few, all_ = (
        make_app(server.served, LIMITS, ["right"], origins)
        for origins in ((), ("https://a.example", "http://localhost:3000"), ("*",))
    )
    for app, origin, found in (
        (plain, "https://a.example", None),
        (few, "https://a.example", "https://a.example"),
        (few, "http://localhost:3000", "http://localhost:3000"),
        (few, "https://a.example.evil", None),
        (few, "http://a.example", None),
        (all_, "https://b.example", "*"),
    ):
        asks = asked(app, method="OPTIONS", origin=origin, **question)
        assert asks.headers.get(allowed) == found
        assert (asks.status_code == 200) == (found is not None)
        if found:
            assert "x-stainless-os" in asks.headers["access-control-allow-headers"]
        for key, status in (("Bearer right", 200), ("Bearer wrong", 401)):
            answer = asked(app, path=reads, origin=origin, authorization=key)
            assert (answer.status_code, answer.headers.get(allowed)) == (status, found)
            assert "x-request-id" in answer.headers
        assert "access-control-allow-credentials" not in answer.headers
        assert asked(app, path=reads, authorization="Bearer right").status_code == 200


def test_a_full_queue_is_an_error_at_once(server: Running) -> None:
    """8 rows and 16 places, while the engine does something else; each request asks for 8 texts."""
    body = json.dumps(OK | {"n": 8, "max_tokens": 64, "stream": True})
    gate = threading.Event()
    server.served.engine.call(gate.wait)
    with httpx.Client() as client, ExitStack() as open_:
        answers = [
            open_.enter_context(client.stream("POST", f"{server.url}/v1/completions", content=body))
            for _ in range(4)
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[3].headers["retry-after"] == "1"
        assert json.loads(answers[3].read())["error"]["code"] == "rate_limit_exceeded"
        gate.set()
    assert server.blocks_are_free()


def test_the_context_bounds_a_text(client: Any) -> None:
    prompt = "a" * (CONTEXT - 5)
    found = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": prompt[:-6]}], temperature=0
    )
    assert found.usage.total_tokens <= CONTEXT
