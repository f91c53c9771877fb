"""`/v1/audio/transcriptions`: what OpenAI's client sends and reads, and forms that are damaged."""

from __future__ import annotations

import asyncio
import io
import wave
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from luminal.models.attempts import Fallback
from luminal.serve.app import make_app
from luminal.serve.load import load
from luminal.serve.multipart import parts_of
from luminal.serve.orders import Limits
from luminal.serve.readers import Reading
from luminal.serve.speech import Speech, _clock, told
from tests.models import small_parakeet
from tests.models.small_whisper import RATE, noise, saved

LIMITS = Limits(body=200_000, queue=4)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    """A small Whisper."""
    folder = tmp_path_factory.mktemp("whisper")
    saved(folder)
    served = load(str(folder), name="m", backend="reference")
    assert isinstance(served, Reading)
    return served


def wav(seconds: float = 1.3, rate: int = RATE, stated: int | None = None) -> bytes:
    """A file of noise, that says another rate if one is `stated`."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(stated or rate)
        out.writeframes((noise(seconds) * 20000).astype("<i2").tobytes())
    return file.getvalue()


def asked(served: Reading, file: bytes, task: str = "transcriptions", **fields: Any) -> Any:
    """The answer to a form."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(served, LIMITS))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.post(
                f"/v1/audio/{task}", data={"model": "m"} | fields, files={"file": ("a.wav", file)}
            )

    return asyncio.run(ask())


def test_a_file_that_is_cut_off_is_refused(speech: Reading) -> None:
    """A client hears of no warning."""
    answer = asked(speech, wav()[:-100])
    assert answer.status_code == 400
    assert "file: file: its header says 41600 bytes of samples, 1.30 s, and 41500" in answer.text


def test_all_forms(speech: Reading) -> None:
    file = wav(0.9)
    model: Any = speech.model
    sound = (noise(0.9) * 20000).astype("<i2").astype(np.float32) / 2**15
    wanted = model.transcribe(sound, "en", words=True, fallback=Fallback((0.3,)))
    assert wanted
    text = "".join(segment.text for segment in wanted).strip()
    options: dict[str, Any] = {"language": "en", "temperature": "0.3"}
    spoken = Speech(b"", "text", "en", False, Fallback())
    assert told(spoken, wanted, "transcribe", 0.9).decode() == f"{text}\n"
    verbose = asked(
        speech, file, **options, response_format="verbose_json",
        **{"timestamp_granularities[]": ["word", "segment"]},
    ).json()  # fmt: skip
    assert (verbose["task"], verbose["language"], verbose["duration"]) == ("transcribe", "en", 0.9)
    assert [(s["start"], s["end"], s["text"]) for s in verbose["segments"]] == [
        (s.start, s.end, s.text) for s in wanted
    ]
    assert verbose["segments"][0]["temperature"] == 0.3
    assert [(w["word"], w["start"]) for w in verbose["words"]] == [
        (word.text.strip(), word.start) for segment in wanted for word in segment.words
    ]
    assert verbose["text"] == text
    answer = asked(speech, file, **options, response_format="srt")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    srt = answer.text
    assert srt.startswith("1\n00:00:00,")
    assert srt.count(" --> ") == len(wanted)
    vtt = told(spoken._replace(form="vtt"), wanted, "transcribe", 0.9).decode()
    assert vtt == "WEBVTT\n\n" + "".join(
        f"{block.partition(chr(10))[2]}\n\n".replace(",", ".") for block in srt.split("\n\n")[:-1]
    )


def test_a_model_without_a_decoder(tmp_path: Path) -> None:
    small_parakeet.saved(tmp_path)
    served = load(str(tmp_path), name="m", backend="reference")
    assert isinstance(served, Reading)
    options: dict[str, Any] = {"timestamp_granularities[]": "word"}
    found = asked(served, wav(), response_format="verbose_json", **options).json()
    model: Any = served.model
    sound = (noise(1.3) * 20000).astype("<i2").astype(np.float32) / 2**15
    (text,), words = model.transcribe(sound, "text"), model.transcribe(sound)
    assert found["text"] == text.text
    assert [word["word"] for word in found["words"]] == [word.text for word in words]
    assert len(words) > 1
    assert asked(served, wav(), "translations").status_code == 404


