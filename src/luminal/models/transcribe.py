"""Speech to text with timestamps, window by window. Radford et al., arXiv 2212.04356."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import is_there
from luminal.loaders.shown import shown
from luminal.loaders.tokenizer import Tokenizer
from luminal.loaders.wav import read_wav, resampled
from luminal.models.alignment import UNSPACED, Word, token_positions, words_of
from luminal.models.attempts import ONCE, Attempt, Fallback, compression_of
from luminal.models.checkpoint import folder_processor, folder_tokenizer
from luminal.models.log_mel import LogMel
from luminal.models.sequence_to_sequence import SequenceToSequence
from luminal.models.whisper import STRIDE, Whisper
from luminal.search.options import CompilationMode

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Segment:
    """What is said from `start` to `end`, in seconds."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    words: tuple[Word, ...] = ()
    attempt: Attempt | None = field(default=None, compare=False)
    """How the text of its window was written."""

    def __str__(self) -> str:
        return f"[{clock(self.start)} -> {clock(self.end)}] {self.text.strip()}"


def clock(seconds: float) -> str:
    """Hours, minutes, seconds and hundredths."""
    minutes, rest = divmod(round(seconds * 100), 6000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 100:02}.{rest % 100:02}"


def samples_of(sound: str | Path | Array, rate: int) -> Array:
    """The samples of a WAVE file at this rate, or samples (count,) themselves, checked.

    Raises InputError for what is no sound, LoadError.
    """
    if isinstance(sound, str | Path):
        return resampled(*read_wav(Path(sound)), rate)
    if not isinstance(sound, np.ndarray):
        raise InputError(
            f"transcribe: sound is a {type(sound).__name__}; give a file or an array of NumPy"
        )
    if sound.ndim != 1 or sound.dtype.kind != "f":
        raise InputError(
            f"transcribe: sound is {sound.dtype} of shape {sound.shape}; it must be floats of "
            f"shape (count,), {rate} a second"
        )
    if not np.isfinite(sound).all():
        raise InputError("transcribe: sound holds NaN or infinities; all must be finite")
    return sound


@dataclass(frozen=True, slots=True)
class SpeechTokens:
    """Ids with a meaning, by the names of `generation_config.json`.

    `no_timestamps` precedes the timestamps, which are the last ids; `first_latest`: the greatest
    timestamp that a window may begin with. `suppressed` are never written, `suppressed_first` not
    at the beginning.
    """

    start: int
    end: int
    no_timestamps: int
    languages: dict[str, int]
    tasks: dict[str, int]
    first_latest: int | None
    suppressed: list[int]
    suppressed_first: list[int]
    aligned: list[tuple[int, int]] | None = None
    """Layers and heads that look at what is said; None where the file does not say."""

    @property
    def no_speech(self) -> int:
        """The token that says that nobody speaks, which is before the one without timestamps."""
        return self.no_timestamps - 1

    @classmethod
    def of_fields(cls, fields: Fields, count: int) -> SpeechTokens:
        """The special tokens that a file names, for a model of `count` tokens. Raises LoadError."""
        latest = fields.values.get("max_initial_timestamp_index")
        return cls(
            fields.token_id("decoder_start_token_id", count),
            fields.token_id("eos_token_id", count),
            fields.token_id("no_timestamps_token_id", count),
            _ids(fields.section("lang_to_id"), count),
            _ids(fields.section("task_to_id"), count),
            None if latest is None else fields.integer("max_initial_timestamp_index", least=0),
            _listed(fields, "suppress_tokens", count),
            _listed(fields, "begin_suppress_tokens", count),
            _heads(fields),
        )

    def scores(self, new: list[int], logits: Array, timestamps: bool) -> Array:
        """The logits of tokens after the `new` ones of a window; -inf for those that may not follow
        them.
        """
        scores = logits.astype(np.float32)
        scores[self.suppressed] = -np.inf
        if not new:
            scores[self.suppressed_first] = -np.inf
        if timestamps:
            self._pair_timestamps(new, scores)
        return scores

    def _pair_timestamps(self, new: list[int], scores: Array) -> None:
        """Timestamps begin and end every segment, grow, and win by their total probability."""
        first = self.no_timestamps + 1
        scores[self.no_timestamps] = -np.inf
        if not new:
            scores[:first] = -np.inf
            if self.first_latest is not None:
                scores[first + self.first_latest + 1 :] = -np.inf
        else:
            last = new[-1] >= first
            # A timestamp that begins a window or follows another one opens a segment, and text
            # comes after it. One that follows text closes a segment, and no text does.
            opens = last and (len(new) < 2 or new[-2] >= first)
            if opens:
                scores[first:] = -np.inf
            elif last:
                scores[: self.end] = -np.inf
            latest = max((token for token in new if token >= first), default=None)
            if latest is not None:  # the end of one segment may begin the next
                scores[first : latest + (not last or opens)] = -np.inf
        # As a sum over all timestamps: each alone may be unlikely where the moment is uncertain,
        # while a timestamp as such is the likeliest thing.
        greatest = scores.max()
        total = np.exp(scores[first:] - greatest, dtype=np.float64).sum()
        if total > np.exp(scores[:first].max() - greatest, dtype=np.float64):
            scores[:first] = -np.inf


