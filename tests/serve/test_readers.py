"""Servers of models that read texts: orders of documents, labels, vectors."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.serve.app import make_app
from luminal.serve.load import load
from luminal.serve.orders import Limits
from luminal.serve.readers import AT_ONCE, Reading
from tests.models.small_encoders import saved
from tests.models.small_heads import headed, with_pair_tokenizer
from tests.serve.running import asked

LIMITS = Limits(body=4000, vectors=40, queue=4)
BODY: dict[str, Any] = {"model": "m", "query": "a b", "documents": ["c", "d e", {"text": "q"}]}


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    """A cross-encoder."""
    folder = tmp_path_factory.mktemp("ranker")
    headed("bert", "SequenceClassification", folder, num_labels=1)
    served = load(str(folder), name="m", backend="reference")
    assert isinstance(served, Reading)
    return served


def test_documents_by_a_query(ranker: Reading) -> None:
    app = make_app(ranker, LIMITS)
    model: Any = ranker.model
    texts = ["c", "d e", "q"]
    wanted = model.rerank("a b", texts)
    found = asked(app, BODY, "/v1/rerank").json()
    assert [(each["index"], each["relevance_score"]) for each in found["results"]] == [
        (each.index, pytest.approx(each.score)) for each in wanted
    ]
    assert [each["document"]["text"] for each in found["results"]] == [
        texts[each.index] for each in wanted
    ]
    assert found["usage"]["total_tokens"] == (2 + 3) * 3 + 4
    short = BODY | {"top_n": 1, "return_documents": False}
    for path in ("/rerank", "/v2/rerank"):
        (best,) = asked(app, short, path).json()["results"]
        assert best == {"index": wanted[0].index, "relevance_score": pytest.approx(wanted[0].score)}
    many = asked(app, BODY | {"documents": ["c"] * (2 * AT_ONCE + 1)}, "/v1/rerank").json()
    assert len(many["results"]) == 2 * AT_ONCE + 1
    assert asked(app, path="/v1/models").json()["data"][0]["id"] == "m"
    assert asked(app, path="/health").json() == {"status": "ok"}
    assert "POST to /v1/rerank" in asked(app, path="/").text
    assert 'path="/v1/rerank",status="200"' in asked(app, path="/metrics").text


WRONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "model": ({"model": "other"}, 404, "The model 'other' does not exist"),
    "query": ({"query": 3}, 400, "query: 3 is no text"),
    "none": ({"documents": []}, 400, "documents: [] is no list of texts"),
    "number": ({"documents": ["a", 3]}, 400, "documents[1]: 3 is no text, and no object"),
    "text": ({"documents": [{"title": "a"}]}, 400, "documents[0].text: it is missing"),
    "empty": ({"documents": [""], "query": ""}, 400, "query: '' has no tokens; give some text"),
    "top": ({"top_n": 0}, 400, "top_n: 0 is no integer of 1"),
    "field": ({"rank_fields": ["a"]}, 400, "'rank_fields': there is no such field here"),
    "many": ({"documents": ["a"] * 41}, 400, "documents: 41 texts; at most 40"),
    "large": ({"documents": ["a" * 4000]}, 413, "more than 4000 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str, ranker: Reading) -> None:
    change, status, message = WRONG[name]
    answer = asked(make_app(ranker, LIMITS), BODY | change, "/v1/rerank")
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]


def test_other_endpoints_are_not_there(ranker: Reading) -> None:
    app = make_app(ranker, LIMITS, keys=["k"])
    assert asked(app, BODY, "/v1/rerank").status_code == 401
    key = {"authorization": "Bearer k"}
    missing = asked(app, {"model": "m", "prompt": "a"}, "/v1/completions", **key)
    assert missing.status_code == 404
    assert asked(app, path="/v1/rerank", **key).status_code == 405


def test_labels(tmp_path: Path) -> None:
    headed("bert", "SequenceClassification", tmp_path, num_labels=3)
    served = load(str(tmp_path), name="m", backend="reference")
    assert isinstance(served, Reading)
    found = asked(make_app(served, LIMITS), {"model": "m", "input": ["a b", "c"]}, "/classify")
    model: Any = served.model
    for row, guesses in zip(found.json()["data"], model.classify(["a b", "c"]), strict=True):
        assert row["label"] == guesses[0].label
        assert sorted(row["probs"], reverse=True) == pytest.approx([g.probability for g in guesses])
        assert row["probs"][model.labels.index(row["label"])] == max(row["probs"])


def test_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved("bert", tmp_path)
    with_pair_tokenizer(tmp_path)
    served = load(str(tmp_path), name="m", backend="reference")
    assert isinstance(served, Reading)
    model: Any = served.model
    app = make_app(served, LIMITS)
    body = {"model": "m", "input": ["a b", "c"], "encoding_format": "base64"}
    read: list[str] = []
    encode = model.tokenizer.encode

    def noted(text: str) -> Any:
        read.append(text)
        return encode(text)

    monkeypatch.setattr(model.tokenizer, "encode", noted)
    answer = asked(app, body, "/v1/embeddings").json()
    assert read == ["a b", "c"]
    vectors = [
        np.frombuffer(base64.b64decode(row["embedding"]), np.float32) for row in answer["data"]
    ]
    np.testing.assert_array_equal(np.stack(vectors), model.embed(["a b", "c"]))
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    wrong = asked(app, {"model": "m", "input": [[1, 2]]}, "/v1/embeddings")
    assert "is no text and no list of texts" in wrong.json()["error"]["message"]
    with pytest.raises(lm.InputError, match=r"--draft is for language models; m is a TextEncoder"):
        load(str(tmp_path), name="m", backend="reference", draft="lookup")


def test_many_requests_take_turns(ranker: Reading) -> None:
    """A request of many runs lets one of a single run in between."""
    app = make_app(ranker, Limits(vectors=200))
    model: Any = ranker.model
    sizes: list[int] = []
    logits = model.logits

    def counted(prepared: Any) -> Any:
        sizes.append(len(prepared))
        return logits(prepared)

    model.logits = counted
    try:
        with ThreadPoolExecutor(2) as pool:
            large = pool.submit(asked, app, BODY | {"documents": ["c"] * 160}, "/v1/rerank")
            while len(sizes) < 2:
                assert not large.done()
            small = asked(app, BODY, "/v1/rerank")
            assert not large.done() or sizes.index(3) < len(sizes) - 1
            assert small.status_code == large.result().status_code == 200
    finally:
        del model.logits
    assert sizes.count(AT_ONCE) == 160 / AT_ONCE
