"""The paths of Ollama and of llama.cpp's server, against the documented forms of their answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from luminal.serve.errors import ApiError
from luminal.serve.fields import Fields
from luminal.serve.ollama_order import chat
from luminal.serve.reading import read
from tests.serve.running import LIMITS, Running

GREEDY = {"temperature": 0, "num_predict": 9}
SAID = [{"role": "user", "content": "Hello"}]
LINE = {"model", "created_at", "done"}
LAST = {
    "done_reason", "total_duration", "load_duration", "prompt_eval_count",
    "prompt_eval_duration", "eval_count", "eval_duration",
}  # fmt: skip


def post(server: Running, path: str, **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=60)


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def said_by(client: Any, **more: Any) -> str:
    """What OpenAI's path answers to the same."""
    found = client.chat.completions.create(
        model="tiny", messages=SAID, temperature=0, max_tokens=9, **more
    )
    return str(found.choices[0].message.content)


def test_an_ollama_chat(server: Running, client: Any) -> None:
    told = lines(post(server, "/api/chat", model="tiny:latest", messages=SAID, options=GREEDY))
    for line in told[:-1]:
        assert set(line) == LINE | {"message"}
        assert (line["model"], line["done"]) == ("tiny", False)
        assert set(line["message"]) == {"role", "content"}
        assert line["created_at"].endswith("Z")
    assert set(told[-1]) == LINE | LAST | {"message"}
    assert told[-1]["done"] is True
    assert (told[-1]["done_reason"], told[-1]["eval_count"]) == ("length", 9)
    text = "".join(line["message"]["content"] for line in told)
    assert text == said_by(client)
    answer = post(
        server, "/api/chat", model="tiny", messages=SAID, options=GREEDY, stream=False
    ).json()
    assert set(answer) == LINE | LAST | {"message"}
    assert answer["message"] == {"role": "assistant", "content": text}
    assert answer["total_duration"] >= answer["prompt_eval_duration"] > 0
    # An option that nobody knows is left aside, as there.
    odd = GREEDY | {"num_ctx": 8, "odd": 1, "seed": 4}
    assert lines(post(server, "/api/chat", model="tiny", messages=SAID, options=odd))[:-1] != []


def test_an_ollama_completion(server: Running, client: Any) -> None:
    raw = lines(
        post(server, "/api/generate", model="tiny", prompt="Hello", raw=True, options=GREEDY)
    )
    assert set(raw[0]) == LINE | {"response"}
    assert set(raw[-1]) == LINE | LAST | {"response"}
    found = client.completions.create(model="tiny", prompt="Hello", temperature=0, max_tokens=9)
    text = "".join(line["response"] for line in raw)
    assert text == found.choices[0].text
    body = {"model": "tiny", "prompt": "Hello", "options": GREEDY, "stream": False}
    answer = post(server, "/api/generate", **body).json()
    assert answer["response"] == said_by(client)
    assert answer["prompt_eval_count"] == len("u: Hello\na:")
    stop = {"options": GREEDY | {"stop": [text[3]]}, "raw": True}
    answer = post(server, "/api/generate", **(body | stop)).json()
    assert (answer["response"], answer["done_reason"]) == (text[: text.index(text[3])], "stop")
    answer = post(server, "/api/generate", **(body | {"options": {"num_predict": 0}})).json()
    assert (answer["response"], answer["eval_count"]) == ("", 0)
    loaded = post(server, "/api/generate", model="tiny").json()
    assert (loaded["response"], loaded["done"], loaded["done_reason"]) == ("", True, "load")
    gone = post(server, "/api/chat", model="tiny", messages=[], keep_alive=0).json()
    assert (gone["message"]["content"], gone["done_reason"]) == ("", "unload")


def test_schemas_and_calls(server: Running) -> None:
    pytest.importorskip("llguidance")
    body = {"model": "tiny", "messages": SAID, "stream": False, "options": GREEDY}
    answer = post(server, "/api/chat", **body, format={"const": 12}).json()
    assert answer["message"]["content"].strip() == "12"
    answer = post(server, "/completion", prompt="a", json_schema={"const": 12}, n_predict=9).json()
    assert (answer["content"].strip(), answer["stop_type"]) == ("12", "eos")


