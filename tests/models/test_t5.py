"""T5: biases, logits and greedy tokens as transformers'."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import GraphError, InputError, LoadError
from luminal.models.families import read_model
from luminal.models.text_to_text import TextToText
from luminal.nn import RelativeBias
from tests.close import close
from tests.models.small_t5 import KINDS, VOCABULARY, saved, torch

LENGTHS = (5, 1, 19)


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 12)])
def test_buckets_of_distances(both_ways: bool, buckets: int, farthest: int) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-farthest - 9, farthest + 10)
    wanted = T5Attention._relative_position_bucket(distances, both_ways, buckets, farthest)
    rows = RelativeBias(buckets, 2, farthest, both_ways).rows
    last = farthest if both_ways else 0
    found = rows[np.clip(distances.numpy(), -farthest, last) + farthest]
    np.testing.assert_array_equal(found, wanted.numpy())


def check_logits(kind: str, folder: Path, backend: str) -> None:
    """Of three inputs of different lengths, and six tokens after each."""
    theirs = saved(kind, folder)
    rng = np.random.default_rng(0)
    x = rng.integers(2, VOCABULARY, (3, max(LENGTHS))).astype(np.int32)
    ids = rng.integers(2, VOCABULARY, (3, 17)).astype(np.int32)
    lengths = np.array(LENGTHS, np.int32)
    graph = lm.Graph()
    inputs = graph.tensor((3, graph.dim("m", 1, 40)), lm.int32, "x")
    given = graph.tensor((3, graph.dim("s", 1, 24)), lm.int32, "ids")
    counts = graph.tensor((3,), lm.int32, "lengths")
    read_model(folder)(inputs, given, counts).output("logits")
    exe = graph.compile(backend)
    for count in (17, 1, 4):
        with torch.no_grad():
            wanted = theirs(
                torch.from_numpy(x).long(),
                attention_mask=torch.arange(x.shape[1]) < torch.from_numpy(lengths)[:, None],
                decoder_input_ids=torch.from_numpy(ids[:, :count]).long(),
            ).logits.numpy()
        found = exe(x=x, ids=ids[:, :count], lengths=lengths)["logits"]
        close(found, wanted, ulp=32)


def check_greedy_tokens(kind: str, folder: Path, backend: str) -> None:
    """After two inputs of different lengths, by two programs and one that chooses."""
    theirs = saved(kind, folder)
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, TextToText)
    rng = np.random.default_rng(1)
    before = lm.compile_count()
    for length in (11, 3):
        ids = rng.integers(2, VOCABULARY, length).tolist()
        found = list(loaded.tokens(ids, 30))
        wanted = theirs.generate(
            torch.tensor([ids]), max_new_tokens=30, do_sample=False, use_cache=False
        )
        assert [0, *found] == [token for token in wanted[0].tolist() if token != 1]
    assert lm.compile_count() - before == 3


@pytest.mark.parametrize("kind", ["flan"])
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    check_logits(kind, tmp_path, "reference")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_logits_and_greedy_tokens(kind: str, tmp_path: Path) -> None:
    check_logits(kind, tmp_path, "cpu")
    check_greedy_tokens(kind, tmp_path, "cpu")


def test_texts(tmp_path: Path) -> None:
    saved("t5", tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    text = loaded.generate("w5 w6 w7", max_tokens=4)
    assert text == "".join(loaded.stream("w5 w6 w7", 4))
    assert len(text.split()) <= 4
    first, second = loaded.stream("w5 w6 w7", 4), loaded.stream("w8", 4)
    next(first)
    next(second)
    with pytest.raises(GraphError, match="another input was encoded; finish one"):
        next(first)
    assert loaded.generate("w5", max_tokens=5, temperature=5.0, seed=1) != loaded.generate(
        "w5", max_tokens=5, temperature=5.0, seed=2
    )
    with pytest.raises(InputError, match="the text has 41 tokens; the model takes 1 to 40"):
        loaded.generate("w5 " * 41)


@pytest.mark.parametrize("key", ["n_positions", "relative_attention_max_distance"])
def test_positions_that_no_memory_holds(key: str, tmp_path: Path) -> None:
    saved("t5", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: 10**9}))
    with pytest.raises(LoadError, match=f"{key} is 1000000000, it must be at most 131072"):
        read_model(tmp_path)


def test_distances_must_exceed_buckets(tmp_path: Path) -> None:
    saved("t5", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('max_distance": 12', 'max_distance": 8'))
    with pytest.raises(LoadError, match="relative_attention_max_distance is 8; it must be above"):
        read_model(tmp_path)
