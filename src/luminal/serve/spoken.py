"""What `/v1/audio/speech` asks for, and the sound that answers it.

https://platform.openai.com/docs/api-reference/audio/createSpeech has the fields.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from luminal.frontend.handle import Array
from luminal.loaders.shown import shown
from luminal.loaders.wav import pcm_bytes, resampled, wav_bytes
from luminal.models.speak import RATES, SpeechSynthesizer
from luminal.serve.errors import refused
from luminal.serve.fields import Fields

FORMS = {"wav": "audio/wav", "pcm": "audio/pcm"}
PCM_RATE = 24000
"""Samples a second of `pcm`, which does not say so itself: OpenAI's."""

MOST_LETTERS = 4096  # as OpenAI's


class Spoken(NamedTuple):
    """A checked request. `speaker`: the number of a voice."""

    text: str
    form: str
    speed: float
    speaker: int
    seed: int


def spoken_of(body: Fields, model: SpeechSynthesizer) -> Spoken:
    """What a request asks of a model. Raises ApiError."""
    body.needed("input")
    text = body.text("input") or ""
    if len(text) > MOST_LETTERS:
        raise refused("input", f"{len(text)} letters; at most {MOST_LETTERS}: send it in parts")
    form = body.choice("response_format", FORMS, "wav")
    body.choice("stream_format", ("audio",), "audio")
    if body.text("instructions"):
        raise refused("instructions", "they are not supported; leave them out")
    seed = body.integer("seed", -(2**63), 2**63 - 1)
    asked = Spoken(
        text,
        form,
        body.number("speed", *RATES, 1.0),
        _speaker(body, max(1, model.model.config.speakers)),
        secrets.randbits(63) if seed is None else seed % 2**63,
    )
    body.end()
    return asked


def _speaker(body: Fields, count: int) -> int:
    """The number of the voice; a model of one voice has that under each name."""
    value = body.get("voice")
    if isinstance(value, dict):
        voice = body.object("voice")
        assert voice is not None
        name = voice.text("id")
        voice.end()
    else:
        name = body.text("voice")
    if name is None or count == 1:
        return 0
    if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < count):
        raise refused("voice", f"{shown(name)} is not one of '0' .. '{count - 1}'")
    return int(name)


def sound_of(asked: Spoken, samples: Array, rate: int) -> bytes:
    """The body of an answer, in the form that was asked for."""
    if asked.form == "pcm":
        return pcm_bytes(resampled(samples, rate, PCM_RATE))
    return wav_bytes(samples, rate)
