"""Any choice of spellings computes what the program does; the default is the program itself."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.evaluate import evaluate
from luminal.algebra.lower import Lowered, lower
from luminal.algebra.terms import term_order
from luminal.backends.reference import evaluate_with_bounds
from luminal.base import config
from luminal.base.dtypes import dtype_of
from luminal.base.numerics import Numerics
from luminal.egraph import Classes, Limits, saturate
from luminal.hlir.graph import Output
from luminal.selection.fast import respell
from tests.close import close
from tests.fuzz.graphs import random_case
from tests.long_share import mostly_long
from tests.machines import COSTS
from tests.numerics.tolerance import compare
from tests.rules.programs import PROGRAMS, Program, program
from tests.term_inputs import inputs_of

Array = np.ndarray[Any, Any]


def any_choice(classes: Classes, rng: random.Random) -> dict[str, str]:
    """A random spelling of some classes."""
    share = rng.choice((0.1, 0.5, 1.0))
    return {
        gene.fingerprint: rng.choice(gene.spellings).fingerprint
        for gene in classes.genes()
        if rng.random() < share
    }


def values(lowered: Lowered, case: Program) -> list[Array]:
    return evaluate(lowered, inputs_of(lowered, case.inputs), case.dims, wide=True)


def check(name: str, count: int) -> None:
    case = program(name)
    lowered = lower(case.graph)
    default = respell(lowered, COSTS, Numerics.STANDARD)
    classes = saturate(lowered, COSTS, default.lowered, default.same)
    assert classes.spell({}) is default.lowered
    expected = values(lowered, case)
    rng = random.Random(name)
    for _ in range(count):
        choice = any_choice(classes, rng)
        found = values(classes.spell(choice), case)
        for x, y in zip(found, expected, strict=True):
            # constants of the program are float32, and rules fold them: 80 ulp
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6, err_msg=str(choice))


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_spellings_compute_the_same(name: str) -> None:
    check(name, 20)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_random_spellings_compute_the_same(name: str) -> None:
    check(name, 200)


def check_random_graphs(seeds: range, numerics: Numerics, count: int) -> None:
    """Spellings of random graphs against the default of `fast`: the same bits, or near them."""
    for seed in seeds:
        case = random_case(seed)
        case.reset()
        lowered = lower(case.graph)
        default = respell(lowered, COSTS, numerics)
        classes = saturate(lowered, COSTS, default.lowered, default.same, numerics)
        assert not classes.report.limit, seed
        assert classes.spell({}) is default.lowered
        leaves = inputs_of(lowered, case.inputs)
        bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims).outputs
        case.reset()
        expected = evaluate(lowered, leaves, case.dims)
        rng = random.Random(seed)
        for _ in range(count):
            spelled = classes.spell(any_choice(classes, rng))
            found = evaluate(spelled, leaves, case.dims)
            for root, x, y in zip(lowered.roots, found, expected, strict=True):
                if not isinstance(root.sink, Output):
                    continue
                if numerics is Numerics.EXACT:
                    assert x.dtype == y.dtype
                    assert np.all((x == y) | ((x != x) & (y != y))), seed
                else:
                    compare_finite(x, y, *bounds[root.sink.name], f"seed {seed}")


def compare_finite(
    x: Array, y: Array, value: Array, error: Array, unstable: Array, name: str
) -> None:
    """Where both are finite: rules may change when intermediates overflow."""
    if dtype_of(x).is_float:
        wide = np.isfinite(x.astype(np.float64)) & np.isfinite(y.astype(np.float64))
        unstable = unstable | ~wide
    compare(x, value, error, unstable, name=name, max_unstable=1.0)


@pytest.mark.parametrize("numerics", mostly_long([Numerics.STANDARD, Numerics.EXACT], 1))
def test_random_graphs(numerics: Numerics) -> None:
    check_random_graphs(range(25), numerics, 2)


@pytest.mark.long
@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.STANDARD])
@pytest.mark.parametrize("chunk", range(12))
def test_many_random_graphs(chunk: int, numerics: Numerics) -> None:
    check_random_graphs(range(25 * chunk, 25 * (chunk + 1)), numerics, 20)


def test_a_loop_body_is_a_program_of_its_own() -> None:
    cx = lm.Graph()
    x, weight = cx.tensor((3, 4), name="x"), cx.tensor((4, 4), name="w")

    def step(carried: lm.Tensor, row: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
        return (carried @ weight * 2 + row) * 1, carried.softmax(0)

    lm.scan(step, x, cx.tensor((5, 4), name="rows"))[0].output("y")
    lowered = lower(cx.graph())
    (loop,) = (t for t in term_order(r.term for r in lowered.roots) if t.op == "Loop")
    body = loop.attrs.body
    classes = saturate(body, COSTS)
    assert classes.genes()
    rng = np.random.default_rng(0)
    leaves = {}
    for value in body.arguments:
        sizes = tuple(int(n.evaluate({})) for n in value.shape)
        leaves[value] = rng.normal(size=sizes).astype(value.dtype.numpy)
    expected = evaluate(body, leaves, wide=True)
    for seed in range(10):
        spelled = classes.spell(any_choice(classes, random.Random(seed)))
        assert spelled.arguments == body.arguments
        for one, other in zip(evaluate(spelled, leaves, wide=True), expected, strict=True):
            # constants of the program are float32, and rules fold them: 80 ulp
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_no_choice_is_the_default_program() -> None:
    lowered = lower(program("llama").graph)
    classes = saturate(lowered, COSTS)
    assert classes.spell({}) is lowered
    assert classes.spell({"no class": "no spelling"}) is lowered
    same = {gene.fingerprint: gene.spellings[0].fingerprint for gene in classes.genes()}
    assert classes.spell(same) is lowered


def test_the_form_that_cascades_is_found() -> None:
    """`Sum(t, p*v) / l`."""
    lowered = lower(program("attention_causal").graph)
    classes = saturate(lowered, COSTS)
    (root,) = classes.roots
    assert any(spelling.op == "Div" for spelling in classes.classes[root].spellings)


def test_three_matrices_in_both_orders() -> None:
    lowered = lower(program("matrices").graph)
    classes = saturate(lowered, COSTS)
    (root,) = classes.roots
    of_sums = {s.attrs for s in classes.classes[root].spellings if s.op == "Sum"}
    assert len(of_sums) >= 2


def test_weights_of_contractions_that_share_an_operand_are_merged() -> None:
    """Q, K and V of a block; gate and up."""
    classes = saturate(lower(program("llama").graph), COSTS)
    names = {a.name for each in classes.classes for a in each.axes if a.name.endswith(".cat")}
    assert sorted(name.count("+") for name in names) == [1, 2]


@pytest.mark.long
def test_same_result_in_any_process() -> None:
    script = (
        "from luminal.algebra.lower import lower\n"
        "from luminal.egraph import saturate\n"
        "from tests.machines import COSTS\n"
        "from tests.rules.programs import program\n"
        "for name in ('llama', 'cnn', 'moe'):\n"
        "    for each in saturate(lower(program(name).graph), COSTS).classes:\n"
        "        print(each.fingerprint, each.phase, sorted(a.name for a in each.axes))\n"
        "        for s in each.spellings:\n"
        "            print(s.op, s.args, s.dtype, s.fingerprint, s.rule)\n"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(texts[0].splitlines()) > 300
    assert texts[0] == texts[1]


def test_limits_are_reported_and_leave_a_right_program() -> None:
    case = program("llama")
    lowered = lower(case.graph)
    expected = values(lowered, case)
    for limits, reached in ((Limits(nodes=100), "nodes"), (Limits(rounds=1), "rounds"),
                            (Limits(seconds=0.0), "seconds")):  # fmt: skip
        classes = saturate(lowered, COSTS, limits=limits)
        assert classes.report.limit == reached
        spelled = classes.spell(any_choice(classes, random.Random(0)))
        for x, y in zip(values(spelled, case), expected, strict=True):
            close(x, y)


def test_choices_that_close_a_cycle_give_way() -> None:
    """`1/(1/x)` and x are one class: each of the two classes can be spelled by the other."""
    cx = lm.Graph()
    x = cx.tensor((3,), name="x")
    y = x.exp()
    (y.reciprocal() + y.reciprocal().reciprocal()).output("y")
    lowered = lower(cx.graph())
    classes = saturate(lowered, COSTS)
    array = np.asarray([0.5, 1, 2], np.float32)
    leaves = inputs_of(lowered, {"x": array})
    for seed in range(40):
        rng = random.Random(seed)
        choice = {g.fingerprint: rng.choice(g.spellings).fingerprint for g in classes.genes()}
        (found,) = evaluate(classes.spell(choice), leaves, wide=True)
        # constants of the program are float32, though it is evaluated in float64
        np.testing.assert_allclose(found, np.exp(array) + np.exp(-array), rtol=1e-6)


def test_an_axis_that_a_class_lacks_is_fixed_at_0() -> None:
    """A Select with equal arms does not depend on its condition; nor on an axis only that has."""
    cx = lm.Graph()
    x, c = cx.tensor((3, 1), name="x"), cx.tensor((1, 4), name="c")
    chosen = lm.where((c < 0).expand(3, 4), x.expand(3, 4) + 0, x.expand(3, 4) * 1)
    chosen.output("y")
    lowered = lower(cx.graph())
    classes = saturate(lowered, COSTS)
    array = np.asarray([[1], [2], [3]], np.float32)
    leaves = inputs_of(lowered, {"x": array, "c": np.zeros((1, 4), np.float32)})
    for gene in classes.genes():
        for spelling in gene.spellings:
            spelled = classes.spell({gene.fingerprint: spelling.fingerprint})
            (found,) = evaluate(spelled, leaves)
            np.testing.assert_array_equal(found, np.repeat(array, 4, 1))


def test_flags_print_the_program_and_draw_the_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with config.override(LUMINAL_PRINT_EGGLOG=1, LUMINAL_GRAPHVIZ=tmp_path):
        saturate(lower(program("softmax").graph), COSTS)
    printed = capsys.readouterr().err
    assert '(rule ((= _e (Binary "Mul" x y)))' in printed
    assert ' "Exp" ' in printed
    (picture,) = tmp_path.glob("*.dot")
    assert picture.read_text().startswith("digraph egraph {")


@pytest.mark.long
def test_time_of_a_block() -> None:
    """At most 0.5 s for a Llama block, without the import of egglog."""
    lowered = lower(program("llama").graph)
    saturate(lowered, COSTS)
    start = time.thread_time()
    saturate(lowered, COSTS)
    assert time.thread_time() - start < 0.5
