"""Requests that are wrong in one place or in many: bytes, HTTP, JSON, fields, schemas."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Draw = random.Random
Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends on a connection of its own; who `leaves` waits for no answer."""

    kind: str
    data: bytes
    leaves: bool = False


SCHEMA: Tree = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FUNCTION: Tree = {"name": "note", "description": "Notes a person", "parameters": SCHEMA}
SAMPLING: Tree = {
    "max_tokens": 3,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "n": 1,
    "seed": 7,
    "stop": ["end", "."],
    "stream": False,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repetition_penalty": 1.1,
    "logit_bias": {"40": 1.5},
    "user": "someone",
}
COMPLETION: Tree = SAMPLING | {"prompt": ["Once", "Twice"], "logprobs": 2, "best_of": 1}
CHAT: Tree = SAMPLING | {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}], "name": "Ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "note", "arguments": '{"name": "Ann"}'},
                }
            ],
        },
        {"role": "tool", "content": "done", "tool_call_id": "call_1"},
        {"role": "user", "content": "And?"},
    ],
    "logprobs": True,
    "top_logprobs": 2,
    "stream": True,
    "stream_options": {"include_usage": True},
}
TOOLS: Tree = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "auto"}
FORM: Tree = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
}
VECTORS: Tree = {"input": ["one", "two"], "encoding_format": "float", "dimensions": None}
RESPONSE: Tree = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Once"}]},
        {"type": "function_call", "call_id": "c", "name": "note", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ],
    "instructions": "Be kind.",
    "max_output_tokens": 3,
    "temperature": 0.5,
    "top_p": 0.9,
    "stream": True,
    "tools": [{"type": "function"} | FUNCTION],
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}},
    "metadata": {"a": "b"},
}
GOOD: tuple[tuple[str, Tree], ...] = (
    ("/v1/completions", COMPLETION),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 2, "stream": True}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT | TOOLS),
    ("/v1/chat/completions", CHAT | FORM),
    ("/v1/embeddings", VECTORS),
    ("/v1/responses", RESPONSE),
)


