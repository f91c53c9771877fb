"""Llama blocks, with grouped heads, rotary embedding and causal mask, keep no scores in memory."""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.compiler.compile import lower_to_program
from luminal.kernel.tile_ir import Loop
from luminal.models.llama import Llama, LlamaConfig
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Program

CONFIG = LlamaConfig(
    hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, vocab_size=50, max_position_embeddings=256,
)  # fmt: skip


def program(new: int | None, cached: bool) -> Program:
    """Of one block on `new` tokens (None: any number), after `past` ones where there is a cache."""
    model = Llama(CONFIG).eval()
    cx = lm.Graph()
    length = cx.dim("s", 1, 256) if new is None else new
    ids = cx.tensor((length,), name="ids", dtype="int32")
    if cached:
        past = cx.dim("past", 0, 255)
        cx.require(past + length <= 256)
        model(ids, model.make_caches(256), past).output("y")
    else:
        model(ids).output("y")
    return lower_to_program(cx.graph(), registry.compiling("cpu"))


@pytest.mark.parametrize("new", [None, 1, 32])
def test_with_a_cache(new: int | None) -> None:
    made = program(new, cached=True)
    arena = [b for b in made.buffers if b.kind is BufferKind.ARENA]
    assert arena
    for buffer in arena:
        assert not any("past" in str(extent) for extent in buffer.shape), buffer


def test_without_a_cache() -> None:
    for buffer in program(None, cached=False).buffers:
        assert sum("s" in str(extent) for extent in buffer.shape) <= 1, buffer


def test_vectors_of_a_new_token_run_along_whole_heads() -> None:
    """Rotary positions cut a head in two: dot products go on along both halves as one."""
    for kernel in program(1, cached=True).kernels:
        for loop in kernel.statements():
            if isinstance(loop, Loop) and loop.vector > 1 and (loop.stop - loop.start).is_const:
                assert (loop.stop - loop.start).value >= min(loop.vector, CONFIG.head_dim), loop
