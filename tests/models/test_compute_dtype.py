"""Language models whose products multiply bfloat16: no further from the truth than transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DTypeError
from luminal.models.architectures import read_decoder
from luminal.nn.paged import PagedCache, Places, Segment
from tests.close import close
from tests.long_share import mostly_long
from tests.models.decoder_checks import cached, saved, whole
from tests.models.tiny_architectures import VOCABULARY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

Array = np.ndarray[Any, Any]


@pytest.fixture(params=mostly_long(["llama", "gemma2", "mixtral"], 1))
def narrow(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of a small random model with weights of bfloat16."""
    saved(request.param, tmp_path).bfloat16().save_pretrained(tmp_path)
    return tmp_path


def theirs(folder: Path, ids: Array, dtype: str) -> Array:
    """Logits of the rounded weights. In float32 they are the truth: a rounding of bfloat16 is
    65,536 of its own, and not all of theirs computes in float64.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        found = model(torch.from_numpy(ids).long()).logits
    return found.float().numpy()  # type: ignore[no-any-return]


def error(found: Array, wanted: Array) -> float:
    """The root of the mean square of what is wrong, of the median token: where a rounding makes a
    token choose other experts, its logits are other ones.
    """
    return float(np.median(np.sqrt(np.mean((found - wanted) ** 2, -1))))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_no_further_from_the_truth_than_transformers(narrow: Path, backend: str) -> None:
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (3, 19)).astype(np.int32)
    truth, rounded = (theirs(narrow, ids, dtype) for dtype in ("float32", "bfloat16"))
    model = read_decoder(narrow)
    assert model.compute_dtype is lm.bfloat16
    found = whole(model).compile(backend)(ids=ids)["logits"]
    assert error(found, truth) <= error(rounded, truth)
    exact = whole(read_decoder(narrow, "float32")).compile(backend)(ids=ids)["logits"]
    # It does round: else there were nothing to compare.
    assert error(exact, truth) < error(found, truth) / 20


def test_one_token_at_a_time(narrow: Path) -> None:
    """Programs with caches, whose kernels of one token are others, round the same."""
    ids = np.random.default_rng(1).integers(0, VOCABULARY, 12).astype(np.int32)
    truth, rounded = (theirs(narrow, ids[None], dtype)[0] for dtype in ("float32", "bfloat16"))
    exe = cached(read_decoder(narrow)).compile()
    found = [exe(ids=ids[:9], dims={"past": 0})["logits"]]
    found += [exe(ids=ids[k : k + 1], dims={"past": k})["logits"] for k in range(9, 12)]
    assert error(np.concatenate(found), truth) <= error(rounded, truth)


def test_pages_of_bfloat16(narrow: Path) -> None:
    """Keys and values that a server keeps are rounded, and queries alike: no further either."""
    count = 12
    ids = np.random.default_rng(3).integers(0, VOCABULARY, count).astype(np.int32)
    truth, rounded = (theirs(narrow, ids[None], dtype)[0] for dtype in ("float32", "bfloat16"))
    model = read_decoder(narrow)
    graph = lm.Graph()
    given = graph.tensor((count,), lm.int32, "ids")
    table = graph.tensor((1, 2), lm.int32, "table")
    positions = graph.arange(count, dtype=lm.int32)
    places = Places(table[0][positions // 8], positions % 8, (Segment(table, count),))
    caches = model.make_caches(8, lm.bfloat16, batch=3)
    paged = [PagedCache.of(cache, places) for cache in caches]
    model.logits(model.model(given, paged, positions)).output("logits")
    found = graph.compile("cpu")(ids=ids, table=np.array([[2, 0]], np.int32))["logits"]
    exact = cached(model).compile()(ids=ids, dims={"past": 0})["logits"]
    assert error(found, exact) > 0
    assert error(found, truth) <= error(rounded, truth)


def test_what_is_rounded_follows_the_file_and_can_be_chosen(tmp_path: Path) -> None:
    made = saved("llama", tmp_path)
    assert read_decoder(tmp_path).compute_dtype is None
    assert read_decoder(tmp_path, "bfloat16").compute_dtype is lm.bfloat16
    made.half().save_pretrained(tmp_path)
    assert read_decoder(tmp_path).compute_dtype is None
    made.bfloat16().save_pretrained(tmp_path)
    model = read_decoder(tmp_path, lm.float32)
    assert all(module.compute_dtype is None for module in model.modules())
    with pytest.raises(DTypeError, match=r"int8 is for matrices that are packed, and none .* open"):
        read_decoder(tmp_path, "int8")
    with pytest.raises(
        DTypeError, match="compute_dtype: int16 is not known; it is one of float32, bfloat16"
    ):
        read_decoder(tmp_path, "int16")


def test_both_factors_are_rounded() -> None:
    """Weights of float32 too; sums are float32's."""
    rng = np.random.default_rng(4)
    x, weight = (rng.standard_normal((n, 64), np.float32) for n in (3, 5))
    layer = lm.nn.Linear(64, 5, bias=False).computing("bfloat16")
    layer.weight.set(weight)
    near = [each.astype(lm.bfloat16.numpy) for each in (x, weight)]
    exact = near[0].astype(np.float64) @ near[1].astype(np.float64).T
    close(lm.jit(layer)(x), exact)


def test_what_products_multiply_is_stored_rounded(tmp_path: Path) -> None:
    """By the kernel that makes it, so that pairs are multiplied and no launch is added."""
    saved("llama", tmp_path)
    wide, rounded = (
        whole(read_decoder(tmp_path, dtype)).compile().report().kernels
        for dtype in ("float32", "bfloat16")
    )
    assert len(rounded) <= len(wide)
    assert all(row.label != "Cast" for row in rounded)
