"""Attention over keys and values that tables find: scores stay in one kernel, blocks are walked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.compiler.compile import lower_to_program
from luminal.kernel.tile_ir import Load
from luminal.nn.attention import Attention
from luminal.nn.cache import KVCache
from luminal.nn.paged import PagedCache, Places, Segment
from luminal.program.buffers import BufferKind
from tests.close import close

Array = np.ndarray[Any, Any]
HEADS, SHARED, SIZE, WIDTH, BLOCKS = 4, 2, 8, 16, 40  # heads, of keys; tokens and features


def graph() -> tuple[lm.Graph, PagedCache]:
    """A chunk of one text and a token each of `rows` others, all in one program."""
    cx = lm.Graph()
    chunk, rows, length, width = (
        cx.dim("chunk", 0, 32), cx.dim("rows", 0, 8), cx.dim("length", 1, 8), cx.dim("width", 1, 8)
    )  # fmt: skip
    tokens = chunk + rows
    q = cx.tensor((HEADS, tokens, WIDTH), name="q")
    k, v = (cx.tensor((SHARED, tokens, WIDTH), name=name) for name in "kv")
    positions, blocks, offsets = (
        cx.tensor((tokens,), lm.int32, name) for name in ("positions", "blocks", "offsets")
    )
    table = cx.tensor((1, length), lm.int32, "table")
    tables = cx.tensor((rows, width), lm.int32, "tables")
    places = Places(blocks, offsets, (Segment(table, chunk), Segment(tables, 1)))
    cache = PagedCache.of(KVCache.make(SHARED, SIZE, WIDTH, batch=BLOCKS), places)
    attention = Attention(HEADS * WIDTH, HEADS, SHARED, WIDTH)
    cache.attend(attention, q, k, v, positions).output("y")
    return cx, cache


def test_scores_are_never_stored_and_no_lane_looks_up_a_block() -> None:
    cx, _ = graph()
    made = lower_to_program(cx.graph(), registry.compiling("cpu"))
    for buffer in made.buffers:
        if buffer.kind is BufferKind.ARENA:
            names = " ".join(map(str, buffer.shape))
            assert not ("chunk" in names and "length" in names), buffer
            assert "width" not in names, buffer
    loads = [s for kernel in made.kernels for s in kernel.statements() if isinstance(s, Load)]
    found = [load for load in loads if load.indices and "b" in load.buffer]
    assert found
    assert not any(tile.axes for load in found for _, tile in load.indices)


def attended(q: Array, keys: Array, values: Array) -> Array:
    """One query (heads, width) over keys and values (heads of keys, n, width), in float64."""
    group = HEADS // SHARED
    keys, values = (np.repeat(each, group, 0) for each in (keys, values))
    scores = np.einsum("hd,hnd->hn", q, keys) / np.sqrt(WIDTH)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hn,hnd->hd", weights / weights.sum(-1, keepdims=True), values)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("chunk", "lengths"), [(11, (5, 30, 1)), (0, (17, 64)), (29, ())])
def test_texts_of_any_length(chunk: int, lengths: tuple[int, ...], backend: str) -> None:
    """`lengths`: of the rows' texts, each with the token of this run; a chunk starts its text."""
    rng = np.random.default_rng(0)
    cx, cache = graph()
    tokens, rows = chunk + len(lengths), len(lengths)
    q, k, v = (
        rng.standard_normal((h, tokens, WIDTH)).astype(np.float32) for h in (HEADS, SHARED, SHARED)
    )
    old = [rng.standard_normal((BLOCKS, SHARED, SIZE, WIDTH)).astype(np.float32) for _ in range(2)]
    cache.keys.set(old[0])
    cache.values.set(old[1])
    free = iter(rng.permutation(BLOCKS))
    width = max((-(-n // SIZE) for n in lengths), default=1)
    table = np.array([[next(free) for _ in range(max(1, -(-chunk // SIZE)))]], np.int32)
    tables = np.full((rows, width), BLOCKS, np.int32)
    for row, n in enumerate(lengths):
        for number in range(-(-n // SIZE)):
            tables[row, number] = next(free)
    positions = np.array([*range(chunk), *(n - 1 for n in lengths)], np.int32)
    own = [*(table[0, p // SIZE] for p in range(chunk))]
    own += [tables[row, (n - 1) // SIZE] for row, n in enumerate(lengths)]
    given = {
        "q": q, "k": k, "v": v, "positions": positions, "table": table, "tables": tables,
        "blocks": np.array(own, np.int32), "offsets": positions % SIZE,
    }  # fmt: skip
    found = cx.compile(backend)(given, dims={"chunk": chunk})["y"]
    for each, new in zip(old, (k, v), strict=True):
        each[own, :, positions % SIZE] = new.transpose(1, 0, 2)
    for token, position in enumerate(positions):
        blocks = table[0] if token < chunk else tables[token - chunk]
        reached = blocks[: position // SIZE + 1]
        keys, values = (
            each[reached].transpose(1, 0, 2, 3).reshape(SHARED, -1, WIDTH)[:, : position + 1]
            for each in old
        )
        wanted = attended(q[:, token].astype(np.float64), keys, values)
        close(found[:, token], wanted, ulp=8)
