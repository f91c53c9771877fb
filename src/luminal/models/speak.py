"""Text to speech: what a text is to a voice, how long each letter lasts, and the samples."""

from __future__ import annotations

import re
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.base.generator import checked_seed
from luminal.base.number_kinds import is_number
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.models.architectures.settings import refuse
from luminal.models.vits import Vits
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

Array = np.ndarray[Any, Any]
MOST_TOKENS = 8192  # attention looks at all pairs
MOST_FRAMES = 1 << 14  # four minutes of 256 samples at 16 kHz, and some 2 GB while they are made
RATES = 0.25, 4.0
"""The least and the greatest speed, those of OpenAI's API."""


class SpokenLetters(NamedTuple):
    """Ids of letters; other letters are not said. `gaps`: id 0 stands between all and at both
    ends.

    `known`: texts that keep their case. `language`: a code of ISO 639-3. `is_latin`: other letters
    must have been written in Latin ones before.
    """

    ids: dict[str, int]
    known: tuple[str, ...]
    gaps: bool = True
    language: str = ""
    is_latin: bool = False

    @classmethod
    def of_folder(cls, folder: Path, count: int) -> SpokenLetters:
        """By `vocab.json` and `tokenizer_config.json`, for a model of `count` ids. Raises
        LoadError.
        """
        path = folder / "vocab.json"
        if not is_there(path):
            raise LoadError(
                f"{folder}: no {path.name} in it; save_pretrained of the model's tokenizer of "
                "transformers writes one"
            )
        ids = read_json(path)
        for text, number in ids.items():
            if type(number) is not int or not 0 <= number < count:
                raise LoadError(
                    f"{path}: {shown(text)} is {shown(number)}; it must be an id below {count}"
                )
        settings_path = folder / "tokenizer_config.json"
        values = read_json(settings_path) if is_there(settings_path) else {}
        settings = Fields(values, settings_path)
        if settings.flag("phonemize", True):
            raise LoadError(
                f"{settings_path}: phonemize is true: the model reads phonemes of espeak, which "
                "are not supported; models that read letters are, as those of MMS"
            )
        refuse(settings, normalize=True)
        added = settings.section("added_tokens_decoder").values.values()
        more = [token.get("content") for token in added if isinstance(token, dict)]
        return cls(
            ids,
            tuple(dict.fromkeys([*ids, *(text for text in more if isinstance(text, str))])),
            settings.flag("add_blank", True),
            settings.text("language", ""),
            settings.flag("is_uroman", False),
        )

    def encode(self, text: str) -> list[int]:
        """The ids of a text, in small letters where it must be. Raises InputError for a text of
        which nothing can be said.
        """
        spelled = "|".join(map(re.escape, self.known))
        text = re.sub(
            f"({spelled})|.", lambda m: m[0] if m[1] else m[0].lower(), text, flags=re.DOTALL
        )
        if self.language == "ron":
            text = text.replace("ț", "ţ")
        if self.is_latin and not text.isascii():
            raise InputError(
                f"speak: {shown(text)} has letters that are not Latin; the model reads texts that "
                "uroman (github.com/isi-nlp/uroman) has written in those"
            )
        letters = "".join(letter for letter in text if letter in self.ids).strip()
        if not letters:
            raise InputError(f"speak: {shown(text)} has no letters that the model knows")
        ids = [self.ids[letter] for letter in letters]
        if not self.gaps:
            return ids
        spaced = [0] * (2 * len(ids) + 1)
        spaced[1::2] = ids
        return spaced


@dataclass(frozen=True, slots=True)
class Voice:
    """`rate`: samples a second. `speed`: how fast it speaks. `noise`, `duration_noise`: how much of
    what is said, and of how long, is drawn.
    """

    rate: int = 16000
    speed: float = 1.0
    noise: float = 0.667
    duration_noise: float = 0.8


