"""`fast` on tiny graphs: which values are stored, local or inlined, and which are merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.algebra.frames import upper
from luminal.algebra.lower import lower
from luminal.base.errors import VerifyError
from luminal.base.numerics import Numerics
from luminal.kernel.cascade import Cascade, Member, Rate
from luminal.nn import functional as F
from luminal.program.selection import Residence, Selection, verify
from luminal.rolling.roll import roll
from luminal.selection.fast import Wishes, choose, respell, select
from luminal.selection.limits import KERNEL_TERMS
from tests.close import close
from tests.machines import COSTS


def selected(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Selection:
    cx = lm.Graph()
    tensors = [cx.tensor(shape, name=f"x{k}") for k, shape in enumerate(shapes)]
    results = fn(*tensors)
    for k, result in enumerate(results if isinstance(results, tuple) else (results,)):
        result.output(f"y{k}")
    selection = select(lower(cx.graph()), COSTS)
    verify(selection)
    return selection


def homes(selection: Selection, residence: Residence) -> list[str]:
    return [t.op for t, choice in selection.choices.items() if choice.residence is residence]


def test_softmax_keeps_its_row_and_its_reductions_local() -> None:
    selection = selected(lambda x: x.softmax(-1), (8, 64))
    assert homes(selection, Residence.STORED) == ["Div"]
    assert homes(selection, Residence.LOCAL) == ["Max", "Exp", "Sum"]


def test_an_epilogue_is_inlined_above_its_contraction() -> None:
    selection = selected(lambda x, w, b: (x @ w + b).relu(), (8, 64), (64, 32), (32,))
    assert homes(selection, Residence.STORED) == ["Maximum"]
    assert homes(selection, Residence.LOCAL) == ["Sum"]


def test_what_two_contractions_read_is_stored() -> None:
    selection = selected(lambda x, a, b: (x @ a).exp() @ b, (80, 64), (64, 32), (32, 96))
    assert homes(selection, Residence.STORED) == ["Exp", "Sum"]


def test_a_cheap_value_is_computed_again() -> None:
    selection = selected(lambda x: ((x + 1.0).sum(0), (x + 1.0).sum(1)), (64, 64))
    assert "Add" not in homes(selection, Residence.STORED)


def test_a_value_read_through_a_gather_is_stored_unless_cheap() -> None:
    def gathered(x: Any, at: Any) -> Any:
        return x.exp().take(at.cast(lm.int64), 0)

    assert "Exp" in homes(selected(gathered, (64,), (512,)), Residence.STORED)


def test_the_operand_of_an_expanded_product_is_stored_instead() -> None:
    def gradient(x: Any, w: Any) -> Any:
        y = F.max_pool2d(F.conv2d(x, w).relu(), 2)
        return lm.grad(y.square().sum(), x)

    selection = selected(gradient, (4, 3, 8, 8), (16, 3, 3, 3))
    stored = [t for t, choice in selection.choices.items() if choice.residence.is_stored]
    assert max(upper(t.axes) for t in stored) == 4 * 16 * 6 * 6  # with w it would be 27 times that


def test_a_reduction_read_at_other_positions_is_stored() -> None:
    selection = selected(lambda x: x.sum(1).flip(0), (8, 8))
    assert homes(selection, Residence.STORED) == ["Sum", "At"]
    assert selection.merges == ()


def test_reductions_of_one_operand_over_one_grid_are_merged() -> None:
    selection = selected(lambda x: (x.sum(1), x.max(1)[0]), (64, 64))
    (merge,) = selection.merges
    assert {"Sum", "Max"} <= {term.op for term in merge}


def test_kernels_have_bounds() -> None:
    def chain(x: Any) -> Any:
        y = x
        for _ in range(3 * KERNEL_TERMS):
            y = y + x
        return y

    selection = selected(chain, (64,))
    assert 6 <= len(homes(selection, Residence.STORED)) <= 8  # one per half of the bound
    assert all(len(merge) == 2 for merge in selection.merges)

    def many(x: Any) -> Any:
        return tuple((x + float(k)).exp() for k in range(3 * COSTS.streams))

    assert all(len(merge) <= COSTS.streams for merge in selected(many, (64,)).merges)


def test_a_long_concat_is_cut_along_its_chain() -> None:
    def joined(x: Any) -> Any:
        return lm.concat([x * float(k) for k in range(2, 100)], 0)

    assert len(homes(selected(joined, (3,)), Residence.STORED)) < 10


def test_constants_and_inputs_may_be_outputs() -> None:
    cx = lm.Graph()
    x = cx.tensor((3,), name="x")
    x.output("same")
    cx.constant(2.5).output("two and a half")
    cx.arange(4).output("positions")
    selection = select(lower(cx.graph()), COSTS)
    verify(selection)
    assert homes(selection, Residence.STORED) == ["Literal", "Index"]


def test_a_sum_of_a_stored_product_reads_that_product() -> None:
    """Merged, both sums would have stored every single product: rows * columns * inner extent."""

    def centred(x: Any, w: Any) -> Any:
        y = x @ w
        return y - y.mean(-1, keepdim=True)

    selection = selected(centred, (80, 64), (64, 48))
    assert homes(selection, Residence.STORED) == ["Sum", "Add"]
    assert homes(selection, Residence.LOCAL) == ["Sum"]
    assert homes(selected(lambda x: x.sum(1).sum(0), (8, 8)), Residence.LOCAL) == []


def test_nested_sums_chain() -> None:
    selection = selected(lambda x: (x.sum(), x.sum((1, 2)), x.sum(2)), (4, 8, 16))
    sums = [term for term in selection.choices if term.op == "Sum"]
    assert [len(term.attrs) for term in sums] == [1, 1, 1]


def test_a_value_belongs_to_one_pass() -> None:
    """The second softmax must not take the first one's output into its own pass."""

    def chain(x: Any, a: Any, b: Any, c: Any) -> Any:
        return ((x @ a).softmax(-1) @ b).softmax(-1) @ c

    cx = lm.Graph()
    tensors = [cx.tensor((24, 24), name=name) for name in "xabc"]
    chain(*tensors).output("y")
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((24, 24), dtype=np.float32) for name in "xabc"}
    expected = lm.compile(cx, "reference")(arrays)["y"]
    close(lm.compile(cx)(arrays)["y"], expected, ulp=16)


