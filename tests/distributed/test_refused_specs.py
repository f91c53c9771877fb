"""Which specs, plans and meshes are refused: by name, with the rule and the fix, nothing done."""

from __future__ import annotations

import random
import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.base.errors import InputError, LuminalError, ShapeError
from luminal.distribute.plans import axis_of, kinds_of, marks_of
from luminal.distributed import (
    Auto,
    DataParallel,
    MpiBackend,
    TensorParallel,
    read_plan,
    run_local,
)
from luminal.nn import functional as F
from luminal.training import ArrayDataset, Batches, fit

DATA, BOTH = lm.Mesh((2,), ("data",)), lm.Mesh((2, 2), ("data", "tensor"))


def new_model() -> nn.Module:
    return nn.Sequential({"0": nn.Linear(6, 4), "1": nn.BatchNorm1d(4), "q_proj": nn.Linear(6, 4)})


def marks(model: nn.Module) -> list[Any]:
    held = [*model.named_parameters(), *model.named_buffers()]
    return [marks_of(owner for _, owner in held), [owner.name for _, owner in held]]


FORM = "; give for each dimension None, the name of a mesh axis or a tuple of names"
NO_AXIS = ": the mesh has the axes data, and no "
SPECS: list[tuple[Any, str]] = [
    (0, f": 0 is no spec{FORM}"),
    (None, f": None is no spec{FORM}"),
    ({"data": None}, f": {{'data': None}} is no spec{FORM}"),
    ((0, None), f": 0 in the spec (0, None){FORM}"),
    ((None, "da ta"), f": 'da ta' in the spec (None, 'da ta'){FORM}"),
    ((("data", None),), f": ('data', None) in the spec (('data', None),){FORM}"),
    (("data", None, None), ": the spec ('data', None, None) has 3 entries for 2 dimensions; give"),
    ((("data",), "data"), ": the mesh axis 'data' stands twice in (('data',), 'data'); it can cut"),
    (("dta", None), f"{NO_AXIS}'dta'; did you mean 'data'?"),
    ((None, "x"), f"{NO_AXIS}'x'; give one of them"),
]


@pytest.mark.parametrize(("spec", "words"), SPECS)
def test_one_rule_for_specs_wherever_they_stand(spec: Any, words: str) -> None:
    model, p = new_model(), lm.Parameter((4, 6), name="p")
    before = marks(model)
    x = lm.Graph().tensor((4, 6), name="x")
    words = re.escape(words)
    with pytest.raises(ShapeError, match=f"^p{words}"):
        lm.shard(p, spec, DATA)
    assert p.spec is None
    with pytest.raises(ShapeError, match=rf"^shard of f32\[4, 6\]{words}"):
        lm.shard(x, spec, DATA)
    # The pattern before it fits, and is taken back.
    with pytest.raises(ShapeError, match=f"^0.weight{words}"):
        lm.shard(model, {"*.bias": ("data",), "0.weight": spec}, DATA)
    assert marks(model) == before


def test_a_name_alone_is_the_spec_of_the_first_dimension() -> None:
    model = lm.shard(new_model(), {"0.weight": "data", "0.bias": ["data"]}, DATA)
    parameters = dict(model.named_parameters())
    assert parameters["0.weight"].spec == (("data",), ())
    assert parameters["0.bias"].spec == (("data",),)
    assert lm.shard(lm.Parameter((4, 6)), "data").spec == (("data",), ())


PLANS: list[tuple[Any, lm.Mesh, str]] = [
    (
        "",
        DATA,
        "no plan ''; the plans are data, zero1, zero2, zero3, tensor, sequence, expert, auto, and ",
    ),
    ("Data", DATA, "no plan 'Data'; .*; did you mean 'data'"),
    ("tensor+", BOTH, "no plan '' in 'tensor\\+'"),
    ("auto+zero1", BOTH, "'auto' in 'auto\\+zero1': it chooses among all plans; give it alone"),
    ("zero1+zero3", DATA, "'zero1\\+zero3': of zero1, zero2, zero3 each .*; give one of them"),
    ("data+data", DATA, "'data\\+data': .* each name once"),
    ("tensor", DATA, "'tensor' cuts over the mesh axis 'tensor', and the mesh has data; name"),
    ("zero1", lm.Mesh((2,), ("tensor",)), "'zero1' cuts over the mesh axis 'data'"),
    ({0: ("data",)}, DATA, "the pattern 0 is no text; give paths"),
    ({"*.wieght": ("data",)}, DATA, "the pattern '\\*.wieght' matches no Parameter .*; did you"),
    (None, DATA, "the plan is None; give a name"),
]