def nested(depth: int, kind: str = "list") -> Any:
    """A value in so many others."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


VALUES: tuple[Callable[[Draw], Any], ...] = (
    lambda draw: None,
    lambda draw: draw.random() < 0.5,
    lambda draw: draw.choice([0, -1, 1, 2, 3, 16, 17, 127, 512, 4096, 65536]),
    lambda draw: draw.choice([2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**64), 10**400]),
    lambda draw: draw.choice([0.0, -0.0, 0.1, 1.0, 2.0, 2.5, -1.5, 5e-324, 1.7e308, -1.7e308]),
    lambda draw: draw.choice([float("nan"), float("inf"), float("-inf")]),
    lambda draw: "".join(chr(draw.randrange(0xD800)) for _ in range(draw.randrange(9))),
    lambda draw: draw.choice(["", " ", "\0", "\n", "\ufeff", "\u202e", "\ud800", "\udc00\ud800"]),
    lambda draw: draw.choice(["1", "true", "null", "NaN", "0x10", "text", "function", "user"]),
    lambda draw: draw.choice(["json_object", "json_schema", "grammar", "required", "none", "auto"]),
    lambda draw: draw.choice(["{{ 1/0 }}", "${x}", "../../x", "<end>", "</s>", "<|im_end|>", "%s"]),
    lambda draw: draw.choice(["a", "\u00e9", "\U0001f600", "e\u0301"]) * draw.choice([100, 9000]),
    lambda draw: draw.choice(['{"a": "\\ud800"}', "[" * 9000, '{"a": NaN}', '{"a": 1e999}', "[1]"]),
    lambda draw: [],
    lambda draw: {},
    lambda draw: [draw.choice([None, 0, "a", [], {}, True, 1.5, -1])] * draw.choice([1, 5, 3000]),
    lambda draw: {f"k{number}": number for number in range(draw.choice([1, 5, 2000]))},
    lambda draw: nested(draw.choice([2, 60, 300]), draw.choice(["list", "dict"])),
    lambda draw: {"type": draw.choice(["text", "image_url", "function", "json_schema", "king"])},
    lambda draw: schema(draw),
)
"""What stands where something else is asked for."""

PATTERNS = (
    "(a+)+$", "a{1,100000}", "(a{1,1000}){1,1000}", "(", "[", "\\", "^a$", "(?=a)b", "\\1", "a**",
    "[\\d-z]", "(?P<x>a)", "\\p{L}+", ".{0,60000}", "", "\ud800", "(((((((((((a)))))))))))",
)  # fmt: skip
KINDS = ("string", "integer", "number", "boolean", "null", "array", "object", "king", "", 3, None)
FORMATS = ("date-time", "uuid", "email", "ipv4", "regex", "king", "", 3)
NUMBERS = (0, 1, -1, 3, 0.5, 1e-300, 1e300, 10**30, -(10**30), "1", None, True)
SIZES = (0, 1, 5, -1, 10**9, 2**63, 1.5, "1", None)
WORDS: dict[str, Callable[[Draw], Any]] = {
    "type": lambda draw: draw.choice(KINDS),
    "enum": lambda draw: draw.choice([[], ["a", 1, None], ["a"] * 500, [*range(2000)], {}, "a"]),
    "const": lambda draw: draw.choice([None, 1, "a", [1], {"a": 1}, 1e300, "\ud800", "a" * 5000]),
    "pattern": lambda draw: draw.choice(PATTERNS),
    "format": lambda draw: draw.choice(FORMATS),
    "minLength": lambda draw: draw.choice(SIZES),
    "maxLength": lambda draw: draw.choice(SIZES),
    "minItems": lambda draw: draw.choice(SIZES),
    "maxItems": lambda draw: draw.choice(SIZES),
    "minProperties": lambda draw: draw.choice(SIZES),
    "uniqueItems": lambda draw: draw.choice([True, False, 1]),
    "minimum": lambda draw: draw.choice(NUMBERS),
    "maximum": lambda draw: draw.choice(NUMBERS),
    "exclusiveMinimum": lambda draw: draw.choice(NUMBERS),
    "multipleOf": lambda draw: draw.choice(NUMBERS),
    "$ref": lambda draw: draw.choice(
        ["#", "#/$defs/a", "#/properties/a", "file:///etc/passwd", "http://127.0.0.1:1/", "", 3]
    ),
    "$defs": lambda draw: {"a": draw.choice([{"$ref": "#/$defs/a"}, schema(draw), 3])},
    "$schema": lambda draw: draw.choice(["http://json-schema.org/draft-07/schema#", "x", 3]),
    "required": lambda draw: draw.choice([["a"], ["a", "a"], ["z"] * 500, "a", [1], {}]),
    "properties": lambda draw: draw.choice(
        [{"a": schema(draw)}, {f"p{k}": {} for k in range(300)}, {"": schema(draw)}, [], 3]
    ),
    "patternProperties": lambda draw: {draw.choice(PATTERNS): schema(draw)},
    "additionalProperties": lambda draw: draw.choice([True, False, schema(draw), 3]),
    "items": lambda draw: draw.choice([schema(draw), [schema(draw)], True, False, 3]),
    "prefixItems": lambda draw: [schema(draw) for _ in range(draw.randrange(3))],
    "anyOf": lambda draw: [schema(draw) for _ in range(draw.randrange(3))],
    "oneOf": lambda draw: [schema(draw) for _ in range(draw.randrange(3))],
    "allOf": lambda draw: [schema(draw) for _ in range(draw.randrange(3))],
    "not": lambda draw: schema(draw),
    "if": lambda draw: schema(draw),
    "x-guidance": lambda draw: draw.choice([{"whitespace_pattern": "("}, {"lenient": 3}, 3]),
    "king": lambda draw: draw.choice([1, "a"]),
}


def schema(draw: Draw) -> Any:
    """Something like a JSON schema."""
    if draw.random() < 0.05:
        return draw.choice([True, False, None, 3, "a", []])
    names = draw.sample(sorted(WORDS), draw.randrange(4))
    found = {name: WORDS[name](draw) for name in names}
    return found if draw.random() < 0.5 else {"type": draw.choice(KINDS)} | found


# --- fields


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a tree, but its own."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in inner:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


def mutated(tree: Tree, draw: Draw) -> Tree:
    """A copy with one to three values changed, gone, moved or doubled."""
    found = copy.deepcopy(tree)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        path = draw.choice([*places(found)] or [("model",)])
        holder: Any = found
        for key in path[:-1]:
            holder = holder[key]
        last = path[-1]
        value = holder[last] if isinstance(holder, list) else holder.get(last)
        way = draw.randrange(8)
        if way == 0:
            del holder[last]
        elif way == 1:
            holder[last] = [value]
        elif way == 2:
            holder[last] = {"a": value} if draw.random() < 0.5 else {str(last): value}
        elif way == 3 and isinstance(holder, dict):
            holder[draw.choice(["other", "", "\ud800", "a" * 5000, str(last).upper()])] = value
        elif way == 4 and isinstance(value, list):
            holder[last] = value * draw.choice([2, 20, 400])
        else:
            holder[last] = draw.choice(VALUES)(draw)
    return found


def fields(draw: Draw) -> Request:
    """A request whose body is JSON and has wrong fields."""
    path, good = draw.choice(GOOD)
    return Request("fields", post(path, encoded(mutated({"model": "tiny"} | good, draw))))


def schemas(draw: Draw) -> Request:
    """A text that is to obey something like a schema."""
    wanted = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 8}
    form: Tree = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema(draw)}}
    asked: Tree = {"response_format": form}
    if draw.random() < 0.3:
        function = {"name": "f", "parameters": form["json_schema"]["schema"]}
        asked = {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    return Request("schemas", post("/v1/chat/completions", encoded(wanted | asked)))


def encoded(tree: Tree) -> bytes:
    """As JSON, with NaN and Infinity where the tree has them."""
    return json.dumps(tree).encode()


# --- the text of a body

SPLICES = (
    b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b",", b"}", b"]", b"{", b"[", b'"', b"\\u12",
    b"\\ud800", b"//x\n", b"1e999", b"-", b"01", b"0x1", b"NaN", b"'", b"\n", b"\t", b"99" * 2500,
    b'"model":"x",', b'"n":2,"n":3,', b"[" * 5000, b'{"a":' * 5000, b"null", b"undefined",
)  # fmt: skip


def bodies(draw: Draw) -> Request:
    """A body that is no JSON, or JSON as nobody writes it."""
    path, good = draw.choice(GOOD)
    text = encoded({"model": "tiny"} | good)
    way = draw.randrange(7)
    place = draw.randrange(len(text))
    if way == 0:
        text = text[:place]
    elif way == 1:
        text = text[:1] + draw.choice([b'"model":"x",', b'"n":9,', b'"stream":3,']) + text[1:]
    elif way == 2:
        text = text.decode().encode(draw.choice(["utf-16", "utf-32", "utf-8-sig", "cp037"]))
    elif way == 3:
        text = draw.choice([b"", b" ", b"3", b'"a"', b"[]", b"null", text * 2, b"\0" * 99])
    elif way == 4:
        text = bytes(draw.randrange(256) for _ in range(draw.randrange(200)))
    else:
        text = text[:place] + draw.choice(SPLICES) + text[place + draw.randrange(3) :]
    return Request("bodies", post(path, text))


# --- HTTP

KEY = "Authorization: Bearer right"
BODY = encoded({"model": "tiny", "prompt": "Once", "max_tokens": 2, "temperature": 0})


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A good request with a body."""
    return message(f"POST {path} HTTP/1.1", [KEY, *headers, f"Content-Length: {len(body)}"], body)


