"""Steps of a server on devices: pieces of prompts beside rows of one token, over a paged cache."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.c_backend import CBackend
from luminal.backends.reference import evaluate_with_bounds
from luminal.base.dtypes import bfloat16, float32
from luminal.compiler.compile import lower_to_program
from luminal.kernel.tile_ir import Contract
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Rotary
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import KernelLaunch, Program, walk
from luminal.selection import fast
from luminal.serve.blocks import BlockPool
from luminal.serve.program import StepInputs, inputs_of, recorded
from luminal.serve.scheduler import Row, Step, Text
from tests.backends.c_family import checked as by_matrices
from tests.backends.c_family import offline
from tests.backends.c_family.dialects import checked
from tests.backends.groups.launch_labels import labels
from tests.backends.on_device import compiled_on
from tests.fuzz.graphs import Case

BLOCKS, SIZE = 9, 4


def decoder(layers: int, *, hidden: int, heads: int, width: int = 64) -> Decoder:
    config = DecoderConfig(
        vocab_size=50,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        layers=(LayerConfig(None, Rotary()),) * layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // (4 if heads > 16 else 2),
        head_dim=width,
        max_position_embeddings=1024,
    )
    lm.manual_seed(3)
    return Decoder(config, "f32" if hidden < 512 else "bf16")


def step_inputs() -> StepInputs:
    """A chunk of 18 tokens behind two, which is two pieces, and two rows of one token each."""
    pool = BlockPool(BLOCKS, SIZE)
    texts = [Text([*range(1, 21)], 21), Text([30] * 3, 4), Text([42, *range(5)], 7)]
    for text, blocks in zip(texts, ([4, 1, 7, 3, 8], [0], [5, 2]), strict=True):
        text.blocks = blocks
    rows = Row(texts[1], 2, 1), Row(texts[2], 5, 1)
    return inputs_of(Step(rows, (Row(texts[0], 2, 18),), ()), pool)


def step(dtype: lm.DType = float32) -> Case:
    """The step of a small decoder with keys and values of a dtype, of any old values."""
    model = decoder(1, hidden=16, heads=4, width=8)
    caches = model.make_caches(SIZE, dtype, batch=BLOCKS)
    graph = recorded(model, caches, 4, 4, 8, ("top_logprobs",)).graph()
    inputs = step_inputs()
    dims = {
        "pieces": len(inputs.heads), "rows": len(inputs.tables),
        "length": inputs.heads.shape[1], "width": inputs.tables.shape[1],
    }  # fmt: skip
    rng = np.random.default_rng(0)
    states = {
        state: rng.standard_normal(np.shape(state.numpy()), np.float32).astype(dtype.numpy)
        for cache in caches
        for state in (cache.keys, cache.values)
    }
    run = Case(graph, inputs._asdict(), dims, states)
    run.reset()
    return run


@pytest.mark.long
@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_a_step_gives_the_oracle_s_values(dtype: lm.DType) -> None:
    run = step(dtype)
    bounds = evaluate_with_bounds(run.graph, run.inputs, run.dims)
    run.reset()
    backend = checked("cuda") if dtype is float32 else by_matrices.checked()
    program = lower_to_program(run.graph, backend)
    dots = {s.dot for k in program.kernels for s in k.statements() if isinstance(s, Contract)}
    assert any(dot.is_matrix for dot in dots) == (dtype is bfloat16)
    found = compiled_on(backend, run.graph)(run.inputs, dims=run.dims)["top_logprobs"]
    # Sums in another order; where what they give is rounded to 16 bits, a few roundings turn.
    near = 1e-4 if dtype is float32 else 2e-2
    # Of the tokens alone those of random weights could be others.
    np.testing.assert_allclose(found, bounds.outputs["top_logprobs"][0], rtol=near, atol=near)
    assert len(bounds.states) == 2
    for state, (value, *_) in bounds.states.items():
        kept = np.asarray(state.numpy(), np.float32)
        np.testing.assert_allclose(kept, np.asarray(value, np.float32), rtol=near, atol=near)


@pytest.mark.long
def test_scaling_all_queries_at_once_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    run = step()

    def logprobs() -> bytes:
        run.reset()
        exe = compiled_on(checked("cuda"), run.graph)
        return exe(run.inputs, dims=run.dims)["logprobs"].tobytes()

    once = logprobs()
    monkeypatch.setattr(fast, "scaled_whole", lambda program, costs: program)
    assert once == logprobs()


def test_launches_of_a_layer() -> None:
    """Norm and angles; q, k, v; rotations and cache; attention of chunks and of rows; what both
    give; its product; norm; the gated products; the last product.
    """
    backend = offline.backend("cuda")
    counts = []
    for layers in (1, 2):
        model = decoder(layers, hidden=1024, heads=16)
        caches = model.make_caches(16, batch=64)
        counts.append(len(labels(recorded(model, caches, 16, 16, 16).graph(), backend)))
    assert counts[1] - counts[0] == 9


def of_llama(layers: int, dtype: lm.DType) -> Program:
    """A step of up to 64 rows and 8 pieces of a Llama of a billion weights, for sm_90a."""
    model = decoder(layers, hidden=2048, heads=32).computing("bfloat16")
    caches = model.make_caches(16, dtype, batch=4096)
    return lower_to_program(recorded(model, caches, 64, 8, 128).graph(), sm_90a())


def sm_90a() -> CBackend:
    backend = registry.compiling("cuda:sm_90a")
    assert isinstance(backend, CBackend)
    return backend


def attentions(program: Program) -> list[KernelLaunch]:
    """The launches that take maxima of what they multiply, over pages."""
    found = [launch for launch in walk(program.launches) if isinstance(launch, KernelLaunch)]
    return [launch for launch in found if {"Contract", "Max"} <= {*launch.label.split(".")}]


def test_attention_over_pages_is_by_matrix_rows_and_stores_nothing_of_them() -> None:
    program = of_llama(1, bfloat16)
    launches = attentions(program)
    assert len(launches) == 2  # of the pieces and of the rows, whose four heads share keys
    for launch in launches:
        products = [
            s for s in program.kernels[launch.kernel].statements() if isinstance(s, Contract)
        ]
        assert products
        assert all(product.dot.is_matrix for product in products)
    for buffer in program.buffers:
        names = " ".join(map(str, buffer.shape))
        if buffer.kind is BufferKind.ARENA:
            assert "width" not in names, buffer
            assert "length" not in names, buffer


@pytest.mark.long
def test_what_a_layer_of_a_step_takes() -> None:
    """64 texts behind 512 tokens on an H100 by the model: 0.27 ms, where it was 1.05 ms with keys
    in float32 and products in blocks for 8,256 tokens.
    """
    backend, dims = sm_90a(), {"rows": 64, "pieces": 0, "width": 32, "length": 1}
    taken = []
    for layers in (1, 2):
        program = of_llama(layers, bfloat16)
        total = 0.0
        for launch in walk(program.launches):
            assert isinstance(launch, KernelLaunch)
            kernel = program.kernels[launch.kernel]
            values = (int(value.evaluate(dims)) for value in launch.params)
            params = {p.name: value for p, value in zip(kernel.params, values, strict=True)}
            size = float(launch.bytes.evaluate(dims))
            total += backend.predict(
                kernel, params, float(launch.flops.evaluate(dims)), size
            ).seconds
        taken.append(total)
    assert taken[1] - taken[0] < 0.3e-3
