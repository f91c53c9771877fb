"""Attention whose sequence is cut: keys and values go around a ring, forward and backward.

The bound: results are at most twice as far from float64 as those of one rank are, and 4 units in
the last place of the largest, in the dtype that results are rounded to.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import optim
from luminal.backends.reference.interpreter import Arrays, interpret
from luminal.base.costs import Link
from luminal.distribute import ring_steps
from luminal.distribute.distribute import Distributed
from luminal.distribute.explain import explanation, total_bytes
from luminal.distribute.layout import ahead, in_unit_steps
from luminal.distribute.mesh import Mesh
from luminal.distribute.move import Lying
from luminal.distribute.price import Machine, price
from luminal.distributed import run_local
from luminal.hlir.ops import Value
from luminal.hlir.prune import pruned
from luminal.hlir.sharding import coordinate, dims_at
from luminal.memory.state import Assignable
from luminal.models.train import ModelSettings, new_llama, next_token_loss
from luminal.runtime.collectives.engine import Engine
from luminal.shape.condition import linear_form
from luminal.shape.view import index
from tests.distributed.rings import (
    Attention,
    Decode,
    arrays_of,
    cached,
    drawn,
    expected,
    graph_of,
    on_mesh,
)
from tests.distributed.whole import on_one, on_ranks

Array = np.ndarray[Any, Any]
SHORT, CASES, CHUNK = 4, 200, 10
EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-8}


def check(seed: int) -> Attention:
    """A drawn attention: values, what is sent, and that all of it goes around."""
    case = drawn(seed)
    results, out = on_mesh(case, seed)
    alone, wide = expected(case, seed)
    assert results.keys() == alone.keys()
    for name, value in wide.items():
        got, one = (x[name].astype(np.float64) for x in (results, alone))
        far = np.abs(one - value).max(initial=0)
        bound = 2 * far + 4 * EPSILON[case.dtype] * np.abs(value).max(initial=0)
        assert np.array_equal(np.isnan(got), np.isnan(value)), f"seed {seed}: {name} of {case}"
        off = np.abs(got - value).max(initial=0)
        assert off <= bound, f"seed {seed}: {name} of {case}: {off} > {bound}"
    assert total_bytes(out) == case.sends, f"seed {seed}: {case}: {explanation(out, case.mesh)}"
    assert {row.kind for row in out.rows} == {"permute"}
    assert priced(out, case) == case.sends
    return case


def priced(out: Distributed, case: Attention) -> float:
    """The bytes that a price of the program says a rank sends."""
    links = dict.fromkeys(case.mesh.names, Link(1e-6, 1e9))
    return price(out, Machine(1e12, 1e11, 1e9), links).sent


@pytest.mark.parametrize("seed", range(SHORT))
def test_a_ring_is_the_attention_of_one_rank(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CASES // CHUNK))
def test_many_rings_are_the_attention_of_one_rank(chunk: int) -> None:
    for seed in range(CHUNK * chunk, CHUNK * (chunk + 1)):
        check(seed)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_masks_of_dealt_positions_have_unit_steps(ranks: int) -> None:
    i, j, rank = index(0, 5), index(1, 5), coordinate("sequence", ranks)
    for places in range(ranks):
        for window in (None, 2):
            key = j * ranks + (rank + places) % ranks
            query = i * ranks + rank
            seen = key <= query
            if window is not None:
                seen = seen & (key + window * ranks > query)
            spelled = in_unit_steps(seen)
            loops = [linear_form(c) for c in (spelled.args if spelled.op == "and" else (spelled,))]
            assert {abs(form.coefficient(s).value) for form in loops for s in (i, j)} == {1}
            for at in range(ranks):
                env: dict[str, Any] = {"i0": np.arange(5)[:, None], "i1": np.arange(5)}
                env |= dims_at({"sequence": at})
                np.testing.assert_array_equal(spelled.evaluate(env), seen.evaluate(env))


def losses_of(spec: tuple[str | None, ...] | None, mesh: Mesh) -> dict[str, Any]:
    """The loss of a step of training a Llama, and all Parameters after it."""
    lm.manual_seed(0)
    model = new_llama(ModelSettings(16, 24, 1, 4, 16, num_key_value_heads=2), 32)
    graph = lm.Graph()
    ids, following = (graph.tensor((2, 10), "int32", name=name) for name in ("ids", "following"))
    if spec is not None:
        ids, following = ids.shard(*spec), following.shard(*spec)
    loss = next_token_loss(model(ids), following)
    loss.output("loss")
    optim.SGD(model.named_parameters(), lr=0.1).step(loss, clip_norm=1.0)
    rng = np.random.default_rng(1)
    arrays = {name: rng.integers(0, 32, (2, 10)).astype(np.int32) for name in ("ids", "following")}
    if spec is None:
        outputs, new = on_one(graph.graph(), arrays)
    else:
        outputs, new, out = on_ranks(graph.graph(), mesh, None, {}, arrays)
        shapes = {(row.kind, row.shape) for row in out.rows if row.kind != "permute"}
        wide = [shape for kind, shape in shapes if kind == "all_gather" and len(shape) > 3]
        assert sum(row.kind == "permute" for row in out.rows) == 2 * 2 + 2 * 2 + 2 * 2
        assert not wide  # neither keys nor scores are gathered
    held = {path: new[parameter] for path, parameter in model.named_parameters()}
    return {"loss": outputs["loss"], **held}


@pytest.mark.parametrize(
    "spec", [pytest.param((None, "sequence"), marks=pytest.mark.long), (None, "sequence/1")]
)
def test_a_llama_is_trained_on_a_cut_sequence(spec: tuple[str | None, ...]) -> None:
    mesh = Mesh((3,), ("sequence",))
    got, wanted = losses_of(spec, mesh), losses_of(None, mesh)
    for name, value in wanted.items():
        # Gradients of float32, added in another order.
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


# --- a cache that is cut by positions

DECODES = [
    Decode(ranks, deal, rows, room, is_integers)
    for ranks, deal, room in (
        (2, "sequence", 8),
        (3, "sequence", 10),
        (2, "sequence/1", 9),
        (4, "sequence/2", 12),
    )
    for rows in (1, 3)
    for is_integers in (False, True)
]


def attended_at(case: Decode, position: int) -> None:
    """Queries at a position see what those of one rank do, and each rank keeps what is its own."""
    rng = np.random.default_rng(position)
    arrays = {
        name: rng.standard_normal((heads, case.rows, 4)).astype(np.float32)
        for name, heads in (("q", 6), ("k", 3), ("v", 3))
    }
    dims = {"at": position}
    if case.is_integers:
        arrays["at"], dims = np.arange(position, position + case.rows), {}
    graph, cache = cached(case)
    states: dict[Assignable, Any] = {s: s.spec for s in (cache.keys, cache.values)}
    mesh = Mesh((case.ranks,), ("sequence",))
    got, new, out = on_ranks(graph.graph(), mesh, None, states, arrays, dims=dims)
    alone, own = cached(case, is_cut=False)
    results = interpret(pruned(alone.graph()), arrays, dims, Arrays())
    # Two sums of float32, added in another order.
    np.testing.assert_allclose(got["y"], results.outputs["y"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(new[cache.keys], results.states[own.keys])
    np.testing.assert_array_equal(new[cache.values], results.states[own.values])
    (row,) = out.rows
    elements = 6 * case.rows * (4 + 2)  # weighted sums, a maximum and a sum
    assert (row.kind, row.bytes) == ("all_gather", elements * 4 * (case.ranks - 1))


@pytest.mark.parametrize("case", DECODES[:2] + DECODES[9:10])
def test_a_cut_cache_is_attended_by_one_collective(case: Decode) -> None:
    for position in (0, case.room // 2, case.room - case.rows):
        attended_at(case, position)


@pytest.mark.long
@pytest.mark.parametrize("case", DECODES)
def test_cut_caches_at_all_positions(case: Decode) -> None:
    for position in range(case.room - case.rows + 1):
        attended_at(case, position)


@pytest.mark.long
def test_threads_write_on_with_a_cut_cache() -> None:
    case, steps = Decode(2, "sequence", 1, 6, is_integers=False), 6
    rng = np.random.default_rng(3)
    rows = [
        {
            n: rng.standard_normal((h, 1, 4)).astype(np.float32)
            for n, h in zip("qkv", (6, 3, 3), strict=True)
        }
        for _ in range(steps)
    ]

    def work(engine: Any) -> list[Array]:
        graph = cached(case)[0]
        exe = lm.compile(graph, mesh=Mesh((2,), ("sequence",)))
        out = [np.array(exe(one, dims={"at": k})["y"]) for k, one in enumerate(rows)]
        assert exe.memory_report().state_bytes == 2 * 3 * 3 * 4 * 4  # half of each
        return out

    alone = lm.compile(cached(case, is_cut=False)[0], "reference")
    for k, one in enumerate(rows):
        wanted = alone(one, dims={"at": k})["y"]
    results = run_local(2, work)
    for out in results:
        np.testing.assert_allclose(out[-1], wanted, rtol=1e-5, atol=1e-6)  # as above


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_what_is_sent_was_predicted(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh((ranks,), ("sequence",))
    case = Attention(mesh, "sequence/1", 1, 4, 2, 16, 16, 8, "causal", 0.0, "float32", True)
    sent: Counter[str] = Counter()
    start = Engine.start

    def counted(self: Any, kind: Any, source: Any, *others: Any, **options: Any) -> Any:
        if self.rank == 0 and kind == "permute":
            sent[kind] += source.nbytes
        return start(self, kind, source, *others, **options)

    monkeypatch.setattr(Engine, "start", counted)
    arrays = arrays_of(case, 0)

    def work(engine: Any) -> None:
        exe = lm.compile(graph_of(case), mesh=mesh)
        exe({name: array[:, :, engine.rank :: ranks] for name, array in arrays.items()})

    run_local(ranks, work)
    assert sent["permute"] == case.sends


# --- planted faults


def _not_rescaled(_: Any, x: Lying, *__: Any) -> Lying:
    return x


def _by_own_positions(axis: str, _: int) -> str:
    return ahead(axis, 0)


_AT, _FURTHER = ring_steps._Travels.at, ring_steps._Travels.one_further


def _one_step_short(self: Any, value: Value, x: Lying, step: int) -> Value:
    return _AT(self, value, x, max(step - 1, 0))


def _not_sent_home(self: Any, x: Value, what: Value) -> Value:
    is_gradient = what.node in self._ring.ends.values()
    return x if is_gradient else _FURTHER(self, x, what)


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "a sum does not follow its maximum": (ring_steps, "_rescaled", _not_rescaled),
    "masks and pads are those of own keys": (ring_steps, "ahead", _by_own_positions),
    "the ring is a step short": (ring_steps._Travels, "at", _one_step_short),
    "gradients of keys end elsewhere": (ring_steps._Travels, "one_further", _not_sent_home),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    trained = [seed for seed in range(6) if drawn(seed).is_trained]
    with pytest.raises(AssertionError, match="of Attention"):
        _all(trained)


def _all(seeds: list[int]) -> None:
    for seed in seeds:
        check(seed)