@pytest.mark.parametrize(("plan", "mesh", "words"), PLANS)
def test_what_is_no_plan_is_refused(plan: Any, mesh: lm.Mesh, words: str) -> None:
    model = new_model()
    before = marks(model)
    with pytest.raises(InputError, match=words):
        lm.shard(model, plan, mesh)
    assert marks(model) == before


def test_plans_mean_the_same_in_any_order() -> None:
    assert kinds_of(" zero3 + tensor", BOTH) == ("tensor", "zero3")
    first, second = (lm.shard(new_model(), p, BOTH) for p in ("zero3+tensor", "tensor+zero3"))
    assert [p.spec for p in first.parameters()] == [p.spec for p in second.parameters()]
    assert (("tensor", "data"), ()) in [p.spec for p in first.parameters()]


def test_batches_are_cut_over_the_only_axis_unless_it_is_for_products() -> None:
    assert axis_of("zero1", lm.Mesh(4, "ranks")) == "ranks"
    assert axis_of("data", lm.Mesh(4, "tensor")) is None
    assert axis_of("data", lm.Mesh((2, 2), ("a", "b"))) is None
    assert axis_of("tensor", lm.Mesh(4, "ranks")) is None


def test_a_mistyped_axis_of_a_mark_is_told_with_its_value() -> None:
    def work(is_input: bool) -> None:
        graph = lm.Graph()
        x = graph.tensor((4, 6), name="x")
        (x if is_input else x.tanh()).shard("dta").output("y")
        lm.compile(graph, "reference", mesh=DATA)

    for what, is_input in (("input 'x'", True), ("Shard of x", False)):
        with pytest.raises(ShapeError, match=f"^{what}{NO_AXIS}'dta'; did you mean 'data'"):
            run_local(2, lambda _, is_input=is_input: work(is_input), timeout=20)


@pytest.mark.parametrize(
    ("shape", "names", "words"),
    [
        (None, "data", "None is no shape; give one entry for each axis, as in lm.Mesh"),
        ({"data": 2}, ("data",), "is no shape"),
        ((2,), {"data"}, "{'data'} is no tuple of names"),
        ((), (), "has 0 axes, .*, and one axis at least"),
        ((2, 2), "data", "has 2 axes, and there are 1 names"),
        ((True,), "data", "an axis has True ranks; give an int of at least 1"),
        (("data",), (2,), "an axis has 'data' ranks"),
        ((2,), ("da ta",), "the name 'da ta' of an axis is no word"),
    ],
)
def test_what_is_no_mesh_is_refused(shape: Any, names: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        lm.Mesh(shape, names)


def test_a_mesh_of_one_axis_is_written_short_and_takes_ints_of_numpy() -> None:
    assert lm.Mesh(np.int64(2), "data") == DATA  # type: ignore[arg-type]
    assert type(lm.Mesh((np.int64(2),), ("data",)).shape[0]) is int
    for coordinates in ({"data": 0}, {"data": 0, "tensor": 2}, None):
        with pytest.raises(ShapeError, match=r"no rank at .*; give the place along each"):
            BOTH.rank(coordinates)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"the ranks 0\.\.3, and no 4"):
        BOTH.coordinates(4)


def test_a_text_that_is_no_plan_for_its_mesh_is_refused() -> None:
    for text, words in (
        ("plan data", "has no mesh; give a line 'mesh data=8'"),
        ("mesh data=2\nplan tensor", "plan: plan 'tensor' cuts over the mesh axis 'tensor'"),
        ("mesh data=2\nmesh tensor=2", "'mesh tensor=2' is the second line 'mesh'; give one"),
        ("plan data\nmesh data=2\nplan zero1", "'plan zero1' is the second line 'plan'"),
        ("mesh data=\N{SUPERSCRIPT TWO}", "write data=8"),
    ):
        with pytest.raises(InputError, match=words):
            read_plan(text)
    assert read_plan("mesh data=2\nplan auto") == (DATA, "auto")


def test_what_auto_goes_by_is_read_when_it_is_given() -> None:
    for options, words in (
        ({"links": {"data": 1e9}}, "links is {'data': 1000000000.0}; give a Link for each"),
        ({"memory": "much"}, "memory 'much': give bytes, or a text as '200MB'"),
    ):
        with pytest.raises(LuminalError, match=words):
            Auto(**options)  # type: ignore[arg-type]


def test_what_is_named_last_no_longer_waits_for_a_choice() -> None:
    model = lm.shard(new_model(), "auto", DATA)
    parameters = dict(model.named_parameters())
    lm.shard(parameters["0.bias"], ("data",), DATA)
    assert [p.undecided is None for p in parameters.values()].count(True) == 1
    with pytest.raises(InputError, match="no plan 'zero'"):
        lm.shard(model, "zero", DATA)
    assert parameters["0.weight"].undecided is not None
    lm.shard(model, "data", DATA)
    assert all(p.undecided is None for p in parameters.values())


