"""Heads of text encoders and decoders: labels, order by a question, labels of tokens, answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import luminal as lm
from luminal.cli.main import app
from luminal.models.families import read_family
from luminal.models.text_reader import QuestionAnswerer, TextClassifier, TokenClassifier
from tests.close import close_to_greatest
from tests.models.small_encoders import SIZES, torch, transformers
from tests.models.small_heads import OFF, headed, with_pair_tokenizer

TEXTS: list[Any] = ["a b c d", ("z", "y x"), "h e l l o", "q", ("a b", "a b c d e f g h i j k l")]
MOST = 24  # positions


def theirs_of(folder: Path, text: Any, model: Any, longest: int = MOST, **options: Any) -> Any:
    """What transformers' own tokenizer and model make of a text or pair."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]"
    )
    pair = text if isinstance(text, tuple) else (text,)
    given = tokenizer(
        *pair, return_tensors="pt", truncation=True, max_length=longest,
        return_token_type_ids=True, **options,
    )  # fmt: skip
    if model.config.model_type in ("distilbert", "modernbert") or (
        getattr(model.config, "type_vocab_size", 2) < 2
    ):
        del given["token_type_ids"]
    with torch.no_grad():
        return model(**given), given


def check_texts(name: str, folder: Path, backend: str, **options: Any) -> None:
    theirs = headed(name, "SequenceClassification", folder, num_labels=3, **options)
    reader = read_family(folder, "fast", backend)
    assert isinstance(reader, TextClassifier)
    found = reader.logits([reader.prepared(text) for text in TEXTS])
    wanted = [theirs_of(folder, text, theirs)[0].logits[0].numpy() for text in TEXTS]
    close_to_greatest(np.stack(found), np.stack(wanted))
    guesses = reader.classify(TEXTS, top=2)
    for row, logits in zip(guesses, wanted, strict=True):
        shares = torch.from_numpy(logits).softmax(0).numpy()
        assert row[0].label == theirs.config.id2label[int(shares.argmax())]
        close_to_greatest(np.array(row[0].probability), np.array(shares.max()))
        assert len(row) == 2


def test_labels_of_texts_and_pairs(tmp_path: Path) -> None:
    check_texts("bert", tmp_path, "reference")


@pytest.mark.long
@pytest.mark.parametrize("name", ["roberta", "distilbert", "modernbert"])
def test_labels_by_other_encoders(name: str, tmp_path: Path) -> None:
    check_texts(name, tmp_path, "reference")


@pytest.mark.long
def test_labels_by_a_mean(tmp_path: Path) -> None:
    check_texts("modernbert", tmp_path, "cpu", classifier_pooling="mean")


def check_tokens(name: str, folder: Path, backend: str) -> None:
    theirs = headed(name, "TokenClassification", folder, num_labels=5)
    reader = read_family(folder, "fast", backend)
    assert isinstance(reader, TokenClassifier)
    texts = [text for text in TEXTS if isinstance(text, str)]
    for text, guesses in zip(texts, reader.classify(texts), strict=True):
        shares = theirs_of(folder, text, theirs)[0].logits[0, 1:-1].softmax(-1)
        assert [guess.text for guess in guesses] == text.split()
        assert [text[guess.start : guess.end] for guess in guesses] == text.split()
        numbers = shares.argmax(-1).tolist()
        assert [guess.label for guess in guesses] == [theirs.config.id2label[n] for n in numbers]
        close_to_greatest(
            np.array([guess.probability for guess in guesses]), shares.amax(-1).numpy()
        )


@pytest.mark.parametrize(
    "name",
    ["bert", *(pytest.param(n, marks=pytest.mark.long) for n in ("distilbert", "modernbert"))],
)
def test_labels_of_tokens(name: str, tmp_path: Path) -> None:
    check_tokens(name, tmp_path, "reference")


def best_span(folder: Path, theirs: Any, question: str, text: str) -> tuple[float, int, int]:
    """The likeliest of all answers in all windows, by trying each."""
    with torch.no_grad():
        output, given = theirs_of(folder, (question, text), theirs)
    second = [n for n, of in enumerate(given.sequence_ids(0)) if of == 1]
    starts = output.start_logits[0][second].softmax(0).tolist()
    ends = output.end_logits[0][second].softmax(0).tolist()
    offsets = [given.token_to_chars(0, n) for n in second]
    return max(
        (a * b, offsets[i].start, offsets[j].end)
        for i, a in enumerate(starts)
        for j, b in enumerate(ends)
        if i <= j
    )


@pytest.mark.parametrize(
    "name",
    ["bert", *(pytest.param(n, marks=pytest.mark.long) for n in ("roberta", "modernbert"))],
)
def test_answers(name: str, tmp_path: Path) -> None:
    theirs = headed(name, "QuestionAnswering", tmp_path)
    reader = read_family(tmp_path, "fast", "reference")
    assert isinstance(reader, QuestionAnswerer)
    for text in ("b c d", "q w e r t y u i o p"):
        found = reader.answer("a z", text)
        share, start, end = best_span(tmp_path, theirs, "a z", text)
        close_to_greatest(np.array(found.probability), np.array(share))
        assert (found.start, found.end, found.text) == (start, end, text[start:end])
    long = " ".join("abcdefghijklmnopqrstuvwxyz")  # two windows
    windows = reader.prepare("answer", "a z", long)
    assert len(windows) > 1
    assert {place for window in windows for place in window.places} >= {(0, 1), (50, 51)}
    answer = reader.answer("a z", long)
    assert answer.text == long[answer.start : answer.end]