class SpeechSynthesizer:
    """A loaded VITS; two programs serve texts of all lengths: one reads, one speaks."""

    def __init__(
        self,
        model: Vits,
        letters: SpokenLetters,
        voice: Voice,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.letters, self.voice = model, letters, voice
        self.rate = voice.rate
        self.mode, self.backend = mode, chosen_device(backend)
        self._programs: tuple[Executable, Executable] | None = None

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"SpeechSynthesizer({config.num_hidden_layers} layers of {config.hidden_size}, "
            f"{max(1, config.speakers)} voices, {self.rate} samples a second; {self.backend})"
        )

    def compile(self) -> tuple[Executable, Executable]:
        """The programs, compiled at the first call: ids (1, s) and noise (1, 2, s) to what is read;
        latents (1, frames, flow_size) to samples.
        """
        if self._programs is None:
            graph = Graph("read")
            count = graph.dim("s", 1, MOST_TOKENS)
            ids = graph.tensor((1, count), dtypes.int32, "ids")
            noise = graph.tensor((1, 2, count), dtypes.float32, "noise")
            read = self.model.read_text(ids, noise, None, self._speaker(graph))
            for name, tensor in read._asdict().items():
                tensor.squeeze(0).output(name)
            reader = compile(graph, backend=self.backend, mode=self.mode)
            graph = Graph("speak")
            shape = 1, graph.dim("f", 1, MOST_FRAMES), self.model.config.flow.size
            latents = graph.tensor(shape, dtypes.float32, "latents")
            self.model.speak(latents, None, self._speaker(graph)).squeeze(0).output("samples")
            speaker = compile(graph, backend=self.backend, mode=self.mode)
            self._programs = reader, speaker
        return self._programs

    def _speaker(self, graph: Graph) -> Any:
        """The input that chooses the voice, where there are several."""
        return graph.tensor((1,), dtypes.int32, "speaker") if self.model.config.speakers else None

    def speak(
        self,
        text: str,
        speaker: int = 0,
        speed: float = 1.0,
        seed: int = 0,
        voice: Voice | None = None,
    ) -> Array:
        """Samples (count,) of a text, float32 from -1 to 1, `rate` a second.

        `speaker`: the number of a voice. `speed`: 2 is twice as fast, of 0.25 to 4. The same `seed`
        says a text the same way each time. `voice`: other noise than the model's own. Raises
        InputError.
        """
        voice = self.voice if voice is None else voice
        chosen = self._checked(text, speaker, speed)
        rng = np.random.default_rng(checked_seed("speak", seed))
        ids = np.array([self._ids(text)], np.int32)
        reader, writer = self.compile()
        noise = rng.standard_normal((1, 2, ids.shape[1]), np.float32) * np.float32(
            voice.duration_noise
        )
        read = {
            name: np.asarray(array)
            for name, array in reader(ids=ids, noise=noise, **chosen).items()
        }
        frames = frames_of(read["log_durations"], voice.speed * speed)
        means, logs = (np.repeat(read[k], frames, 0) for k in ("means", "log_deviations"))
        latents = means
        if voice.noise:
            drawn = rng.standard_normal(means.shape, np.float32)
            latents = means + drawn * np.exp(logs) * np.float32(voice.noise)
        return np.asarray(writer(latents=latents[None], **chosen)["samples"])

    def _checked(self, text: str, speaker: int, speed: float) -> dict[str, Any]:
        """The speaker as an input of the programs."""
        if not isinstance(text, str):
            raise InputError(f"speak: {shown(text)} is no text; give a string")
        least, most = RATES
        if not is_number(speed, Real) or not least <= speed <= most:
            raise InputError(f"speak: speed is {speed}; it is from {least:g} to {most:g}")
        count = max(1, self.model.config.speakers)
        if not is_number(speaker, Integral) or not 0 <= speaker < count:
            raise InputError(f"speak: speaker is {speaker}; the model has {count}, from 0 on")
        return {"speaker": np.array([speaker], np.int32)} if self.model.config.speakers else {}

    def _ids(self, text: str) -> list[int]:
        ids = self.letters.encode(text)
        if len(ids) > MOST_TOKENS:
            raise InputError(
                f"speak: the text has {len(ids)} tokens, at most {MOST_TOKENS}; give it in parts"
            )
        return ids


def frames_of(log_durations: Array, speed: float) -> Array:
    """How many frames each token lasts, whole ones, (s,) int64.

    Raises InputError where they are more than a run may have.
    """
    with np.errstate(over="ignore"):
        frames = np.ceil(np.exp(log_durations) * np.float32(1 / speed))
    if not frames.sum() <= MOST_FRAMES:
        raise InputError(
            f"speak: the text would last {frames.sum():g} frames, at most {MOST_FRAMES}; give it "
            "in parts, or speak faster"
        )
    return frames.astype(np.int64)
