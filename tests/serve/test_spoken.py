"""`/v1/audio/speech`: what OpenAI's client asks for and gets, and requests that are damaged."""

from __future__ import annotations

import asyncio
import io
import wave
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from luminal.loaders.wav import pcm_bytes, resampled
from luminal.serve.app import make_app
from luminal.serve.load import load
from luminal.serve.orders import Limits
from luminal.serve.readers import Reading
from tests.models.small_vits import VOICES, saved

LIMITS = Limits(body=200_000, queue=4)


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    """A small VITS of three voices."""
    folder = tmp_path_factory.mktemp("vits")
    saved(folder, **VOICES)
    served = load(str(folder), name="m", backend="reference")
    assert isinstance(served, Reading)
    return served


def asked(served: Reading, **fields: Any) -> httpx.Response:
    """The answer to a request."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(served, LIMITS))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            wanted = {"model": "m", "input": "a bad cab", "voice": "1"} | fields
            return await client.post("/v1/audio/speech", json=wanted)

    return asyncio.run(ask())


def test_both_forms(voices: Reading) -> None:
    model: Any = voices.model
    wanted = model.speak("a bad cab", 1, 2.0, 5)
    answer = asked(voices, speed=2, seed=5)
    assert answer.headers["content-type"] == "audio/wav"
    with wave.open(io.BytesIO(answer.content)) as file:
        about = file.getnchannels(), file.getsampwidth(), file.getframerate()
        assert about == (1, 2, 16000)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    np.testing.assert_allclose(samples / (2**15 - 1), wanted, rtol=0, atol=2**-15)
    answer = asked(voices, speed=2, seed=5, response_format="pcm", voice={"id": "1"})
    assert answer.headers["content-type"] == "audio/pcm"
    assert answer.content == pcm_bytes(resampled(wanted, 16000, 24000))
    assert pcm_bytes(np.array([2.0, -2.0, 0.5])) == b"\xff\x7f\x01\x80\x00\x40"
    assert len(answer.content) == 2 * -(-len(wanted) * 3 // 2)
    assert asked(voices, speed=2, seed=5, voice="2").content != asked(voices, seed=5).content


WRONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "model": ({"model": "other"}, 404, "The model 'other' does not exist"),
    "input": ({"input": None}, 400, "input: it is missing"),
    "number": ({"input": 3}, 400, "input: 3 is no text"),
    "unsaid": ({"input": "!?"}, 400, "'!?' has no letters that the model knows"),
    "long": ({"input": "a" * 4097}, 400, "input: 4097 letters; at most 4096"),
    "form": ({"response_format": "mp3"}, 400, "'mp3' is not one of 'wav', 'pcm'"),
    "voice": ({"voice": "3"}, 400, "voice: '3' is not one of '0' .. '2'"),
    "name": ({"voice": "alloy"}, 400, "voice: 'alloy' is not one of '0' .. '2'"),
    "speed": ({"speed": 4.5}, 400, "speed: 4.5 is no number of 0.25 .. 4"),
    "instructions": ({"instructions": "sadly"}, 400, "instructions: they are not supported"),
    "stream": ({"stream_format": "sse"}, 400, "stream_format: 'sse' is not one of 'audio'"),
    "field": ({"pitch": 2}, 400, "'pitch': there is no such field here"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str, voices: Reading) -> None:
    fields, status, message = WRONG[name]
    answer = asked(voices, **fields)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]


@pytest.mark.long
def test_one_voice_has_every_name(tmp_path: Path) -> None:
    saved(tmp_path)
    served = load(str(tmp_path), name="m", backend="reference")
    assert isinstance(served, Reading)
    first, second = (asked(served, voice=name, seed=0) for name in ("alloy", "nova"))
    assert first.status_code == 200
    assert first.content == second.content


@pytest.mark.long
def test_openai_s_client(voices: Reading, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    transport = httpx.ASGITransport(make_app(voices, LIMITS))

    async def ask() -> Any:
        async with openai.AsyncOpenAI(
            base_url="http://here/v1",
            api_key="none",
            http_client=httpx.AsyncClient(transport=transport),
        ) as client:
            answer = await client.audio.speech.create(
                model="m", voice="1", input="a bad cab", response_format="wav", speed=2,
                extra_body={"seed": 5},
            )  # fmt: skip
            answer.write_to_file(tmp_path / "a.wav")
            async with client.audio.speech.with_streaming_response.create(
                model="m", voice="1", input="a bad cab", response_format="pcm"
            ) as streamed:
                return [part async for part in streamed.iter_bytes()]

    parts = asyncio.run(ask())
    assert (tmp_path / "a.wav").read_bytes() == asked(voices, speed=2, seed=5).content
    assert sum(map(len, parts)) > 100
