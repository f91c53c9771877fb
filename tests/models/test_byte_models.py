"""Language models whose packed matrices are multiplied by bytes (`compute_dtype="int8"`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.backends import registry
from luminal.base.dots import UINT8_BY_INT8
from luminal.compiler import compile
from luminal.kernel.tile_ir import Contract
from luminal.models.llama import Llama, LlamaConfig
from luminal.program.launch_list import LoopLaunch
from tests.long_share import long_rows, mostly_long

LAYERS, LONGEST, VOCABULARY = 4, 24, 96


def llama(kind: str, tied: bool = False) -> Llama:
    nn.init.manual_seed(0)
    sizes = LlamaConfig(64, 96, LAYERS, 4, 2, 16, VOCABULARY, LONGEST, tie_word_embeddings=tied)
    model = Llama(sizes)
    model.eval()
    lm.quantize(model, kind)
    return model.computing("int8")


def recorded(model: Llama, cached: bool) -> lm.Graph:
    """Any number of ids, after others where it is cached."""
    cx = lm.Graph()
    ids = cx.tensor((cx.dim("s", 1, LONGEST),), np.int64, "ids")
    if cached:
        model(ids, model.make_caches(LONGEST), cx.dim("past", 0, LONGEST - 1)).output("logits")
    else:
        model(ids).output("logits")
    return cx


def check(found: Any, wanted: Any) -> None:
    """Where a sum is another by the last bit, a byte may be, and its text's logits by a hundredth:
    seldom, so most tokens' are the same.
    """
    size = np.abs(wanted).max()
    errors = np.abs(np.asarray(found) - np.asarray(wanted)).max(-1) / size
    assert np.median(errors) < 1e-4, errors
    assert errors.max() < 0.03, errors


@pytest.mark.long
@pytest.mark.parametrize(("kind", "bits"), [("q6_k", 6.7), ("q4_k", 5), ("q5_k", 6)])
def test_layers_are_laid_out_in_the_bytes_of_the_format(kind: str, bits: float) -> None:
    nn.init.manual_seed(0)
    model = Llama(LlamaConfig(256, 256, LAYERS, 4, 2, 64, VOCABULARY, LONGEST)).eval()
    lm.quantize(model, kind)
    cx = recorded(model.computing("int8"), cached=False)
    ids = np.arange(LONGEST)
    exe = cx.compile()
    check(exe(ids=ids)["logits"], cx.compile("reference")(ids=ids)["logits"])
    program = compile.lower_to_program(cx.graph(), registry.compiling("cpu"))
    assert any(isinstance(each, LoopLaunch) for each in program.launches)
    weights = LAYERS * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 256) + VOCABULARY * 256
    assert exe.memory_report().derived_bytes <= weights * bits / 8


@pytest.mark.long
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_rolled_layers(kind: str, tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cx = recorded(llama(kind, tied), cached=False)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, LONGEST)
    rolled, reference = cx.compile(), cx.compile("reference")
    monkeypatch.setattr(compile, "roll", lambda graph, weights: graph)
    unrolled = cx.compile()
    for length in (1, 5, LONGEST):
        want = reference(ids=ids[:length])["logits"]
        check(rolled(ids=ids[:length])["logits"], want)
        check(unrolled(ids=ids[:length])["logits"], want)


FEW_BITS = (("q8_0", 140_000), ("q4_0", 75_000), ("int4", 55_000))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "most"), long_rows(FEW_BITS, [("q4_0", 75_000)]))
def test_rolled_layers_keep_few_bits(kind: str, most: int) -> None:
    exe = recorded(llama(kind), cached=False).compile()
    exe(ids=np.arange(5))
    assert 0 < exe.memory_report().derived_bytes <= most


def test_layers_are_one_loop_of_dots() -> None:
    model = llama("q8_0")
    backend = registry.compiling("cpu")
    program = compile.lower_to_program(recorded(model, cached=True).graph(), backend)
    loops = [each for each in program.launches if isinstance(each, LoopLaunch)]
    assert [each.trips.value for each in loops] == [LAYERS]
    if UINT8_BY_INT8 in backend.target.dots:
        dots = [s.dot for k in program.kernels for s in k.statements() if isinstance(s, Contract)]
        assert dots.count(UINT8_BY_INT8) >= 5  # of q and k and v, output, gate and up, down, logits


@pytest.mark.parametrize("kind", mostly_long(["q4_0", "q8_0"], 1))
def test_one_token_at_a_time(kind: str) -> None:
    model = llama(kind)
    ids = np.random.default_rng(1).integers(0, VOCABULARY, 12)
    want = recorded(model, cached=False).compile("reference")(ids=ids)["logits"]
    exe = recorded(model, cached=True).compile()
    found = [exe(ids=ids[:9], dims={"past": 0})["logits"]]
    found += [exe(ids=ids[k : k + 1], dims={"past": k})["logits"] for k in range(9, 12)]
    check(np.concatenate(found), want)