WRONG: dict[str, tuple[bytes, dict[str, Any], int, str]] = {
    "no_wave": (b"ID3 something", {}, 400, "file: no WAVE file; convert it"),
    "cut_off": (wav()[:30], {}, 400, "file: its format has 10 bytes of 16"),
    "silent": (wav(0), {}, 400, "file: it has no samples"),
    "long": (wav(1.0, stated=1), {}, 400, "file: 16000 s of sound; at most 14400"),
    "large": (wav(7.0), {}, 413, "more than 200000 bytes"),
    "model": (wav(), {"model": "other"}, 404, "The model 'other' does not exist"),
    "form": (wav(), {"response_format": "pdf"}, 400, "response_format: 'pdf' is not one of json"),
    "language": (wav(), {"language": "xx"}, 400, "language 'xx' is not known; known are de, en"),
    "temperature": (wav(), {"temperature": "hot"}, 400, "temperature: 'hot' is no number of 0"),
    "words": (wav(), {"timestamp_granularities[]": "word"}, 400, "words are told in verbose_json"),
    "prompt": (wav(), {"prompt": "Ann"}, 400, "prompt: it is not supported"),
    "field": (wav(), {"speed": "2"}, 400, "'speed': there is no such field here"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str, speech: Reading) -> None:
    file, fields, status, message = WRONG[name]
    answer = asked(speech, file, **fields)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("application/json", b"{}", "is not multipart/form-data with a boundary"),
        ("multipart/form-data", b"", "is not multipart/form-data with a boundary"),
        ("multipart/form-data; boundary=x", b"", "it ends before its last boundary"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\na\r\n", "it ends before its last"),
        ("multipart/form-data; boundary=x", b"--x\r\na\r\n--x--", "a part has no headers"),
        ("multipart/form-data; boundary=x", b"--x\r\nA: b\r\n\r\na\r\n--x--", "a part has no name"),
        ("multipart/form-data; boundary=x", b"--x\r\n" * 70 + b"--x--", "it has 70 parts"),
    ],
)  # fmt: skip
def test_damaged_forms(kind: str, body: bytes, message: str) -> None:
    with pytest.raises(Exception, match=message):
        parts_of(kind, body)


def test_parts() -> None:
    body = (
        b'--a b\r\ncontent-disposition: form-data; name="x"; filename="y"\r\n\r\n1\r\n--\r\n'
        b'\r\n--a b\r\nContent-Disposition: form-data; filename="name=\\"q"; name=""\r\n\r\n'
        b"\r\n--a b--\r\n"
    )
    found = parts_of('multipart/form-data; boundary="a b"', body)
    assert found == [("x", b"1\r\n--\r\n"), ("", b"")]


@pytest.mark.long
def test_openai_s_client(speech: Reading, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    app = make_app(speech, LIMITS)
    transport = httpx.ASGITransport(app)

    async def ask() -> Any:
        async with openai.AsyncOpenAI(
            base_url="http://here/v1",
            api_key="none",
            http_client=httpx.AsyncClient(transport=transport),
        ) as client:
            (tmp_path / "a.wav").write_bytes(wav())
            return await client.audio.transcriptions.create(
                model="m",
                file=tmp_path / "a.wav",
                response_format="verbose_json",
                timestamp_granularities=["word"],
            )

    found = asyncio.run(ask())
    assert found.text == asked(speech, wav()).json()["text"]
    assert found.language in ("de", "en")
    assert found.duration == 1.3


def test_times_have_milliseconds() -> None:
    assert _clock(3661.007, ",") == "01:01:01,007"
    assert _clock(59.9996, ".") == "00:01:00.000"
