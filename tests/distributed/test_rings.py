"""Attention whose sequence is cut: keys and values go around a ring, forward and backward.

The bound: results are at most twice as far from float64 as those of one rank are, and 4 units in
the last place of the largest, in the dtype that results are rounded to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import optim
from luminal.base.costs import Link
from luminal.distribute import ring_steps
from luminal.distribute.distribute import Distributed
from luminal.distribute.explain import explanation, total_bytes
from luminal.distribute.layout import ahead
from luminal.distribute.mesh import Mesh
from luminal.distribute.move import Lying
from luminal.distribute.price import Machine, price
from luminal.hlir.ops import Value
from luminal.models.train import ModelSettings, new_llama, next_token_loss
from tests.distributed.rings import Attention, drawn, expected, on_mesh
from tests.distributed.whole import on_one, on_ranks

SHORT, CASES, CHUNK = 8, 200, 10
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


@pytest.mark.parametrize("spec", [(None, "sequence"), (None, "sequence/1")])
def test_a_llama_is_trained_on_a_cut_sequence(spec: tuple[str | None, ...]) -> None:
    mesh = Mesh((3,), ("sequence",))
    got, wanted = losses_of(spec, mesh), losses_of(None, mesh)
    for name, value in wanted.items():
        # Gradients of float32, added in another order.
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


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
    trained = [seed for seed in range(SHORT) if drawn(seed).is_trained]
    with pytest.raises(AssertionError, match="of Attention"):
        _all(trained)


def _all(seeds: list[int]) -> None:
    for seed in seeds:
        check(seed)
