"""Texts to labels, to an order by a question, to labels of tokens, to answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import InputError, LoadError
from luminal.base.records import dataclass
from luminal.loaders.fields import Fields
from luminal.loaders.shown import shown
from luminal.loaders.text_pairs import Prepared, TextPairs
from luminal.models.checkpoint import folder_config, folder_tokenizer
from luminal.models.embed import BATCH, in_batches
from luminal.models.families.settings import are_independent, labels_of
from luminal.models.image_model import Guess, likeliest
from luminal.models.sampling import checked_count
from luminal.models.text_head import HeadedDecoder, HeadedEncoder
from luminal.runtime.executable import Executable
from luminal.search.options import CompilationMode
from luminal.session.device_choice import chosen_device
from luminal.session.graph import Graph, compile

Array = np.ndarray[Any, Any]
Text = str | tuple[str, str]
LONGEST_ANSWER = 30  # tokens
ACTIVATION_KEYS = "sentence_transformers", "sbert_ce_default_activation_function"


@dataclass(frozen=True, slots=True)
class Relevance:
    """A document's number among those given, and how well it answers the query."""

    index: int
    score: float


class TokenGuess(NamedTuple):
    """A label and its probability, of the text's characters `start` to `end`."""

    label: str
    probability: float
    text: str
    start: int
    end: int


class Answer(NamedTuple):
    """The characters `start` to `end` of a text that answer a question."""

    text: str
    probability: float
    start: int
    end: int


class TextReader:
    """A model of texts with a head; one program serves all numbers and lengths of texts."""

    def __init__(
        self,
        model: HeadedEncoder | HeadedDecoder,
        prepare: TextPairs,
        fields: Fields,
        mode: CompilationMode | str = "fast",
        backend: str | None = None,
    ) -> None:
        self.model, self.prepare = model, prepare
        self.mode, self.backend = mode, chosen_device(backend)
        self.labels, self.independent = labels_of(fields), are_independent(fields)
        self.raw_scores = _raw_scores(fields)
        self._program: Executable | None = None

    only_second = False
    """Whether only the second text of a pair is cut."""

    @classmethod
    def of_folder(cls, folder: Path, model: Any, mode: Any, backend: str) -> TextReader:
        """With the tokenizer and labels of its folder. Raises LoadError."""
        tokenizer = folder_tokenizer(folder, model.vocab_size)
        path = folder / "tokenizer.json"
        prepare = TextPairs(tokenizer, path, model.longest, cls.only_second)
        fields = Fields(folder_config(folder), folder / "config.json")
        return cls(model, prepare, fields, mode, backend)

    def __repr__(self) -> str:
        labels = ", ".join(self.labels[:4]) + (", ..." if len(self.labels) > 4 else "")
        return (
            f"{type(self).__name__}({labels}; at most {self.model.longest} tokens; {self.backend})"
        )

    def compile(self) -> Executable:
        """The program, compiled at the first call: ids, segments (b, s) and lengths (b,) to
        logits.
        """
        if self._program is None:
            graph = Graph("read")
            batch, s = graph.dim("b", 1, BATCH), graph.dim("s", 1, self.model.longest)
            ids = graph.tensor((batch, s), dtypes.int32, "ids")
            lengths = graph.tensor((batch,), dtypes.int32, "lengths")
            segments = graph.tensor((batch, s), dtypes.int32, "segments")
            self.model(ids, lengths, segments).cast(dtypes.float32).output("logits")
            self._program = compile(graph, backend=self.backend, mode=self.mode)
        return self._program

    def logits(self, prepared: Sequence[Prepared]) -> list[Array]:
        """What the model says of prepared texts, (labels,) each; of tokens (s, labels)."""
        program = self.compile()
        takes_segments = self.model.segments > 1
        rows: list[Array] = [np.empty(0)] * len(prepared)
        for numbers, ids, lengths in in_batches([text.ids for text in prepared]):
            inputs = {"ids": ids, "lengths": lengths}
            segments = np.zeros_like(ids)
            for place, number in enumerate(numbers):
                segments[place, : lengths[place]] = prepared[number].segments
            if takes_segments:
                inputs["segments"] = np.minimum(segments, self.model.segments - 1)
            elif "segments" in program.input_names:
                inputs["segments"] = segments
            logits = program(inputs)["logits"]
            for place, number in enumerate(numbers):
                row = logits[place]
                rows[number] = row[: lengths[place]] if row.ndim == 2 else row
        return rows


