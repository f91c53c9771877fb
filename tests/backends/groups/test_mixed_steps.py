"""Steps of a server on devices: chunks of prompts beside rows of one token, over a paged cache."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Rotary
from luminal.selection import fast
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import checked
from tests.backends.groups.decode_graphs import mixed
from tests.backends.groups.launch_labels import labels
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import Case

BLOCKS, SIZE = 6, 4


def decoder(layers: int, *, hidden: int, heads: int) -> Decoder:
    config = DecoderConfig(
        vocab_size=50,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        layers=(LayerConfig(None, Rotary()),) * layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=8 if hidden < 512 else 64,
        max_position_embeddings=1024,
    )
    lm.manual_seed(3)
    return Decoder(config, "f32" if hidden < 512 else "bf16")


def step() -> Case:
    """A chunk of three tokens behind two, and two rows of one: texts of 5, 3 and 6 tokens."""
    model = decoder(1, hidden=16, heads=2)
    caches = model.make_caches(SIZE, batch=BLOCKS)
    graph = mixed(model, caches, 4)
    heads, tables = np.array([[4, 1]], np.int32), np.array([[0, BLOCKS], [5, 2]], np.int32)
    positions = np.array([2, 3, 4, 2, 5], np.int32)
    blocks = np.array([4, 4, 1, 0, 2], np.int32)
    inputs = {
        "ids": np.array([7, 1, 9, 30, 42], np.int32), "positions": positions, "blocks": blocks,
        "offsets": positions % SIZE, "heads": heads, "tables": tables,
    }  # fmt: skip
    rng = np.random.default_rng(0)
    states = {
        state: rng.standard_normal(np.shape(state.numpy()), np.float32)
        for cache in caches
        for state in (cache.keys, cache.values)
    }
    dims = {"prompts": 1, "chunk": 3, "rows": 2, "length": 2, "width": 2}
    run = Case(graph, inputs, dims, states)
    run.reset()
    return run


@pytest.mark.long
def test_a_step_gives_the_oracle_s_values() -> None:
    run = step()
    check_case(compiled_on(checked("cuda"), run.graph), run)


@pytest.mark.long
def test_scaling_all_queries_at_once_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    run = step()

    def logits() -> bytes:
        run.reset()
        exe = compiled_on(checked("cuda"), run.graph)
        return exe(run.inputs, dims=run.dims)["logits"].tobytes()

    once = logits()
    monkeypatch.setattr(fast, "scaled_whole", lambda program, costs: program)
    assert once == logits()


def test_launches_of_a_layer() -> None:
    """Norm and angles; q, k, v; rotations and cache; attention of chunks and of rows; what both
    give; its product; norm; the gated products; the last product.
    """
    backend = offline.backend("cuda")
    counts = []
    for layers in (1, 2):
        model = decoder(layers, hidden=1024, heads=16)
        caches = model.make_caches(16, batch=64)
        counts.append(len(labels(mixed(model, caches, 16), backend)))
    assert counts[1] - counts[0] == 9
