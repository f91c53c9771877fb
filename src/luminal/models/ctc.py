"""Speech to text by one network without a decoder: the likeliest output of every frame.

Graves et al., Connectionist temporal classification, 2006: a frame says a character, or a piece of
text, or nothing, and what frames in a row repeat is said once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.loaders.shown import shown
from luminal.models.ctc_vocabulary import Said, Vocabulary
from luminal.models.log_mel import StandardizedLogMel
from luminal.models.transcribe import Segment, samples_of
from luminal.nn import Module
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

Array = np.ndarray[Any, Any]
MOST_SAMPLES = 1 << 24  # 17 minutes at 16 kHz: attention looks at all pairs of frames
_LEAST_POWER = 1e-7  # is added to that of a sound before it is scaled


class Preparation(Protocol):
    """How a sound becomes what a model takes."""

    @property
    def rate(self) -> int:
        """How many samples a second."""

    @property
    def hop(self) -> int:
        """Samples from one frame of logits to the next."""

    @property
    def shortest(self) -> int:
        """The samples without which there is no frame."""

    def input(self, graph: Graph) -> Tensor:
        """A model's input in a graph, of one sound of any length."""

    def __call__(self, samples: Array) -> Array:
        """The values of that input, of samples (count,), without the batch."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples themselves; `normalize`: of mean 0 and variance 1."""

    hop: int
    shortest: int
    rate: int = 16000
    normalize: bool = True

    def input(self, graph: Graph) -> Tensor:
        """A Tensor (1, count) of float32."""
        count = graph.dim("s", self.shortest, MOST_SAMPLES)
        return graph.tensor((1, count), dtypes.float32, "sound")

    def __call__(self, samples: Array) -> Array:
        """Samples (count,) in float32."""
        samples = samples.astype(np.float32)
        if not self.normalize:
            return samples
        centred: Array = (samples - samples.mean()) / np.sqrt(samples.var() + _LEAST_POWER)
        return centred


@dataclass(frozen=True, slots=True)
class Frames:
    """Log-mel frames, of which `group` make one frame of logits."""

    log_mel: StandardizedLogMel
    group: int

    @property
    def rate(self) -> int:
        """How many samples a second."""
        return self.log_mel.rate

    @property
    def hop(self) -> int:
        """Samples from one frame of logits to the next."""
        return self.log_mel.hop * self.group

    @property
    def shortest(self) -> int:
        """Two frames: one alone has no variance."""
        return 2 * self.log_mel.hop

    def input(self, graph: Graph) -> Tensor:
        """A Tensor (1, frames, mels) of float32."""
        count = graph.dim("f", 2, MOST_SAMPLES // self.log_mel.hop)
        return graph.tensor((1, count, self.log_mel.mels), dtypes.float32, "sound")

    def __call__(self, samples: Array) -> Array:
        """(frames, mels) in float32."""
        return self.log_mel(samples)


class CtcTranscriber:
    """A loaded wav2vec 2.0, HuBERT or Parakeet; one program serves sounds of all lengths.

    `model` takes what `prepared` makes of a sound, in a batch of one, to logits of `vocabulary`;
    `about` is what is told of it.
    """

    def __init__(
        self,
        model: Module,
        prepared: Preparation,
        vocabulary: Vocabulary,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
        about: str = "",
    ) -> None:
        self.model, self.prepared, self.vocabulary = model, prepared, vocabulary
        self.rate = prepared.rate
        self.mode, self.backend = mode, chosen_device(backend)
        self._about = about
        self._program: Executable | None = None

    def __repr__(self) -> str:
        return f"CtcTranscriber({self._about}; {self.backend})"

    def compile(self) -> Executable:
        """The program, compiled at the first call: a sound to logits (frames, outputs)."""
        if self._program is None:
            graph = Graph("sound")
            self.model(self.prepared.input(graph)).squeeze(0).output("logits")
            self._program = compile(graph, backend=self.backend, mode=self.mode)
        return self._program

    def logits(self, sound: str | Path | Array) -> Array:
        """The logits of a WAVE file, or of samples (count,) at the rate: (frames, outputs).

        Raises InputError for a sound that is too short or too long, LoadError.
        """
        samples = samples_of(sound, self.rate)
        shortest = self.prepared.shortest
        if not shortest <= len(samples) <= MOST_SAMPLES:
            raise InputError(
                f"transcribe: the sound has {len(samples)} samples at {self.rate} a second; it "
                f"must have {shortest} to {MOST_SAMPLES}: "
                + ("add silence" if len(samples) < shortest else "cut it into parts")
            )
        return np.asarray(self.compile()(sound=self.prepared(samples)[None])["logits"])

    def transcribe(self, sound: str | Path | Array, parts: str = "words") -> list[Segment]:
        """What is said in a WAVE file, or in samples (count,) at the model's rate, with times.

        `parts`: "words", "text", which is all of it, or "characters" where the model writes these
        (the gaps between words are among them). Raises InputError, LoadError.
        """
        possible = self.vocabulary.parts
        if parts not in possible:
            raise InputError(
                f"transcribe: parts is {shown(parts)}; it is one of "
                f"{', '.join(map(repr, possible))}"
            )
        said = self.vocabulary.said(self.logits(sound).argmax(-1).tolist())
        if parts != "text":
            return [self._segment(part) for part in self.vocabulary.divided(said, parts)]
        whole = [self._segment(said)] if said else []
        return [replace(segment, text=segment.text.strip()) for segment in whole]

    def _segment(self, said: Sequence[Said]) -> Segment:
        seconds = self.prepared.hop / self.rate
        tokens = tuple(spoken.token for spoken in said)
        text = self.vocabulary.text(said)
        return Segment(said[0].start * seconds, said[-1].end * seconds, text, tokens)