class TextClassifier(TextReader):
    """Labels of texts, or of pairs of them."""

    def classify(self, texts: Sequence[Text], top: int = 5) -> list[list[Guess]]:
        """The `top` likeliest labels of each text or (text, text), the likeliest first.

        Where labels are independent, or one alone, each has a probability of its own. Longer texts
        are cut. Raises InputError.
        """
        checked_count("top", top, 1)
        rows = self.logits([self.prepared(text) for text in _listed("classify", texts)])
        return [likeliest(row, self.labels, top, self.independent) for row in rows]

    def rerank(
        self, query: str, documents: Sequence[str], top: int | None = None
    ) -> list[Relevance]:
        """The documents by how well they answer a query, the best first, at most `top` of them.

        For models of one label, as cross-encoders are: a score is the sigmoid of the logit, or the
        logit itself where `config.json` says so (sentence-transformers' Identity). Raises
        InputError.
        """
        if len(self.labels) != 1:
            raise InputError(
                f"rerank: the model has {len(self.labels)} labels ({shown(self.labels)}), and a "
                "cross-encoder has one; use classify"
            )
        if top is not None:
            checked_count("top", top, 1)
        pairs = [
            self.prepare("rerank", query, document)[0] for document in _listed("rerank", documents)
        ]
        return self.ranked([row[0] for row in self.logits(pairs)])[:top]

    def ranked(self, logits: Sequence[float]) -> list[Relevance]:
        """The order by a logit for each document, the best first."""
        wide = np.array(logits, np.float64)
        scores = wide if self.raw_scores else np.exp(-np.logaddexp(0, -wide))
        order = np.argsort(-scores, kind="stable")
        return [Relevance(int(number), float(scores[number])) for number in order]

    def prepared(self, text: Text, what: str = "classify") -> Prepared:
        """A text, or two, as the model reads it. Raises InputError, which names `what`."""
        match text:
            case (first, str(second)):
                return self.prepare(what, first, second)[0]
        return self.prepare(what, text)[0]


class TokenClassifier(TextReader):
    """A label for each token of a text, as names of persons and places."""

    def classify(self, texts: Sequence[str]) -> list[list[TokenGuess]]:
        """The likeliest label of each token of each text. Longer texts are cut. Raises
        InputError.
        """
        listed = _listed("classify", texts)
        prepared = [self.prepare("classify", text)[0] for text in listed]
        by_text = []
        for text, ids, logits in zip(listed, prepared, self.logits(prepared), strict=True):
            guesses = []
            for place, row in zip(ids.places, logits, strict=True):
                if place is not None:
                    (best,) = likeliest(row, self.labels, 1)
                    begin, end = place
                    guess = TokenGuess(best.label, best.probability, text[begin:end], begin, end)
                    guesses.append(guess)
            by_text.append(guesses)
        return by_text


class QuestionAnswerer(TextReader):
    """The part of a text that answers a question (Rajpurkar et al., arXiv 1606.05250)."""

    only_second = True

    def answer(self, question: str, text: str) -> Answer:
        """The likeliest answer, of at most 30 tokens; a text of any length is read in windows.

        Its probability is that of its first token times that of its last one, among those of the
        text's tokens in a window. Raises InputError.
        """
        windows = self.prepare("answer", question, text)
        best = Answer("", -1.0, 0, 0)
        for window, logits in zip(windows, self.logits(windows), strict=True):
            mine = np.flatnonzero(window.second)
            if not len(mine):
                raise InputError(f"answer: {shown(text)} has no tokens; give some text")
            firsts, lasts = (_shares(logits[mine, column]) for column in range(2))
            both = np.tril(np.triu(np.outer(firsts, lasts)), LONGEST_ANSWER - 1)
            first, last = np.unravel_index(int(both.argmax()), both.shape)
            if both[first, last] > best.probability:
                begin, end = window.places[mine[first]], window.places[mine[last]]
                assert begin is not None
                assert end is not None
                share = float(both[first, last])
                best = Answer(text[begin[0] : end[1]], share, begin[0], end[1])
        return best


def _shares(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    shares: Array = np.exp(wide - np.logaddexp.reduce(wide))
    return shares


def _listed(what: str, texts: Any) -> list[Any]:
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise InputError(f"{what}: {shown(texts)} is no list; give a list of texts")
    return [*texts]


def _raw_scores(fields: Fields) -> bool:
    """Are scores the logits themselves? Raises LoadError for a function other than the sigmoid."""
    newer, older = ACTIVATION_KEYS
    section = fields.section(newer)
    name = section.text("activation_fn", "") or fields.text(older, "")
    match name.rpartition(".")[-1]:
        case "" | "Sigmoid":
            return False
        case "Identity":
            return True
    raise LoadError(
        f"{fields.path}: scores are {shown(name)} of what the model says; Sigmoid and Identity are "
        "supported"
    )