def check_order(folder: Path, activation: dict[str, Any]) -> None:
    theirs = headed("bert", "SequenceClassification", folder, num_labels=1, **activation)
    reader = lm.models.load(folder, backend="reference")
    documents = ["a", "b c d", "z y", "q w e r t y u i o p a s d f g h j k l z x c v b"]
    wanted = [theirs_of(folder, ("a b", each), theirs)[0].logits.item() for each in documents]
    scores = wanted if activation else [1 / (1 + np.exp(-each)) for each in wanted]
    found = reader.rerank("a b", documents)
    assert [each.index for each in found] == [int(n) for n in np.argsort([-s for s in wanted])]
    close_to_greatest(
        np.array([each.score for each in found]), np.array([scores[e.index] for e in found])
    )
    assert reader.rerank("a b", documents, top=2) == found[:2]
    assert reader.rerank("a b", []) == []


def test_documents_by_a_query(tmp_path: Path) -> None:
    check_order(tmp_path, {})


@pytest.mark.long
def test_scores_that_are_logits(tmp_path: Path) -> None:
    name = "torch.nn.modules.linear.Identity"
    check_order(tmp_path, {"sentence_transformers": {"activation_fn": name}})


@pytest.mark.long
@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Gemma2"])
def test_labels_by_decoders(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        **SIZES, num_key_value_heads=2, num_labels=3, pad_token_id=0, head_dim=16
    )
    theirs = getattr(transformers, f"{name}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * OFF)
    theirs.save_pretrained(tmp_path)
    with_pair_tokenizer(tmp_path)
    reader = lm.models.load(tmp_path, backend="reference")
    found = reader.logits([reader.prepared(text) for text in TEXTS])
    for text, logits in zip(TEXTS, found, strict=True):
        ids = reader.prepared(text).ids
        with torch.no_grad():
            close_to_greatest(logits, theirs(torch.tensor([ids])).logits[0].numpy())


def test_commands(tmp_path: Path) -> None:
    headed("bert", "SequenceClassification", tmp_path, num_labels=1)
    model = ["--model", str(tmp_path), "--backend", "reference"]

    def lines(*words: str, fed: str = "") -> list[str]:
        done = CliRunner().invoke(app, [*words, *model], input=fed)
        assert done.exit_code == 0, done
        return done.stdout.splitlines()

    wanted = lm.models.load(tmp_path, backend="reference").rerank("a b", ["c", "d e"])
    rows = [json.loads(line) for line in lines("rerank", "a b", "c", "d e")]
    assert [(row["index"], row["score"]) for row in rows] == [
        (each.index, each.score) for each in wanted
    ]
    assert [row["document"] for row in rows] == [["c", "d e"][each.index] for each in wanted]
    fed = lines("rerank", "a b", "--top", "1", fed="c\nd e\n")
    assert [json.loads(line) for line in fed] == rows[:1]
    shown = lines("classify", "--text", "c", "--text", "d e")
    assert [shown[0], shown[2]] == ["c:", "d e:"]
    assert "%  LABEL_0" in shown[1]
    for words, message in (
        (["classify"], "name files of images, or give --text TEXT"),
        (["classify", "a.png", "--text", "b"], "--text goes with neither images nor"),
    ):
        done = CliRunner().invoke(app, [*words, *model])
        assert message in str(done.exception)


def test_what_is_refused(tmp_path: Path) -> None:
    headed("bert", "SequenceClassification", tmp_path, num_labels=3)
    reader = lm.models.load(tmp_path, backend="reference")
    for call, message in (
        (lambda: reader.classify("a b"), "classify: 'a b' is no list; give a list of texts"),
        (lambda: reader.classify([7]), "classify: 7 is no text; give strings"),
        (lambda: reader.classify([("a", None)]), r"classify: \('a', None\) is no text"),
        (lambda: reader.classify([""]), "classify: '' has no tokens; give some text"),
        (lambda: reader.classify(["a\udcff"]), "classify: character 1 is no text; give UTF-8"),
        (lambda: reader.classify(["a"], top=0), "top: 0"),
        (lambda: reader.rerank("a", ["b"]), "rerank: the model has 3 labels .* a cross-encoder"),
    ):
        with pytest.raises(lm.InputError, match=message):
            call()
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    for change, message in (
        ({"sbert_ce_default_activation_function": "torch.nn.ReLU"}, "scores are 'torch.nn.ReLU'"),
        ({"architectures": ["BigBirdForSequenceClassification"]}, "BigBirdForSequence.* is not"),
        ({"id2label": {"0": "a", "1": "b"}}, "head.out.weight"),
    ):
        path.write_text(json.dumps(raw | change))
        with pytest.raises(lm.LoadError, match=message):
            lm.models.load(tmp_path, backend="reference")
