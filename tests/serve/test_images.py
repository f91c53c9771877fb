"""Images in requests: the same tokens as in one process, whoever else is served."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import httpx
import numpy as np
import pytest

from luminal.base.errors import InputError
from luminal.loaders.image import SENT, read_sent
from luminal.models import LanguageModel
from luminal.models.text import Completion
from luminal.serve import desk
from luminal.serve.app import Api
from luminal.serve.desk import Desk
from luminal.serve.errors import ApiError
from luminal.serve.reading import read
from luminal.serve.words import Words
from tests.close import close_to_greatest
from tests.models.small_seeing import picture
from tests.serve.running import LIMITS, Running, listening
from tests.serve.seeing import (
    NEW,
    Image,
    chats,
    encoded,
    invented,
    messages,
    seeing,
    url_of,
    wanted,
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return invented()


@pytest.fixture(scope="module")
def shown(model: LanguageModel) -> Iterator[Running]:
    with seeing(model) as server:
        yield server


def words_of(model: LanguageModel) -> Words:
    assert not isinstance(model.sight, str)
    sizes = model.context, model.model.config.vocab_size
    return Words(("tiny",), model.tokenizer, model.chat_template, *sizes, model.sight.processor)


def asked(client: Any, parts: list[Any], **more: Any) -> Any:
    return client.chat.completions.create(
        model="tiny", messages=messages(*parts), temperature=0, max_tokens=NEW, **more
    )


def check(client: Any, parts: list[Any], expected: Completion) -> None:
    """The same greedy tokens, with the same log-probabilities."""
    (choice,) = asked(client, parts, logprobs=True).choices
    told = choice.logprobs.content
    assert choice.message.content == expected.text
    close_to_greatest(np.array([each.logprob for each in told]), np.array(expected.logprobs))


def test_answers_are_those_of_one_process(model: LanguageModel, shown: Running) -> None:
    expected = [wanted(model, *parts) for parts in chats()]
    pairs = [*zip(chats(), expected, strict=True)]
    for one, other in ((1, 2), (3, 5)):  # ids are the same, images are not
        assert expected[one].logprobs != expected[other].logprobs
    with shown.client() as client, ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda pair: check(client, *pair), pairs))
        # Once more, from the blocks of the first time.
        list(pool.map(lambda pair: check(client, *pair), pairs[:3:-1]))
        used = asked(client, chats()[3]).usage
        assert used.prompt_tokens_details.cached_tokens > used.prompt_tokens - 8
        stream = asked(client, chats()[3], stream=True)
        pieces = [part.choices[0].delta.content or "" for part in stream]
        assert "".join(pieces) == expected[3].text
    assert shown.blocks_are_free()


def test_responses_take_images(model: LanguageModel, shown: Running) -> None:
    image = picture(30, 20, 9)
    content = [
        {"type": "input_text", "text": "w3"},
        {"type": "input_image", "image_url": url_of(image, "WEBP"), "detail": "auto"},
    ]
    with shown.client() as client:
        found = client.responses.create(
            model="tiny",
            input=[{"role": "user", "content": content}],
            temperature=0,
            max_output_tokens=NEW,
        )
    lossy = Image.open(io.BytesIO(base64.b64decode(encoded(image, "WEBP"))))
    assert found.output_text == wanted(model, "w3", lossy).text


def test_paths_of_ollama_take_images(model: LanguageModel, shown: Running) -> None:
    image = picture(30, 20, 9)
    expected = wanted(model, image, "w3").text
    options = {"temperature": 0, "num_predict": NEW}
    about = {"model": "tiny", "stream": False, "options": options}
    said = [{"role": "user", "content": "w3", "images": [encoded(image)]}]
    answer = httpx.post(f"{shown.url}/api/chat", json=about | {"messages": said}, timeout=60)
    assert answer.json()["message"]["content"] == expected
    asked = {"prompt": "w3", "images": [encoded(image)]}
    answer = httpx.post(f"{shown.url}/api/generate", json=about | asked, timeout=60)
    assert answer.json()["response"] == expected


def flat(width: int, height: int) -> bytes:
    """A PNG of one bit a pixel and one colour: few bytes for any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + check

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([1, 0, 0, 0, 0])
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height), 9)
    pieces = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + pieces


VAST = b"GIF89a" + b"\xff" * 4 + bytes(3) + b"," + bytes(4) + b"\xff" * 4 + bytes(9)
GOOD = encoded(picture(30, 20))
CUT = base64.b64encode(base64.b64decode(GOOD)[:-200]).decode()
WRONG = (
    (
        "https://a.example/b.png",
        r"no data URL: the server fetches nothing; send the image itself, as 'data:image/png",
    ),
    ("b.png", r"'b\.png' is no data URL; send the image itself"),
    ("data:image/png,abc", r"'data:image/png': the data must be in base64"),
    ("data:image/png;base64,&&", r"'&&' is no base64; encode the bytes of the image's file"),
    ("data:image/png;base64,AAAA", r"its bytes are none of PNG, JPEG, WEBP, GIF; send one"),
    ("data:image/png;base64," + CUT, r"its bytes are damaged \(.*\); send all of the file"),
    (
        "data:image/png;base64," + base64.b64encode(flat(8000, 8000)).decode(),
        r"it has 8000 x 8000 pixels, more than 33554432; send a smaller one",
    ),
    (
        "data:image/gif;base64," + base64.b64encode(VAST).decode(),
        r"it has more than 33554432 pixels; send a smaller one",
    ),
)