def test_what_weights_decide_shares_no_kernel_with_the_run() -> None:
    cx = lm.Graph()
    early = cx.weight((4, 8), name="w").sum(-1).output("early")
    late = cx.tensor((4, 8), name="x").sum(-1).output("late")
    (early + late).output("both")
    selection = select(lower(cx.graph()), COSTS)
    verify(selection)
    sums = frozenset(t for t in selection.choices if t.op == "Sum")
    with pytest.raises(VerifyError, match="a merge spans prologue and run"):
        verify(replace(selection, merges=(sums,)))


def test_what_only_its_own_merge_reads_is_not_stored() -> None:
    """A gate's gradients share a dear factor, which nothing else reads."""

    def gate(x: Any, y: Any, g: Any, w: Any) -> tuple[Any, ...]:
        dear = (x.exp() + 1).log()
        return g * dear, g * y * dear.exp(), dear * y

    selection = selected(gate, (64, 64), (64, 64), (64, 64), (64, 64))
    assert homes(selection, Residence.STORED) == ["Mul", "Mul", "Mul"]
    assert [len(merge) for merge in selection.merges] == [3]


def test_what_another_kernel_reads_as_well_stays_stored() -> None:
    def gate(x: Any, g: Any, w: Any) -> tuple[Any, ...]:
        dear = (x.exp() + 1).log()
        return g * dear, dear * dear.exp(), dear @ w

    selection = selected(gate, (64, 64), (64, 64), (64, 64))
    assert sorted(homes(selection, Residence.STORED)) == ["Log", "Mul", "Mul", "Sum"]


def attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT).softmax(-1) @ v


def test_a_cascade_is_recorded() -> None:
    selection = selected(attention, (40, 8), (70, 8), (70, 8))
    (cascade,) = selection.cascades
    assert cascade.first.op == "Max"
    rates = [member.rate for member in cascade.members]
    assert rates == [None, *[Rate(cascade.first, "Exp", -1.0)] * 2]
    assert [term.op for term in cascade.inner] == ["Sum"]
    assert selected(lambda x: x.softmax(-1), (8, 64)).cascades == ()


