"""Predicted steps: what collectives take, what hides, and which plan is chosen."""

from __future__ import annotations

import functools

import pytest

import luminal as lm
from luminal.base.costs import Link
from luminal.base.dtypes import float32
from luminal.base.errors import InputError
from luminal.distribute.choose import Named, choices, meshes_of, priced
from luminal.distribute.mesh import Mesh
from luminal.distribute.move import Moved, Reason
from luminal.distribute.plans import read_plan
from luminal.distribute.price import Machine, Price, collective_seconds
from luminal.hlir.graph import Graph
from luminal.hlir.prune import pruned
from luminal.hlir.sharding import sent
from luminal.models.train import ModelSettings, next_token_loss, unfilled_llama
from luminal.optim import AdamW
from luminal.shape.expression import const

LINK = Link(1e-5, 1e9)
SMALL = ModelSettings(256, 512, 2, 8, 128, num_key_value_heads=4)


@pytest.mark.parametrize("ranks", [2, 4, 64, 1024])
def test_a_large_all_reduce_is_bound_by_bandwidth_and_a_small_one_by_latency(ranks: int) -> None:
    # Thakur et al.: 2 (P-1)/P n / b for large ones, log2 P rounds for small ones.
    large = collective_seconds("all_reduce", 1e9, ranks, LINK)
    # rel: the latency of a large one and the bytes of a small one are less than that.
    assert large == pytest.approx(2 * (ranks - 1) / ranks * 1e9 / 1e9, rel=0.01)
    small = collective_seconds("all_reduce", 8, ranks, LINK)
    assert small == pytest.approx((ranks - 1).bit_length() * 1e-5, rel=0.01)  # as above
    halves = collective_seconds("reduce_scatter", 1e9, ranks, LINK)
    parts = collective_seconds("all_gather", 1e9 / ranks, ranks, LINK)
    assert halves + parts == pytest.approx(large, rel=0.02)  # as above, and twice


@functools.cache
def step() -> tuple[Graph, Named]:
    """A training step of a small Llama, recorded once for all tests of a process."""
    model = unfilled_llama(SMALL, 512)
    graph = lm.Graph("step")
    ids, targets = (graph.tensor((64, 128), "int32", name=name) for name in ("ids", "targets"))
    loss = next_token_loss(model(ids), targets)
    loss.output("loss")
    AdamW(model.named_parameters(), lr=1e-3).step(loss, clip_norm=1.0)
    return pruned(graph.graph()), [*model.named_parameters()]


@functools.cache
def planned(far: Link, memory: float = 1e12) -> dict[str, Price]:
    """The price of each mesh and plan for two ranks, the chosen one first."""
    inputs = dict.fromkeys(("ids", "targets"), (("data",), ()))
    found = choices(
        *step(), lambda *_: inputs, meshes_of(2), Machine(1e13, 1e12, memory),
        lambda mesh: dict.fromkeys(mesh.names, far),
    )  # fmt: skip
    return {choice.text(): choice.price for choice in found}


@pytest.mark.long
def test_a_slow_link_between_nodes_costs_and_never_less_than_a_fast_one() -> None:
    fast, slow = planned(Link(1e-5, 1e9)), planned(Link(1e-5, 1e7))
    assert fast.keys() == slow.keys()
    assert all(slow[plan].seconds >= fast[plan].seconds for plan in fast)
    assert slow["mesh data=2\nplan data"].seconds > 2 * fast["mesh data=2\nplan data"].seconds


@pytest.mark.long
def test_where_memory_is_short_the_fastest_that_fits_is_chosen() -> None:
    roomy = planned(LINK)
    first, *others = roomy.values()
    room = min(cost.peak for cost in others)
    assert room < first.peak
    chosen = next(iter(planned(LINK, room).values()))
    fitting = [cost for cost in roomy.values() if cost.peak <= room]
    assert chosen.seconds == min(cost.seconds for cost in fitting)
    none = planned(LINK, 1.0)
    assert next(iter(none.values())).peak == min(cost.peak for cost in none.values())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all_gather", 36),
        ("all_reduce", 18),
        ("reduce_scatter", 9),
        ("all_to_all", 9),
        ("permute", 12),
    ],
)
def test_what_a_rank_sends_is_one_number_wherever_it_is_asked(kind: str, expected: int) -> None:
    # Of 12 elements on 4 ranks.
    assert sent(kind, const(12), 4) == expected
    row = Moved(kind, "data", 4, (const(12),), float32, Reason("x", "a test"))
    assert row.bytes == 4 * expected


def test_a_step_sends_what_its_collectives_do() -> None:
    prices = planned(LINK)
    # On two ranks an all_reduce sends as many bytes as it is of: gradients, the loss, the count.
    elements = sum(p.numel() for p in unfilled_llama(SMALL, 512).parameters())
    assert prices["mesh data=2\nplan data"].sent == 4 * (elements + 2)
    # Half of that by a reduce_scatter, half by an all_gather; the norm is one scalar more.
    assert prices["mesh data=2\nplan zero1"].sent == 4 * (elements + 3)


def test_a_plan_is_text_that_can_be_given_back() -> None:
    first = next(iter(planned(LINK)))
    mesh, plan = read_plan("# chosen by hand\n" + first)
    assert (
        first
        == "mesh "
        + " ".join(f"{n}={k}" for n, k in zip(mesh.names, mesh.shape, strict=True))
        + f"\nplan {plan}"
    )
    with pytest.raises(InputError, match="'data=x' in 'mesh data=x'; write data=8"):
        read_plan("mesh data=x")
    with pytest.raises(InputError, match="'plans zero1' is neither"):
        read_plan("plans zero1")


def test_what_is_shared_is_looked_at_once() -> None:
    # Sums of a value and itself, as those of random numbers are: as many paths as 2^60.
    graph = lm.Graph()
    x = graph.tensor((8,), name="x")
    for _ in range(60):
        x = x + x.tanh()
    x.sum().output("y")
    mesh = Mesh((1,), ("data",))
    cost = priced(graph.graph(), [], {}, mesh, "data", Machine(1e9, 1e9, 1e9), {})
    assert cost.kernels == 4 * (8 + 1) / 1e9