def with_url(url: Any) -> bytes:
    part = {"type": "image_url", "image_url": {"url": url}}
    said = [{"role": "user", "content": [{"type": "text", "text": "w1"}, part]}]
    return json.dumps({"model": "tiny", "messages": said, "max_tokens": 1}).encode()


def refusal(body: bytes, words: Any, path: str = "/v1/chat/completions") -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(path, body, words, LIMITS)
    return caught.value


@pytest.mark.parametrize(("url", "message"), WRONG)
def test_what_is_wrong_with_an_image(model: LanguageModel, url: str, message: str) -> None:
    error = refusal(with_url(url), words_of(model))
    assert (error.status, error.param) == (400, "messages[0].content[1].image_url.url")
    assert error.message.startswith(f"{error.param}: ")
    assert re.search(message, error.message), error.message


def test_an_error_of_an_image_comes_over_http(shown: Running) -> None:
    answer = httpx.post(
        f"{shown.url}/v1/chat/completions", content=with_url(WRONG[5][0]), timeout=60
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_value")
    assert error["param"] == "messages[0].content[1].image_url.url"


def test_images_are_read_apart_however_they_are_spelt(
    shown: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(*_: Any) -> None:
        raise AssertionError("read in this process")

    monkeypatch.setattr(desk, "read", here)
    body = with_url(f"data:image/png;base64,{GOOD}")
    for text in (b"image", b"\\u0069mage"):
        data = body.replace(b"image", text).replace(b"data:" + text, b"data:x")
        asked: Any = asyncio.run(Desk(shown.served, LIMITS).read("/v1/chat/completions", data))
        assert len(asked.images) == 1


def test_where_images_may_be(model: LanguageModel) -> None:
    good = f"data:image/png;base64,{GOOD}"
    words = words_of(model)
    many = messages(*[picture(9, 9)] * (LIMITS.images + 1))
    body = json.dumps({"model": "tiny", "messages": many}).encode()
    error = refusal(body, words)
    assert error.message == (
        "messages[0].content[16].image_url.url: image 17 of this request; at most 16"
    )
    said = json.loads(with_url(good))
    said["messages"][0]["role"] = "system"
    error = refusal(json.dumps(said).encode(), words)
    assert error.message.startswith("messages[0].content[1].type: 'image_url' is not one of")
    narrow = "data:image/png;base64," + base64.b64encode(flat(300_000, 1)).decode()
    error = refusal(with_url(narrow), words)
    assert re.search(r"url: images: one of \(300000, 1\) pixels is too long", error.message)
    blind = replace(words, processor="the model reads text alone")
    error = refusal(with_url(good), blind)
    assert "url: the model reads text alone" in error.message
    assert error.message.endswith("; send texts alone, or ask a model that sees")
    content = [{"type": "input_image", "file_id": "file-1"}]
    asked = {"model": "tiny", "input": [{"role": "user", "content": content}]}
    error = refusal(json.dumps(asked).encode(), words, "/v1/responses")
    assert error.message == ("input[0].content[0].file_id: no files are kept here; send image_url")


def test_damaged_files_are_refused_in_words() -> None:
    random = np.random.default_rng(3)
    for kind in SENT:
        whole = base64.b64decode(encoded(picture(20, 14), kind))
        assert read_sent(whole, 400).size == (20, 14)
        for _ in range(60):
            data = bytearray(whole[: int(random.integers(1, len(whole) + 1))])
            for place in random.integers(0, len(data), int(random.integers(0, 4))):
                data[place] = random.integers(256)
            with suppress(InputError):
                read_sent(bytes(data), 400)


def test_an_image_that_takes_too_much_memory_is_not_called_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Image, "open", Mock(side_effect=MemoryError))
    with pytest.raises(InputError, match="takes too much memory; send a smaller one"):
        read_sent(base64.b64decode(GOOD), 1000)


def test_images_for_which_there_is_no_room(model: LanguageModel, shown: Running) -> None:
    api = Api(shown.served, LIMITS, (), ())
    api._shown = shown.served.engine.options.cache - 1
    with listening(api.app) as url:
        body = with_url(f"data:image/png;base64,{GOOD}")
        answer = httpx.post(f"{url}v1/chat/completions", content=body, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        api._shown, api.limits = 0, replace(LIMITS, queue=-8)  # refused when it was looked at
        answer = httpx.post(f"{url}v1/chat/completions", content=body, timeout=60)
        assert (answer.status_code, api._shown) == (429, 0)
        assert "busy with 0 texts" in answer.json()["error"]["message"]
