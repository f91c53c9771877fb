"""A server of a model that continues no text: vectors, an order of documents, labels, speech both
ways.

The model runs in a thread of its own, a few texts at a time: a request of many lets others in
between, so none waits for longer than one run.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.loaders.shown import shown
from luminal.loaders.wav import resampled, wav_of
from luminal.models.alignment import Word
from luminal.models.ctc import CtcTranscriber
from luminal.models.embed import TextEncoder
from luminal.models.image_model import likeliest
from luminal.models.speak import SpeechSynthesizer
from luminal.models.text_reader import TextClassifier
from luminal.models.transcribe import Segment, Transcriber
from luminal.serve.application import Application, json_answer
from luminal.serve.errors import ApiError, refused
from luminal.serve.fields import Fields, object_of, parse
from luminal.serve.metrics import Metrics
from luminal.serve.multipart import parts_of
from luminal.serve.orders import FILES, TEXTS, Limits
from luminal.serve.pools import in_pool
from luminal.serve.reading import number_of
from luminal.serve.speech import FORMS, Speech, speech_of, told
from luminal.serve.spoken import FORMS as SOUND_FORMS
from luminal.serve.spoken import sound_of, spoken_of
from luminal.serve.vectors import listed

AT_ONCE = 8  # texts of a run: it lets other requests in after so many
T = TypeVar("T")
Readable = TextEncoder | TextClassifier | Transcriber | CtcTranscriber | SpeechSynthesizer
MOST_SECONDS = 4 * 3600.0  # of a sound: a file of a few MiB may say that it lasts for years


@dataclass(frozen=True, slots=True)
class Reading:
    """A model that reads texts, and its name."""

    name: str
    model: Readable

    @property
    def body(self) -> int:
        """The most bytes of a request, where nobody says: sound takes more than texts."""
        is_sound = isinstance(self.model, Transcriber | CtcTranscriber)
        return FILES if is_sound else TEXTS


class Ranking(NamedTuple):
    """What `/v1/rerank` asks for."""

    query: str
    documents: list[str]
    top: int
    with_documents: bool


class ReadingApp(Application):
    """Handlers of the endpoints that a model has."""

    def __init__(
        self, served: Reading, limits: Limits, keys: Sequence[str], origins: Sequence[str]
    ) -> None:
        self.served = served
        self._texts = 0  # that are read, or wait for it
        self._model = ThreadPoolExecutor(1, "luminal-model")
        self._readers = ThreadPoolExecutor(1, "luminal-reader")
        posts: dict[str, Callable[[Request], Any]] = {}
        if isinstance(served.model, TextEncoder):
            posts = {"/v1/embeddings": self.embeddings}
        elif isinstance(served.model, Transcriber):
            posts = {
                "/v1/audio/transcriptions": partial(self.speech, task="transcribe"),
                "/v1/audio/translations": partial(self.speech, task="translate"),
            }
        elif isinstance(served.model, CtcTranscriber):
            posts = {"/v1/audio/transcriptions": partial(self.speech, task="transcribe")}
        elif isinstance(served.model, SpeechSynthesizer):
            posts = {"/v1/audio/speech": self.spoken}
        elif len(served.model.labels) == 1:
            posts = dict.fromkeys(("/v1/rerank", "/rerank", "/v2/rerank"), self.rerank)
            posts["/classify"] = self.classify
        else:
            posts = {"/classify": self.classify}
        self._paths = [*posts]
        routes = [Route(path, handler, methods=["POST"]) for path, handler in posts.items()]
        super().__init__((served.name,), limits, Metrics(), routes, keys, origins)

    async def page(self, _: Request) -> Response:
        """Answers with what the server is for."""
        kind = type(self.served.model).__name__
        text = f"{self.served.name}, a {kind}: POST to {', '.join(self._paths)}\n"
        return Response(text, media_type="text/plain; charset=utf-8")

    # --- endpoints

    async def embeddings(self, request: Request) -> Response:
        """Answers a POST to /v1/embeddings."""
        return await self._answered(request, self._embedded)

    async def rerank(self, request: Request) -> Response:
        """Answers a POST to /v1/rerank, in the form that clients of Jina, Cohere and vLLM read."""
        return await self._answered(request, self._ranked)

    async def classify(self, request: Request) -> Response:
        """Answers a POST to /classify, in vLLM's form."""
        return await self._answered(request, self._classified)

    async def spoken(self, request: Request) -> Response:
        """Answers a POST to /v1/audio/speech."""
        return await self._answered(request, self._sound)

    async def speech(self, request: Request, task: str) -> Response:
        """Answers a POST to /v1/audio/transcriptions, or translations."""
        with self._clock():
            async with asyncio.timeout(self.limits.seconds):
                body = await self.body(request)
                kind = request.headers.get("content-type", "")
                try:
                    asked, sound = await in_pool(self._readers, partial(self._heard, kind, body))
                    segments = await self._said(asked, sound, task)
                except (InputError, LoadError) as error:
                    raise ApiError(400, str(error), code="invalid_value") from None
        seconds = len(sound) / self._rate
        content = told(asked, segments, task, seconds)
        return Response(content, media_type=FORMS[asked.form])

    @property
    def _rate(self) -> int:
        """Samples of sound a second that the model takes."""
        model = self.served.model
        assert isinstance(model, Transcriber | CtcTranscriber)
        return model.log_mel.rate if isinstance(model, Transcriber) else model.rate

    def _heard(self, kind: str, body: bytes) -> tuple[Speech, Array]:
        """What is asked, and the samples of the sound."""
        asked = speech_of(parts_of(kind, body), self.served.name)
        samples, rate = wav_of(asked.file, Path("file"), _not_whole)
        if len(samples) > MOST_SECONDS * rate:
            raise refused(
                "file", f"{len(samples) / rate:g} s of sound; at most {MOST_SECONDS:g}: cut it"
            )
        if not len(samples):
            raise refused("file", "it has no samples; send some sound")
        return asked, resampled(samples, rate, self._rate)

    async def _said(self, asked: Speech, sound: Array, task: str) -> list[Segment]:
        """The segments, each of whose windows lets other requests in."""
        if self._texts >= self.limits.queue:
            raise ApiError(429, "The server is busy; try again later", code="rate_limit_exceeded")
        model = self.served.model
        self._texts += 1
        try:
            if isinstance(model, CtcTranscriber):
                if asked.language is not None:
                    raise refused("language", "the model has one language; leave it out")
                return await in_pool(self._model, partial(_by_ctc, model, sound, asked.words))
            assert isinstance(model, Transcriber)
            stream = model.stream(
                sound, asked.language, task, words=asked.words, fallback=asked.fallback
            )
            segments = []
            while (segment := await in_pool(self._model, lambda: next(stream, None))) is not None:
                segments.append(segment)
            return segments
        finally:
            self._texts -= 1

    async def _answered(self, request: Request, answer: Callable[[Fields], Any]) -> Response:
        with self._clock():
            async with asyncio.timeout(self.limits.seconds):
                body = await self.body(request)
                fields = await in_pool(self._readers, partial(self._parsed, body))
                try:
                    content = await answer(fields)
                    return content if isinstance(content, Response) else json_answer(content)
                except InputError as error:
                    raise ApiError(400, str(error), code="invalid_value") from None

    def _parsed(self, body: bytes) -> Fields:
        try:
            fields = parse(body)
        except RecursionError:
            raise ApiError(400, "body: lists or objects nest too deeply") from None
        number_of(fields.needed("model"), self.names)
        fields.ignore("model", "user")
        return fields

    async def _embedded(self, body: Fields) -> dict[str, Any]:
        texts = _texts(body, "input", self.limits.vectors)
        form = body.choice("encoding_format", ("float", "base64"), "float")
        if body.get("dimensions") is not None:
            raise refused("dimensions", "it is not supported; leave it out")
        body.end()
        model = self.served.model
        assert isinstance(model, TextEncoder)
        tokens = await in_pool(self._readers, lambda: [model.tokens(text) for text in texts])
        vectors = await self._read(tokens, model.vectors)
        count = sum(map(len, tokens))
        self.metrics.prompt_tokens.inc(count)
        return listed(vectors, form, self.served.name, count)

    async def _ranked(self, body: Fields) -> dict[str, Any]:
        asked = _ranking(body, self.limits.vectors)
        pairs = [(asked.query, document) for document in asked.documents]
        logits, count = await self._logits(pairs, "query")
        model = self.served.model
        assert isinstance(model, TextClassifier)
        results = []
        for best in model.ranked([row[0] for row in logits])[: asked.top]:
            result: dict[str, Any] = {"index": best.index, "relevance_score": best.score}
            if asked.with_documents:
                result["document"] = {"text": asked.documents[best.index]}
            results.append(result)
        about = {"id": "rerank-" + secrets.token_hex(12), "model": self.served.name}
        used = {"prompt_tokens": count, "total_tokens": count}
        return about | {"usage": used, "results": results}

    async def _classified(self, body: Fields) -> dict[str, Any]:
        texts = _texts(body, "input", self.limits.vectors)
        body.end()
        logits, count = await self._logits(texts, "input")
        model = self.served.model
        assert isinstance(model, TextClassifier)
        data = []
        for number, row in enumerate(logits):
            guesses = likeliest(row, model.labels, len(model.labels), model.independent)
            shares = {guess.label: guess.probability for guess in guesses}
            about = {"index": number, "label": guesses[0].label}
            probs = [shares[label] for label in model.labels]
            data.append(about | {"probs": probs, "num_classes": len(probs)})
        used = {"prompt_tokens": count, "total_tokens": count}
        about = {"id": "classify-" + secrets.token_hex(12), "object": "list"}
        return about | {"model": self.served.name, "data": data, "usage": used}

    async def _sound(self, body: Fields) -> Response:
        model = self.served.model
        assert isinstance(model, SpeechSynthesizer)
        asked = spoken_of(body, model)
        rows = await self._read(
            [asked.text],
            lambda texts: [model.speak(texts[0], asked.speaker, asked.speed, asked.seed)],
        )
        content = await in_pool(self._readers, partial(sound_of, asked, rows[0], model.rate))
        return Response(content, media_type=SOUND_FORMS[asked.form])

    # --- work

    async def _logits(self, texts: Sequence[Any], field: str) -> tuple[list[Any], int]:
        """What the model says of texts or pairs, and how many tokens it has read. Raises
        InputError, which names the field.
        """
        model = self.served.model
        assert isinstance(model, TextClassifier)
        prepared = await in_pool(
            self._readers, lambda: [model.prepared(text, field) for text in texts]
        )
        count = sum(len(text.ids) for text in prepared)
        self.metrics.prompt_tokens.inc(count)
        return await self._read(prepared, model.logits), count

    async def _read(self, items: Sequence[T], run: Callable[[Sequence[T]], Any]) -> list[Any]:
        """What a run makes of each item, a few at a time."""
        if self._texts + len(items) > self.limits.vectors + self.limits.queue:
            raise ApiError(429, "The server is busy; try again later", code="rate_limit_exceeded")
        self._texts += len(items)
        try:
            rows: list[Any] = []
            for at in range(0, len(items), AT_ONCE):
                rows.extend(await in_pool(self._model, partial(run, items[at : at + AT_ONCE])))
            return rows
        finally:
            self._texts -= len(items)