@pytest.mark.parametrize(
    ("plan", "mesh", "words"),
    [
        ("tensor", DATA, "fit: plan 'tensor' cuts over the mesh axis 'tensor', and the mesh has"),
        ("zero1+zero3", DATA, "fit: plan 'zero1\\+zero3'"),
        (None, lm.Mesh(2, "tensor"), "fit: plan 'data' cuts over the mesh axis 'data'"),
    ],
)
def test_fit_refuses_a_plan_before_it_begins(plan: Any, mesh: lm.Mesh, words: str) -> None:
    def work(engine: Any) -> None:
        rows = np.ones((4, 6), np.float32)
        data = Batches(ArrayDataset(rows, rows[:, :4]), 2)
        model = nn.Linear(6, 4)
        slots = optim.SGD(model.named_parameters(), lr=0.1)
        fit(model, F.mse_loss, data, slots, steps=1, mesh=mesh, plan=plan, progress=False)

    with pytest.raises(InputError, match=words):
        run_local(2, work, timeout=20)


def test_what_ranks_do_together_is_checked_where_it_is_written() -> None:
    with lm.spmd(DATA):
        x = lm.Graph().tensor((4, 6), name="x")
        with pytest.raises(ShapeError, match="the mesh has the axes data, and no 'dta'; did you"):
            lm.all_reduce(x, "dta")
        with pytest.raises(InputError, match=r"all_gather: takes a Tensor, got a int"):
            lm.all_gather(4, "data")  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"all_reduce: op=\[\]; it is 'sum' or 'max'"):
            lm.all_reduce(x, "data", [])  # type: ignore[arg-type]
        for pairs in ([(0,)], [(0, 1.5)], None, 5):
            with pytest.raises(InputError, match=r"pairs is .*; give .* of ranks, as"):
                lm.permute_ranks(x, "data", pairs)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="rank_along: got a int; give a Graph"):
            lm.rank_along(5, "data")


def test_a_dim_that_is_named_as_a_rank_s_place_is_refused() -> None:
    def work(by_rank: bool) -> None:
        with lm.spmd(DATA) if by_rank else nullcontext():
            graph = lm.Graph()
            x = graph.tensor((graph.dim("rank_data", 1, 8), 4), name="x")
            (lm.all_reduce(x, "data") if by_rank else x.sum(1).shard("data")).output("y")
        lm.compile(graph, "reference", mesh=DATA)

    for by_rank in (True, False):
        with pytest.raises(lm.DimError, match="rank_data: this is the name of a rank's own place"):
            run_local(2, lambda _, by_rank=by_rank: work(by_rank), timeout=20)


def test_wrappers_name_what_they_take() -> None:
    with pytest.raises(InputError, match="DataParallel: got a int; give a backend"):
        DataParallel(new_model(), 2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="DataParallel: got a list; give a Module"):
        DataParallel([], MpiBackend())  # type: ignore[arg-type]
    for size in (0, -1, 2.0, True):
        with pytest.raises(InputError, match=f"size={size} does not divide the 1 ranks"):
            TensorParallel(new_model(), MpiBackend(), size)  # type: ignore[arg-type]


ATOMS = (None, "data", "tensor", "dta", "", 0, -1, 2.0, True, b"data", np.str_("data"), {}, len)
NAMES = ("zero1", "zero3", "tensor", "data", "Data", "", "auto", "fsdp")


def drawn(rng: random.Random, depth: int = 2) -> Any:
    """Something that may be a spec, and mostly is none."""
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(ATOMS)
    items = [drawn(rng, depth - 1) for _ in range(rng.randrange(4))]
    return rng.choice([tuple, list, iter, tuple, tuple])(items)


def drawn_plan(rng: random.Random) -> Any:
    if rng.random() < 0.4:
        return "+".join(rng.choices(NAMES, k=rng.randint(1, 3)))
    paths = ("*", "0.weight", "*.bias", "nope", "1.running_mean", 0)
    return {rng.choice(paths): drawn(rng) for _ in range(rng.randint(0, 3))}


def test_random_plans_are_taken_or_refused_whole() -> None:
    rng, refused = random.Random(0), 0
    model = new_model()
    for _ in range(300):
        before, plan, mesh = marks(model), drawn_plan(rng), rng.choice((DATA, BOTH))
        try:
            lm.shard(model, plan, mesh)
        except LuminalError:
            refused += 1
            assert marks(model) == before, plan
        else:
            model = new_model()
    assert 100 < refused < 290
