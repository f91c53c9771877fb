"""What `/v1/audio/transcriptions` asks for, and how it tells what is said.

https://platform.openai.com/docs/api-reference/audio has the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from luminal.loaders.shown import shown
from luminal.models.attempts import Fallback
from luminal.models.transcribe import Segment
from luminal.serve.errors import ApiError, refused
from luminal.serve.multipart import Part
from luminal.serve.reading import number_of
from luminal.serve.replies import to_json

FORMS = {
    "json": "application/json",
    "text": "text/plain; charset=utf-8",
    "verbose_json": "application/json",
    "srt": "text/plain; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
LISTED = "timestamp_granularities"
GRANULARITIES = "segment", "word"
IGNORED = frozenset(("user", "chunking_strategy"))


class Speech(NamedTuple):
    """A checked request. `fallback`: what is done with a text that is poor."""

    file: bytes
    form: str
    language: str | None
    words: bool
    fallback: Fallback


def speech_of(parts: Sequence[Part], name: str) -> Speech:
    """What a form asks of the model of this name. Raises ApiError."""
    fields: dict[str, bytes] = {}
    listed: list[str] = []
    for part in parts:
        if part.name in (LISTED, f"{LISTED}[]"):
            listed.append(_text(part.name, part.data))
        elif part.name in fields:
            raise refused(part.name, "it is there twice")
        else:
            fields[part.name] = part.data
    for field in ("file", "model"):
        if field not in fields:
            raise ApiError(400, f"{field}: it is missing", field, "missing")
    number_of(_text("model", fields.pop("model")), (name,))
    file = fields.pop("file")
    texts = {field: _text(field, data) for field, data in fields.items() if field not in IGNORED}
    form = texts.pop("response_format", "json")
    if form not in FORMS:
        raise refused("response_format", f"{shown(form)} is not one of {', '.join(FORMS)}")
    for granularity in listed:
        if granularity not in GRANULARITIES:
            raise refused(LISTED, f"{shown(granularity)} is not one of {', '.join(GRANULARITIES)}")
    if "word" in listed and form != "verbose_json":
        raise refused(LISTED, "words are told in verbose_json; ask for response_format that")
    language = texts.pop("language", "") or None
    fallback = _fallback(texts.pop("temperature", "0"))
    if texts.pop("stream", "false").lower() not in ("false", "0"):
        raise refused("stream", "it is not supported; leave it out")
    if texts.pop("prompt", ""):
        raise refused("prompt", "it is not supported; leave it out")
    for field in texts:
        name = shown(field)
        raise ApiError(400, f"{name}: there is no such field here", name, "unknown_field")
    return Speech(file, form, language, "word" in listed, fallback)


def _text(field: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise refused(field, "it is no UTF-8") from None


def _fallback(text: str) -> Fallback:
    """Temperature 0 tries higher ones where it must; any other is the only one."""
    try:
        temperature = float(text)
    except ValueError:
        temperature = -1.0
    if not 0 <= temperature <= 1:
        raise refused("temperature", f"{shown(text)} is no number of 0 .. 1")
    return Fallback((temperature,)) if temperature else Fallback()


def told(asked: Speech, segments: Sequence[Segment], task: str, seconds: float) -> bytes:
    """The body of an answer, in the form that was asked for."""
    text = "".join(segment.text for segment in segments).strip()
    match asked.form:
        case "text":
            return f"{text}\n".encode()
        case "srt":
            lines = [
                f"{number}\n{_clock(segment.start, ',')} --> {_clock(segment.end, ',')}\n"
                f"{_line(segment)}\n\n"
                for number, segment in enumerate(segments, 1)
            ]
            return "".join(lines).encode()
        case "vtt":
            lines = [
                f"{_clock(segment.start, '.')} --> {_clock(segment.end, '.')}\n"
                f"{_line(segment).replace('-->', '->')}\n\n"
                for segment in segments
            ]
            return ("WEBVTT\n\n" + "".join(lines)).encode()
    about: dict[str, Any] = {"text": text, "usage": {"type": "duration", "seconds": round(seconds)}}
    if asked.form == "json":
        return to_json(about)
    attempts = [segment.attempt for segment in segments if segment.attempt is not None]
    language = next((attempt.language for attempt in attempts), None)
    about |= {"task": task, "language": asked.language or language, "duration": seconds}
    about["segments"] = [_segment(number, segment) for number, segment in enumerate(segments)]
    if asked.words:
        about["words"] = [
            {"word": word.text.strip(), "start": word.start, "end": word.end}
            for segment in segments
            for word in segment.words
        ]
    return to_json(about)


def _line(segment: Segment) -> str:
    """The text as one line: an empty one would end it early."""
    return " ".join(segment.text.split())


def _clock(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02}:{minute:02}:{second:02}{point}{thousandths:03}"


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": number,
        "seek": 0,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": [*segment.tokens],
    }
    if segment.attempt is not None:
        entry |= {
            "temperature": segment.attempt.temperature,
            "avg_logprob": segment.attempt.logprob,
            "compression_ratio": segment.attempt.compression,
            "no_speech_prob": segment.attempt.silence,
        }
    return entry
