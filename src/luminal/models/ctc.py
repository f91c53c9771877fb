"""Speech to text by one network without a decoder: the likeliest character of every frame.

Graves et al., Connectionist temporal classification, 2006: a frame says a character or nothing, and
what frames in a row repeat is said once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.models.architectures.settings import refuse
from luminal.models.checkpoint import folder_processor
from luminal.models.transcribe import Segment, samples_of
from luminal.models.wav2vec2 import Wav2Vec2
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

Array = np.ndarray[Any, Any]
MOST_SAMPLES = 1 << 24  # 17 minutes at 16 kHz: attention looks at all pairs of frames
_LEAST_POWER = 1e-7  # is added to that of a sound before it is scaled
PARTS = ("words", "characters", "text")


class Characters(NamedTuple):
    """What outputs of the model say: a text for each id, one of which is `blank`, nothing said.

    `gap` stands between words; `lower`: texts are written in lower case.
    """

    texts: dict[int, str]
    unknown: str
    blank: str
    gap: str
    lower: bool = False

    @classmethod
    def of_folder(cls, folder: Path) -> Characters:
        """By `vocab.json`, `added_tokens.json` and `tokenizer_config.json`. Raises LoadError."""
        path = folder / "vocab.json"
        if not is_there(path):
            raise LoadError(
                f"{folder}: no {path.name} in it; save_pretrained of the model's tokenizer of "
                "transformers writes one"
            )
        settings_path = folder / "tokenizer_config.json"
        values = read_json(settings_path) if is_there(settings_path) else {}
        settings = Fields(values, settings_path)
        if settings.values.get("target_lang") is not None:
            raise LoadError(
                f"{settings_path}: target_lang is {shown(settings.values['target_lang'])}; a "
                "vocabulary of several languages is not supported"
            )
        refuse(settings, replace_word_delimiter_char=" ")
        ids = read_json(path)
        more = folder / "added_tokens.json"
        if is_there(more):
            ids |= read_json(more)
        for text, number in ids.items():
            if type(number) is not int or number < 0:
                raise LoadError(f"{path}: {shown(text)} is {shown(number)}; it must be an id")
        return cls(
            {number: text for text, number in ids.items()},
            _content(settings, "unk_token", "<unk>"),
            _content(settings, "pad_token", "<pad>"),
            _content(settings, "word_delimiter_token", "|"),
            settings.flag("do_lower_case", False),
        )


def _content(settings: Fields, key: str, default: str) -> str:
    """A token's text; old files have an object with settings around it."""
    if isinstance(settings.values.get(key), dict):
        return settings.section(key).text("content", default)
    return settings.text(key, default)


class _Said(NamedTuple):
    """A character, its id, and its frames from `start` to before `end`."""

    text: str
    token: int
    start: int
    end: int


class CtcTranscriber:
    """A loaded wav2vec 2.0 or HuBERT; one program serves sounds of all lengths."""

    def __init__(
        self,
        model: Wav2Vec2,
        characters: Characters,
        rate: int = 16000,
        normalize: bool = True,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.characters = model, characters
        self.rate, self.normalize = rate, normalize
        self.mode, self.backend = mode, chosen_device(backend)
        self._program: Executable | None = None

    @classmethod
    def of_folder(cls, folder: Path, model: Wav2Vec2, mode: Any, backend: str) -> CtcTranscriber:
        """With the characters and the preparation of its folder. Raises LoadError."""
        fields = folder_processor(folder, "feature_extractor")
        characters = Characters.of_folder(folder)
        if characters.blank not in characters.texts.values():
            path = folder / "vocab.json"
            raise LoadError(f"{path}: it lacks {shown(characters.blank)}, which stands for silence")
        return cls(
            model,
            characters,
            fields.integer("sampling_rate", 16000),
            fields.flag("do_normalize", True),
            mode,
            backend,
        )

    def __repr__(self) -> str:
        layers = self.model.config.layers
        return (
            f"CtcTranscriber({layers.num_hidden_layers} layers of {layers.hidden_size}, "
            f"{self.model.config.outputs} characters; {self.backend})"
        )

    def compile(self) -> Executable:
        """The program, compiled at the first call: samples (s,) to logits (frames, characters)."""
        if self._program is None:
            graph = Graph("sound")
            count = graph.dim("s", self.model.config.shortest, MOST_SAMPLES)
            logits = self.model(graph.tensor((1, count), dtypes.float32, "sounds"))
            logits.squeeze(0).output("logits")
            self._program = compile(graph, backend=self.backend, mode=self.mode)
        return self._program

    def logits(self, sound: str | Path | Array) -> Array:
        """The logits of a WAVE file, or of samples (count,) at the rate: (frames, characters).

        Raises InputError for a sound that is too short or too long, LoadError.
        """
        samples = samples_of(sound, self.rate)
        shortest = self.model.config.shortest
        if not shortest <= len(samples) <= MOST_SAMPLES:
            raise InputError(
                f"transcribe: the sound has {len(samples)} samples at {self.rate} a second; it "
                f"must have {shortest} to {MOST_SAMPLES}: "
                + ("add silence" if len(samples) < shortest else "cut it into parts")
            )
        return np.asarray(self.compile()(sounds=self.prepared(samples)[None])["logits"])

    def prepared(self, samples: Array) -> Array:
        """Samples (count,) in float32, of mean 0 and variance 1 where the model was trained so."""
        samples = samples.astype(np.float32)
        if not self.normalize:
            return samples
        centred: Array = (samples - samples.mean()) / np.sqrt(samples.var() + _LEAST_POWER)
        return centred

    def transcribe(self, sound: str | Path | Array, parts: str = "words") -> list[Segment]:
        """What is said in a WAVE file, or in samples (count,) at the model's rate, with times.

        `parts`: "words", "characters" (the gaps between words are among them), or "text", which is
        all of it. Raises InputError, LoadError.
        """
        if parts not in PARTS:
            raise InputError(
                f"transcribe: parts is {shown(parts)}; it is one of {', '.join(map(repr, PARTS))}"
            )
        said = self._said(self.logits(sound).argmax(-1))
        if parts == "characters":
            return [self._segment([character]) for character in said]
        if parts == "words":
            groups = groupby(said, lambda character: character.text == self.characters.gap)
            return [self._segment(list(word)) for is_gap, word in groups if not is_gap]
        whole = [self._segment(said)] if said else []
        return [replace(segment, text=segment.text.strip()) for segment in whole]

    def _said(self, ids: Array) -> list[_Said]:
        """The characters in the likeliest ids of all frames."""
        said, start = [], 0
        texts, unknown, blank, _, _ = self.characters
        # By texts and not by ids: those that have none of their own are one unknown character.
        for text, run in groupby(ids.tolist(), lambda token: texts.get(token, unknown)):
            tokens = list(run)
            end = start + len(tokens)
            if text != blank:
                said.append(_Said(text, tokens[0], start, end))
            start = end
        return said

    def _segment(self, said: list[_Said]) -> Segment:
        texts = (
            " " if character.text == self.characters.gap else character.text for character in said
        )
        text = "".join(texts)
        if self.characters.lower:
            text = text.lower()
        seconds = self.model.config.hop / self.rate
        tokens = tuple(character.token for character in said)
        return Segment(said[0].start * seconds, said[-1].end * seconds, text, tokens)