def _ids(fields: Fields, count: int) -> dict[str, int]:
    return {key: fields.token_id(key, count) for key in fields.values}


def _listed(fields: Fields, key: str, count: int) -> list[int]:
    ids = fields.listed(key, int, [])
    if not all(0 <= token < count for token in ids):
        raise LoadError(f"{fields.path}: {key} is {shown(ids)}; the model has {count} tokens")
    return ids


def _heads(fields: Fields) -> list[tuple[int, int]] | None:
    if fields.values.get("alignment_heads") is None:
        return None
    heads = []
    for pair in fields.listed("alignment_heads", list):
        match pair:
            case [int(layer), int(head)] if layer >= 0 and head >= 0:
                heads.append((layer, head))
            case _:
                raise LoadError(
                    f"{fields.path}: alignment_heads has {shown(pair)}; each is a layer and a head"
                )
    return heads or None


class Hearing(NamedTuple):
    """How a sound is heard; see `Transcriber.transcribe`."""

    language: str | None
    task: str
    timestamps: bool
    words: bool
    fallback: Fallback


class Transcriber:
    """A loaded Whisper: the likeliest tokens of one window after the other."""

    def __init__(
        self,
        model: Whisper,
        tokenizer: Tokenizer,
        tokens: SpeechTokens,
        log_mel: LogMel,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.special, self.log_mel = tokens, log_mel
        self.frames = STRIDE * model.config.max_source_positions
        self.seconds = log_mel.hop / log_mel.rate  # of a frame
        shape = model.config.num_mel_bins, self.frames
        self.writer = SequenceToSequence(
            model, lambda graph: graph.tensor(shape, dtypes.float32, "x"), mode, backend
        )

    @classmethod
    def of_folder(cls, folder: Path, model: Whisper, mode: Any, backend: str) -> Transcriber:
        """With the tokenizer and settings of its folder. Raises LoadError."""
        count = model.config.vocab_size
        tokenizer = folder_tokenizer(folder, count)
        path = folder / "generation_config.json"
        if not is_there(path):
            raise LoadError(f"{folder}: no {path.name} in it")
        tokens = SpeechTokens.of_fields(Fields(read_json(path), path), count)
        decoder = model.config.decoder
        for layer, head in tokens.aligned or ():
            if layer >= decoder.num_hidden_layers or head >= decoder.num_attention_heads:
                raise LoadError(
                    f"{path}: alignment_heads has [{layer}, {head}]; the decoder has "
                    f"{decoder.num_hidden_layers} layers of {decoder.num_attention_heads} heads"
                )
        fields = folder_processor(folder, "feature_extractor")
        log_mel = LogMel(
            fields.integer("feature_size", 80),
            fields.integer("n_fft", 400),
            fields.integer("hop_length", 160),
            fields.integer("sampling_rate", 16000),
        )
        if log_mel.mels != model.config.num_mel_bins:
            raise LoadError(
                f"{fields.path}: feature_size is {log_mel.mels}, the model takes "
                f"{model.config.num_mel_bins}"
            )
        return cls(model, tokenizer, tokens, log_mel, mode, backend)

    def __repr__(self) -> str:
        config = self.model.config
        return (
            f"Transcriber({config.encoder.num_hidden_layers} and "
            f"{config.decoder.num_hidden_layers} layers of {config.encoder.hidden_size}, windows "
            f"of {self.frames * self.seconds:g} s; {self.writer.backend})"
        )

    def transcribe(
        self,
        sound: str | Path | Array,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool = True,
        words: bool = False,
        fallback: Fallback = ONCE,
    ) -> list[Segment]:
        """What is said in a WAVE file, or in samples (count,) at the model's rate.

        `language`: a code as "en", by default the likeliest one at the beginning. `task`:
        "translate" gives English. Without `timestamps` a window is one segment. `words`: segments
        have the times of their words. `fallback`: what is done with a text that is unlikely or
        repeats itself, by default nothing. Raises InputError, LoadError.
        """
        return list(self.stream(sound, language, task, timestamps, words, fallback))

    def stream(
        self,
        sound: str | Path | Array,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool = True,
        words: bool = False,
        fallback: Fallback = ONCE,
    ) -> Iterator[Segment]:
        """The segments as they come; see `transcribe`."""
        samples = samples_of(sound, self.log_mel.rate)
        self._check(language, task)
        return self._segments(samples, Hearing(language, task, timestamps, words, fallback))

    def _check(self, language: str | None, task: str) -> None:
        languages = {name.strip("<|>") for name in self.special.languages}
        if language is not None and language not in languages:
            raise InputError(
                f"transcribe: language {language!r} is not known; known are "
                f"{', '.join(sorted(languages)) or 'none: it is a model of one language'}"
            )
        tasks = self.special.tasks or {"transcribe": 0}
        if task not in tasks:
            raise InputError(f"transcribe: task {task!r} is not among {', '.join(tasks)}")

    def _segments(self, samples: Array, how: Hearing) -> Iterator[Segment]:
        window = self.frames * self.log_mel.hop
        features = self.log_mel(np.pad(samples, (0, max(0, window - len(samples)))))
        prefix: list[int] = []
        begin, end = 0, features.shape[1]
        while begin < end:
            part = features[:, begin : begin + self.frames]
            heard = part.shape[1]
            # The model was trained on windows of 30 s, of which shorter ones are filled with zeros.
            self.writer.encode(np.pad(part, ((0, 0), (0, self.frames - heard))))
            prefix = prefix or self._prefix(how.language, how.task, how.timestamps)
            best = self._written(prefix, how, begin)
            if how.fallback.is_silence(best):
                begin += heard
                continue
            pieces, unfinished = self._pieces(best.tokens, heard // STRIDE, how.timestamps)
            times = self._times(prefix, best.tokens, heard // STRIDE) if how.words else None
            at = 0
            for place, last, piece in pieces:
                segment = self._segment(begin, place, last, piece, best)
                yield (
                    segment
                    if times is None
                    else self._worded(
                        segment, begin, piece, [*times[at : at + len(piece) + 1]], prefix
                    )
                )
                at += len(piece)
            # A sentence that the window cuts is heard again, whole, at the start of the next
            # window.
            begin += STRIDE * pieces[-1][1] if unfinished else heard

    def _written(self, prefix: list[int], how: Hearing, begin: int) -> Attempt:
        """The text of a window, by the first temperature that is good enough, or the last."""
        silence = self._silence() if how.fallback.silence < 1 else 0.0
        for temperature in how.fallback.temperatures:
            attempt = self._attempt(prefix, how, temperature, silence, begin)
            if how.fallback.is_good(attempt):
                break
        return attempt

    def _silence(self) -> float:
        """The probability that nobody speaks."""
        logits = self.writer.logits(self.special.start, 0).astype(np.float64)
        share = np.exp(logits[self.special.no_speech] - np.logaddexp.reduce(logits))
        return float(share)

    def _attempt(
        self, prefix: list[int], how: Hearing, temperature: float, silence: float, begin: int
    ) -> Attempt:
        rng = np.random.default_rng((how.fallback.seed, begin, round(1000 * temperature)))
        logprobs: list[float] = []

        def choose(new: list[int], logits: Array) -> int:
            scores = self.special.scores(new, logits, how.timestamps)
            wide = scores.astype(np.float64)
            if temperature > 0:
                # The greatest of logits with Gumbel noise is a draw by their softmax.
                chosen = int((wide / temperature + rng.gumbel(size=wide.shape)).argmax())
            else:
                chosen = int(scores.argmax())
            logprobs.append(float(wide[chosen] - np.logaddexp.reduce(wide)))
            return chosen

        tokens = list(self.writer.tokens(prefix, choose, frozenset([self.special.end])))
        text = self.tokenizer.decode([t for t in tokens if t <= self.special.no_timestamps])
        mean = sum(logprobs) / max(1, len(logprobs))
        compression = compression_of(text)
        return Attempt(tokens, temperature, mean, compression, silence, self._language(prefix))

    def _language(self, prefix: Sequence[int]) -> str | None:
        """The code of the language that a window begins with."""
        codes = {token: name.strip("<|>") for name, token in self.special.languages.items()}
        return next((codes[token] for token in prefix if token in codes), None)

    def _times(self, prefix: list[int], tokens: list[int], heard: int) -> list[int]:
        """The position of each token of a window, and of its end."""
        heads = self.special.aligned
        if heads is None:
            # As Whisper's authors do where no heads are chosen: those of the upper half.
            config = self.model.config.decoder
            layers = range(config.num_hidden_layers // 2, config.num_hidden_layers)
            heads = [(n, head) for n in layers for head in range(config.num_attention_heads)]
        if not tokens:
            return [heard]
        weights = self.writer.looks([*prefix, *tokens], heads)[:, len(prefix) :, :heard]
        return [*token_positions(weights).tolist(), heard]

    def _worded(
        self,
        segment: Segment,
        begin: int,
        piece: list[int],
        positions: list[int],
        prefix: list[int],
    ) -> Segment:
        """The segment with its words, whose tokens lie at positions of the window."""
        times = [(begin + STRIDE * place) * self.seconds for place in positions]
        first = self.special.no_timestamps + 1
        texts = [n for n, token in enumerate(piece) if token < first]
        if not texts:
            return segment
        unspaced = self._language(prefix) in UNSPACED
        limits = [*(times[n] for n in texts), times[texts[-1] + 1]]
        words = words_of([piece[n] for n in texts], limits, self.tokenizer.decode, unspaced)
        return replace(segment, words=tuple(words))

    def _pieces(
        self, tokens: list[int], heard: int, timestamps: bool
    ) -> tuple[list[tuple[int, int, list[int]]], bool]:
        """Parts of a window's text, with the first and last of `heard` positions of each.

        Two timestamps side by side end one and begin the next. Then: is the last one left out, as
        the window ends within it?
        """
        first = self.special.no_timestamps + 1
        times = [token - first if token >= first else None for token in tokens]
        ends = [n for n in range(1, len(times)) if None not in times[n - 1 : n + 1]]
        if not timestamps or not ends:
            last = next((time for time in reversed(times) if timestamps and time), heard)
            return [(0, last, tokens)], False
        unfinished = times[-1] is None or times[-2] is not None
        if not unfinished:
            ends.append(len(tokens))
        parts = zip([0, *ends], ends, strict=False)
        return [(times[a] or 0, times[b - 1] or 0, tokens[a:b]) for a, b in parts], unfinished

    def _prefix(self, language: str | None, task: str, timestamps: bool) -> list[int]:
        """What every window's text begins with; the memory is that of the first window."""
        special = self.special
        prefix = [special.start]
        if special.languages:
            if language is None:
                ids = np.array(list(special.languages.values()))
                # The first token after the start is that of the language: one step of the decoder
                # tells it.
                prefix.append(int(ids[self.writer.logits(special.start, 0)[ids].argmax()]))
            else:
                prefix.append(special.languages[f"<|{language}|>"])
        if special.tasks:
            prefix.append(special.tasks[task])
        return prefix if timestamps else [*prefix, special.no_timestamps]

    def _segment(
        self, begin: int, first: int, last: int, tokens: Sequence[int], written: Attempt
    ) -> Segment:
        """The segment of positions `first` to `last` of the window that begins at frame `begin`."""
        text_tokens = tuple(token for token in tokens if token <= self.special.no_timestamps)
        start, end = ((begin + STRIDE * place) * self.seconds for place in (first, last))
        text = self.tokenizer.decode(text_tokens)
        return Segment(start, end, text, text_tokens, attempt=written)