def message(start: str, headers: list[str], body: bytes = b"", host: str = "Host: here") -> bytes:
    """A request of these lines."""
    lines = [start, *([host] if host else []), *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def starts(draw: Draw) -> bytes:
    """A first line that is wrong."""
    method = draw.choice(
        ["GET", "post", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PRI",
         "A" * 5000, "P OST", "", "\x80", "POST\0", "GET\t"]
    )  # fmt: skip
    target = draw.choice(
        ["/v1/completions", "/v1/completions/", "/health/", "/v1", "/v2", "//", "///x", "*", "",
         "http://other/health", "http://[/health", "/%", "/%ff%fe", "/%00", "/%0d%0aX: y", "/\x80",
         "/v1/models/", "/v1/models/%2e%2e/x", "/v1/models/m/x", "/../../etc/passwd", "/a b",
         "/?" + "a=" * 99, "/v1/completions?model=m", "/" + "a" * 9000, "/" + "a" * 90_000, "/#x"]
    )  # fmt: skip
    version = draw.choice(["1.1", "1.1", "1.1", "1.0", "0.9", "2", "2.0", "9.9", "1.", "x", ""])
    line = f"{method} {target} HTTP/{version}" if version else f"{method} {target}"
    return message(line, [KEY])


HEADERS = (
    "X: " + "a" * 9000, "X: " + "a" * 90_000, "X", ": x", "X : y", " X: y", "X: \0", "X: \x01",
    "X: \x80", "\x80: x", "X: a\r\n b", "X: a\rb", "X: a\nb", "Host: other", "Host: [", "Host: ]:x",
    "Authorization: Bearer wrong", "Authorization: " + "a" * 5000, "Authorization: Bearer \xff",
    "Authorization:", "Content-Type: text/plain", "Content-Type: \xff", "Content-Encoding: gzip",
    "Content-Encoding: king", "Accept: image/png", "Accept-Encoding: \xff", "X-Request-Id: \xff",
    "X-Request-Id: " + "a" * 5000, "Expect: 100-continue", "Expect: king", "Upgrade: websocket",
    "Connection: Upgrade\r\nUpgrade: websocket", "Connection: Upgrade\r\nUpgrade: h2c",
    "Connection: king", "Connection: close", "Transfer-Encoding: gzip", "Transfer-Encoding: \xff",
    "Transfer-Encoding: chunked", "Content-Length: -1", "Content-Length: +5", "Content-Length: x",
    "Content-Length: 0x10", "Content-Length: 1,2", "Content-Length:", "Content-Length: 5",
    "Content-Length: \xb2", "Content-Length: " + "9" * 30, "Content-Length: " + "9" * 5000,
    "X-Forwarded-For: \xff", "X-Forwarded-For: 1.2.3.4, x", "X-Forwarded-Proto: king",
    "Origin: http://other", "Cookie: " + "a=b; " * 900, "Range: bytes=0-3", "Trailer: X",
    "\r\n".join(f"X-{number}: y" for number in range(1500)),
)  # fmt: skip


def heads(draw: Draw) -> bytes:
    """A request with one or two headers that are wrong."""
    wrong = [draw.choice(HEADERS) for _ in range(draw.choice([1, 1, 2]))]
    given = [KEY] if draw.random() < 0.8 else []
    length = [f"Content-Length: {len(BODY)}"] if draw.random() < 0.8 else []
    host = draw.choice(["Host: here", "Host: here", "Host: here", "Host: [", "Host: a b", ""])
    path = draw.choice(["/v1/completions", "/v1/completions", "/v2", "/health", "/v1/models/x"])
    return message(f"POST {path} HTTP/1.1", [*given, *wrong, *length], BODY, host)


def chunks(draw: Draw) -> bytes:
    """A body in chunks, most of them wrong."""
    lines = [b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:9], BODY[9:])]
    wrong = draw.choice(
        [b"zz\r\n", b"-1\r\n", b"f" * 400 + b"\r\n", b"5;" + b"x" * 90_000 + b"\r\nabcde\r\n",
         b"5\r\nabcdefg", b"\r\n\r\n", b"0x5\r\nabcde\r\n", b"5 \r\nabcde\r\n", b"\xff\r\n", b""]
    )  # fmt: skip
    lines.insert(draw.randrange(3), wrong)
    end = draw.choice([b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\n:\r\n\r\n", b"00000\r\n\r\n"])
    start = message("POST /v1/completions HTTP/1.1", [KEY, "Transfer-Encoding: chunked"])
    return start + b"".join(lines) + end


def noise(draw: Draw) -> bytes:
    """Bytes of other protocols, and of none."""
    some = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 300)))
    return draw.choice(
        [some + b"\r\n\r\n", b"\0" * 99 + b"\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
         b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b"\r\n" * 40 + b"x\r\n\r\n",
         b"GET /health\r\n\r\n", b"{}\r\n\r\n", b"POST /v1/completions HTTP/1.1\n\n"]
    )  # fmt: skip


def http(draw: Draw) -> Request:
    """A request that is wrong before its body is read."""
    way = draw.choice([starts, heads, heads, chunks, noise])
    return Request(way.__name__, way(draw))


def halves(draw: Draw) -> Request:
    """A client that goes before its request, or the answer to it, is whole."""
    body = encoded({"model": "tiny"} | draw.choice(GOOD)[1] | {"max_tokens": 60, "stream": True})
    path = draw.choice(["/v1/completions", "/v1/chat/completions", "/v1/embeddings"])
    whole = post(path, body, "Expect: 100-continue") if draw.random() < 0.1 else post(path, body)
    place = draw.choice([draw.randrange(len(whole)), len(whole), len(whole)])
    return Request("halves", whole[:place], leaves=True)


def requests(seed: int) -> Iterator[Request]:
    """Without end. The model is called tiny, and the one key is right."""
    draw = Draw(seed)
    ways = {fields: 55, schemas: 15, bodies: 10, http: 15, halves: 5}
    while True:
        (way,) = draw.choices([*ways], [*ways.values()])
        yield way(draw)