@pytest.mark.parametrize(("columns", "is_pass"), [(64, False), (600, True)])
def test_a_genome_asks_for_a_pass_and_takes_one_apart(columns: int, is_pass: bool) -> None:
    cx = lm.Graph()
    x, a, b = (
        cx.tensor(shape, name=name)
        for name, shape in (("x", (80, 48)), ("a", (48, columns)), ("b", (columns, 32)))
    )
    ((x @ a).relu() @ b).output("y")
    lowered = respell(lower(cx.graph()), COSTS, Numerics.STANDARD).lowered
    by_rule = choose(lowered, COSTS, Numerics.STANDARD)
    inner = next(t for t in by_rule.choices if t.op == "Sum")
    assert bool(by_rule.cascades) is is_pass
    for wish in (Residence.STORED, Residence.LOCAL):
        selection = choose(lowered, COSTS, Numerics.STANDARD, Wishes({inner: wish}))
        verify(selection)
        assert bool(selection.cascades) is (wish is Residence.LOCAL)
        assert selection.is_stored(inner) is (wish is Residence.STORED)


@pytest.mark.parametrize("layers", [1, 12])
@pytest.mark.parametrize(("rows", "is_pass"), [(64, False), (1 << 16, True)])
def test_a_gated_block_of_weights_streams_where_no_cache_holds_it(
    rows: int, is_pass: bool, layers: int
) -> None:
    """Products of their own have the weights in panels; in a rolled body they are arguments."""
    cx = lm.Graph()
    x = cx.tensor((rows, 128), name="x")
    for _ in range(layers):
        gate, up, down = nn.Linear(128, 384), nn.Linear(128, 384), nn.Linear(384, 128)
        x = x + down(gate(x).silu() * up(x))
    x.output("y")
    selection = select(lower(roll(cx.graph(), COSTS)), COSTS)
    whole = selection if layers == 1 else next(iter(selection.bodies.values()))
    assert bool(whole.cascades) is is_pass


def without_a_sum(found: Cascade) -> tuple[Cascade, ...]:
    return (replace(found, members=found.members[:2]),)


def at_another_rate(found: Cascade) -> tuple[Cascade, ...]:
    first, *sums = found.members
    rate = Rate(found.first, "Exp", -2.0)
    return (replace(found, members=(first, *(replace(m, rate=rate) for m in sums))),)


def in_another_sweep(found: Cascade) -> tuple[Cascade, ...]:
    first, *sums = found.members
    return (replace(found, members=(first, *(replace(m, sweep=1) for m in sums))),)


def without_the_contraction(found: Cascade) -> tuple[Cascade, ...]:
    return (replace(found, inner=()),)


def of_a_sum(found: Cascade) -> tuple[Cascade, ...]:
    return (replace(found, members=found.members[1:]),)


PLANTED: dict[str, tuple[Callable[[Cascade], tuple[Cascade, ...]], str]] = {
    "a sum left out": (without_a_sum, "is no cascade: its members are"),
    "another rate": (at_another_rate, "is no cascade: its members are"),
    "another sweep": (in_another_sweep, "is no cascade: its members are"),
    "a contraction left out": (without_the_contraction, "the contractions of a step are"),
    "a maximum left out": (of_a_sum, "is no cascade: its members are"),
    "twice": (lambda found: (found, found), "is no single one of one kernel"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_no_cascade_is_refused(name: str) -> None:
    plant, message = PLANTED[name]
    selection = selected(attention, (40, 8), (70, 8), (70, 8))
    with pytest.raises(VerifyError, match=message):
        verify(replace(selection, cascades=plant(*selection.cascades)))


def test_reductions_of_two_kernels_are_no_cascade() -> None:
    selection = selected(lambda x, w: (x @ w).softmax(-1), (8, 64), (64, 32))
    product, *_ = (t for t in selection.choices if t.op == "Sum")
    (maximum,) = (t for t in selection.choices if t.op == "Max")
    (total,) = (t for t in selection.choices if t.op == "Sum" and t is not product)
    sums = Member(total, rate=Rate(maximum, "Exp", -1.0))
    found = Cascade((Member(maximum), sums), (product,))
    with pytest.raises(VerifyError, match="is no cascade: no contraction"):
        verify(replace(selection, cascades=(found,)))