def test_what_ollama_tells_of_models(server: Running, client: Any) -> None:
    tags = httpx.get(f"{server.url}/api/tags").json()
    (model,) = tags["models"]
    assert set(model) == {"name", "model", "modified_at", "digest", "size", "details"}
    config = server.served.engine.model.config
    assert (model["name"], model["size"]) == ("tiny", 4 * _numbers(config))
    shown = post(server, "/api/show", model="tiny").json()
    assert shown["capabilities"] == ["completion", "embedding", "tools"]
    assert shown["model_info"]["general.parameter_count"] == _numbers(config)
    assert shown["model_info"]["luminal.context_length"] == server.served.context
    assert shown["details"] == model["details"]
    assert list(httpx.get(f"{server.url}/api/version").json()) == ["version"]
    found = post(server, "/api/embed", model="tiny", input=["Hello", "a"]).json()
    theirs = client.embeddings.create(model="tiny", input=["Hello", "a"], encoding_format="float")
    assert found["embeddings"] == [each.embedding for each in theirs.data]
    assert (found["model"], found["prompt_eval_count"]) == ("tiny", 6)
    long = post(server, "/api/embed", model="tiny", input="a" * 500)
    assert (long.status_code, long.json()["prompt_eval_count"]) == (200, server.served.context)


def _numbers(config: Any) -> int:
    """Of the tiny model: embedding and head, and of two layers their matrices and norms."""
    hidden, inner, keys = config.hidden_size, config.intermediate_size, 16
    layer = 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * inner + 2 * hidden
    ends = 2 - config.tie_word_embeddings
    return int(ends * config.vocab_size * hidden + 2 * layer + hidden)


OLLAMA_WRONG: tuple[tuple[str, dict[str, Any], int, str], ...] = (
    ("chat", {"model": "none"}, 404, "The model 'none' does not exist; there is 'tiny'"),
    ("chat", {}, 400, "model: it is missing"),
    ("chat", {"options": {"mirostat": 2}}, 400, "options.mirostat: it is not supported"),
    ("chat", {"options": {"top_p": 2}}, 400, "options.top_p: 2 is no number of 0 .. 1"),
    ("chat", {"options": {"stop": 5}}, 400, "options.stop: 5 is no text and no list"),
    ("chat", {"think": True}, 400, "think: it is not supported; leave it out, or give False"),
    ("chat", {"format": "xml"}, 400, "format: 'xml' is neither 'json' nor a JSON schema"),
    ("chat", {"messages": [{"role": "king"}]}, 400, "messages[0].role: 'king' is not one of"),
    (
        "chat",
        {"messages": [{"role": "user", "content": "a", "images": ["AAAA"]}]},
        400,
        "messages[0].images[0]: the model reads text alone",
    ),
    ("generate", {"prompt": "a", "suffix": "b"}, 400, "suffix: it is not supported"),
    ("generate", {"prompt": "a" * 200}, 400, "maximum context length is 128 tokens"),
    ("embed", {"input": "a" * 500, "truncate": False}, 400, "input: 500 tokens; at most 128"),
    ("show", {"model": "none"}, 404, "The model 'none' does not exist"),
)


@pytest.mark.parametrize(("path", "change", "status", "message"), OLLAMA_WRONG)
def test_errors_of_ollama_are_a_text(
    server: Running, path: str, change: dict[str, Any], status: int, message: str
) -> None:
    body = ({"model": "tiny"} if change else {}) | {"messages": SAID} | change
    answer = post(server, f"/api/{path}", **body)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert message in answer.json()["error"]


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = answer.text.split("\n\n")
    assert parts[-1] == ""
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def test_a_llama_cpp_completion(server: Running, client: Any) -> None:
    found = client.completions.create(model="tiny", prompt="Hello", temperature=0, max_tokens=9)
    body = {"prompt": "Hello", "n_predict": 9, "temperature": 0, "cache_prompt": True}
    answer = post(server, "/completion", **body).json()
    assert answer["content"] == found.choices[0].text
    assert {name: answer[name] for name in ("index", "stop", "model", "truncated")} == {
        "index": 0, "stop": True, "model": "tiny", "truncated": False,
    }  # fmt: skip
    assert (answer["tokens_evaluated"], answer["tokens_predicted"]) == (5, 9)
    assert (answer["stop_type"], answer["stopping_word"]) == ("limit", "")
    assert answer["timings"]["predicted_n"] == 9
    told = events(post(server, "/completion", **body, stream=True))
    assert "".join(each["content"] for each in told) == answer["content"]
    assert [each["stop"] for each in told] == [False] * (len(told) - 1) + [True]
    assert [token for each in told for token in each["tokens"]] == answer["tokens"]
    assert set(told[0]) == {
        "index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated",
    }  # fmt: skip
    ids = server.served.tokenizer.encode("Hello")
    word = answer["content"][4]
    stopped = post(server, "/completion", **(body | {"prompt": ids, "stop": [word]})).json()
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)