def _not_whole(text: str) -> None:
    # Whoever sends a file hears of no warning, and asks for what is said in the whole of it.
    raise refused("file", f"{text}; send all of it")


def _by_ctc(model: CtcTranscriber, sound: Array, words: bool) -> list[Segment]:
    """All that is said, as one segment, with its words."""
    said = model.transcribe(sound)
    if not said:
        return []
    text = " ".join(word.text for word in said)
    tokens = tuple(token for word in said for token in word.tokens)
    parts = tuple(Word(word.text, word.start, word.end) for word in said) if words else ()
    return [Segment(said[0].start, said[-1].end, text, tokens, parts)]


def _texts(body: Fields, field: str, most: int) -> list[str]:
    """A text, or a list of at most so many."""
    value = body.needed(field)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise refused(field, f"{shown(value)} is no text and no list of texts")
    return _few(texts, field, most)


def _ranking(body: Fields, most: int) -> Ranking:
    body.needed("query")
    query, documents = body.text("query"), body.needed("documents")
    assert query is not None
    if not isinstance(documents, list) or not documents:
        raise refused("documents", f"{shown(documents)} is no list of texts")
    texts = []
    for number, document in enumerate(_few(documents, "documents", most)):
        name = f"documents[{number}]"
        if isinstance(document, dict):
            fields = object_of(document, name)
            fields.needed("text")
            document = fields.text("text")
            fields.end()
        if not isinstance(document, str):
            raise refused(name, f"{shown(document)} is no text, and no object that has one")
        texts.append(document)
    # A list has no more than all of its documents, but clients ask for the best ten of any.
    top = body.integer("top_n", 1, 1 << 31, len(texts))
    with_documents = body.flag("return_documents", True)
    body.end()
    return Ranking(query, texts, top, with_documents)


def _few(items: list[Any], field: str, most: int) -> list[Any]:
    if len(items) > most:
        raise refused(field, f"{len(items)} texts; at most {most}")
    return items
