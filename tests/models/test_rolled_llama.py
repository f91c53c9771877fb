"""A Llama of many layers compiles as one: one body, caches updated where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.compiler import compile
from luminal.hlir.graph import Graph
from luminal.models.llama import Llama
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import LoopLaunch, Program
from luminal.rolling.roll import roll
from tests.close import close
from tests.machines import COSTS
from tests.models.layered_llama import LONGEST, decode, llama


def prefill(model: Llama) -> lm.Graph:
    cx = lm.Graph()
    ids = cx.tensor((cx.dim("s", 1, LONGEST),), np.int64, "ids")
    model(ids).output("logits")
    return cx


def program(graph: Graph) -> Program:
    return compile.lower_to_program(graph, registry.compiling("cpu"))


@pytest.mark.parametrize("record", [decode, prefill])
def test_the_number_of_layers_does_not_change_the_code(record: Any) -> None:
    few, many = (program(record(llama(layers)).graph()) for layers in (3, 9))
    assert few.kernels == many.kernels
    assert len(few.launches) == len(many.launches)
    for made, trips in ((few, 3), (many, 9)):
        assert [each.trips.value for each in made.launches if isinstance(each, LoopLaunch)] == [
            trips
        ]


def test_caches_are_updated_in_place_and_nothing_is_copied() -> None:
    made = program(decode(llama(4)).graph())
    assert made.swaps == ()
    assert not any(buffer.kind is BufferKind.NEXT for buffer in made.buffers)
    (loop,) = [each for each in made.launches if isinstance(each, LoopLaunch)]
    assert "Copy" not in [launch.label for launch in (*made.launches, *loop.body) if launch != loop]


def test_decoding_agrees_with_the_reference_and_with_the_layers_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = llama(5)
    executables = [decode(model).compile(), decode(model).compile("reference")]
    monkeypatch.setattr(compile, "roll", lambda graph, weights: graph)
    executables.append(decode(model).compile())
    for past in range(LONGEST):
        ids = np.array([past * 7 % 64])
        found, *others = (exe(ids=ids, dims={"past": past})["logits"] for exe in executables)
        for other in others:
            close(found, other, ulp=8)


def test_prefill_agrees_with_the_reference() -> None:
    model = llama(5)
    exe, reference = prefill(model).compile(), prefill(model).compile("reference")
    for count in (1, 2, 13, LONGEST):
        ids = np.arange(count) * 11 % 64
        found, expected = exe(ids=ids)["logits"], reference(ids=ids)["logits"]
        close(found, expected, ulp=8)


def test_a_model_of_one_layer_is_as_it_was() -> None:
    graph = decode(llama(1)).graph()
    assert roll(graph, COSTS) is graph