def test_tokens_of_llama_cpp(server: Running) -> None:
    tokenizer = server.served.tokenizer
    ids = post(server, "/tokenize", content="Hi <end>").json()["tokens"]
    assert ids == [*tokenizer.encode("Hi ", bare=True), 0]
    assert post(server, "/detokenize", tokens=ids[:3]).json() == {"content": "Hi "}
    plain = post(server, "/tokenize", content="<end>", parse_special=False).json()["tokens"]
    assert post(server, "/detokenize", tokens=plain).json() == {"content": "<end>"}
    pieces = post(server, "/tokenize", content="a b", with_pieces=True).json()["tokens"]
    assert [each["piece"] for each in pieces] == ["a", " ", "b"]
    assert post(server, "/tokenize", content="").json() == {"tokens": []}
    assert post(server, "/detokenize", tokens=[]).json() == {"content": ""}
    props = httpx.get(f"{server.url}/props").json()
    assert props["default_generation_settings"]["n_ctx"] == server.served.context
    assert props["modalities"] == {"vision": False, "audio": False}
    assert props["chat_template"].startswith("{% for m in messages %}")
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}


LLAMA_WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("completion", {}, "prompt: it is missing"),
    ("completion", {"prompt": ["a", "b"]}, "prompt: 2 texts; send one"),
    ("completion", {"prompt": "a", "grammar": "root ::= x"}, "grammar: it is not supported"),
    ("completion", {"prompt": "a", "n_probs": 3}, "n_probs: it is not supported"),
    ("detokenize", {"tokens": [9999]}, "tokens: 9999 is no token"),
    ("detokenize", {"tokens": "a"}, "tokens: 'a' is no list of token ids"),
    ("tokenize", {"content": 5}, "content: 5 is no text"),
)


@pytest.mark.parametrize(("path", "body", "message"), LLAMA_WRONG)
def test_errors_of_llama_cpp_have_its_form(
    server: Running, path: str, body: dict[str, Any], message: str
) -> None:
    answer = post(server, f"/{path}", **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, 400)
    assert set(error) == {"code", "message", "type"}
    assert message in error["message"]


def test_defaults_are_those_of_the_programs(server: Running) -> None:
    words: Any = server.served.words
    body = json.dumps({"model": "tiny", "messages": SAID}).encode()
    order: Any = read("/api/chat", body, words, LIMITS)
    chosen = order.sampling
    assert (chosen.temperature, chosen.top_k, chosen.top_p, chosen.min_p) == (0.8, 40, 0.9, 0)
    assert order.stream
    assert order.new_tokens == min(LIMITS.new_tokens, server.served.context - len("u: Hello\na:"))
    order = read("/completion", b'{"prompt": "a"}', words, LIMITS)
    chosen = order.sampling
    assert (chosen.temperature, chosen.top_k, chosen.top_p, chosen.min_p) == (0.8, 40, 0.95, 0.05)
    assert not order.stream
    options = {"seed": 5, "repeat_penalty": 1.5, "top_k": 1000, "num_predict": 500}
    body = json.dumps({"model": "tiny", "messages": SAID, "options": options}).encode()
    order = read("/api/chat", body, words, LIMITS)
    assert (order.sampling.seed, order.sampling.repetition_penalty) == (5, 1.5)
    assert order.sampling.top_k == words.vocab_size
    assert order.new_tokens == LIMITS.new_tokens


def test_a_tag_may_be_part_of_a_name(server: Running) -> None:
    words = replace(server.served.words, names=("tiny", "b:latest", "c"))

    def asked(path: str, **more: Any) -> Any:
        return read(path, json.dumps({"messages": SAID} | more).encode(), words, LIMITS)

    assert [asked("/api/chat", model=m).adapter for m in ("tiny:latest", "b:latest", "c")] == [
        0, 1, 2,
    ]  # fmt: skip
    # Without a text, the model that was asked for is said to be there.
    assert asked("/api/generate", model="c:latest").value["model"] == "c"
    with pytest.raises(ApiError, match="The model 'c:latest' does not exist"):
        asked("/v1/chat/completions", model="c:latest")


def test_conversations_of_ollama() -> None:
    class Words:
        vocab_size, context, name = 64, 100, "tiny"
        said: Any = None

        def encode_chat(self, messages: Any, tools: Any) -> Any:
            self.said = messages, tools
            return [1], []

    words: Any = Words()
    call = {"function": {"name": "note", "arguments": {"a": 1}}}
    tool = {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_name": "note", "content": "done"},
    ]
    order: Any = chat(Fields({"messages": messages, "tools": [tool]}), words, LIMITS)
    assert order.tools == ("note",)
    assert words.said[0] == [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function"} | call]},
        {"role": "tool", "content": "done", "name": "note"},
    ]
    with pytest.raises(ApiError, match=r"messages\[0\].tool_calls\[0\].function.name: it is"):
        chat(
            Fields({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}),
            words,
            LIMITS,
        )
