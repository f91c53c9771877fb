"""Which parameters a step updates, with which options: groups, tied, frozen, of other dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn, optim
from tests.close import close, close_each
from tests.optim.pairs import Ours, Theirs, assert_near, batches


def normals(*shape: int) -> Iterator[np.ndarray[Any, Any]]:
    """Another array for each call of next."""
    rng = np.random.default_rng(0)
    while True:
        yield rng.normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_groups_have_rates_and_options_of_their_own(name: str, backend: str) -> None:
    ours, theirs = Ours(), Theirs()
    rate = ours.graph.tensor((), name="lr")
    other = {"AdamW": {"betas": (0.5, 0.9)}, "SGD": {"momentum": 0.9}}[name]

    def groups(params: dict[str, Any], lr: Any) -> list[dict[str, Any]]:
        first = {"params": [params["w"]], "lr": lr, "weight_decay": 0.2}
        rest = {"params": [params["b"], params["scale"], params["nothing"]], **other}
        return [first, rest]

    optimizer = getattr(optim, name)(groups(ours.params, rate), lr=0.03)
    expected = getattr(torch.optim, name)(groups(theirs.params, 0.0), lr=0.03)
    optimizer.step(ours.loss)
    step = lm.compile(ours.graph, backend)
    before = lm.compile_count()
    for k, (x, y) in enumerate(batches()):
        expected.param_groups[0]["lr"] = 0.1 / (k + 1)
        theirs.step(expected, x, y)
        step({"x": x, "y": y, "lr": np.float32(0.1 / (k + 1))})
        assert_near(ours.numpy(), theirs.numpy())
    assert lm.compile_count() == before


def test_a_rate_may_be_a_state() -> None:
    rate = lm.State((), init=0.5, name="rate")
    p = lm.Parameter(np.ones(2, np.float32))
    cx = lm.Graph()
    optim.SGD([p], lr=rate).apply([cx.ones(2)])
    step = lm.compile(cx, "reference")
    step()
    rate.set(0.25)
    step()
    np.testing.assert_array_equal(p.numpy(), [0.25, 0.25])


class Tied(nn.Module):
    """An embedding whose table is the head's weight too; a frozen scale; a layer not called."""

    def __init__(self) -> None:
        self.table = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.table.weight
        self.scale = nn.Parameter(np.full(4, 2, np.float32), requires_grad=False)
        self.unused = nn.Linear(3, 3)

    def forward(self, tokens: lm.Tensor) -> lm.Tensor:
        """Logits."""
        return self.head(self.table(tokens) * self.read(self.scale, tokens))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_tied_frozen_and_unused_parameters(backend: str) -> None:
    model = Tied().initialize(0)
    table = torch.nn.Parameter(torch.from_numpy(np.array(model.table.weight.numpy())))
    kept = {n: np.array(p.numpy()) for n, p in model.named_parameters() if "table" not in n}
    cx = lm.Graph()
    tokens, target = (cx.tensor((5,), "int64", name) for name in ("tokens", "target"))
    loss = nn.functional.cross_entropy(model(tokens), target).output("loss")
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    optimizer.step(loss)
    assert list(optimizer.state) == [model.table.weight]
    step, expected = lm.compile(cx, backend), torch.optim.Adam([table], lr=0.05)
    for k in range(20):
        batch = np.random.default_rng(k).integers(0, 6, (2, 5))
        step({"tokens": batch[0], "target": batch[1]})
        seen, wanted = torch.from_numpy(batch)
        expected.zero_grad()
        logits = torch.nn.functional.embedding(seen, table) * 2 @ table.T
        torch.nn.functional.cross_entropy(logits, wanted).backward()
        expected.step()
        close(model.table.weight.numpy(), table.detach(), ulp=8)
    for name, p in model.named_parameters():
        if name in kept and p is not model.table.weight:
            np.testing.assert_array_equal(p.numpy(), kept[name], err_msg=name)


def test_float64_parameters_have_float64_moments() -> None:
    ours, theirs = Ours(np.float64), Theirs(np.float64)
    optimizer = optim.NAdam(ours.params.values(), lr=0.01)
    expected = torch.optim.NAdam(theirs.params.values(), lr=0.01)
    optimizer.step(ours.loss)
    step = lm.compile(ours.graph, "reference")
    for x, y in batches(np.float64):
        step({"x": x, "y": y})
        theirs.step(expected, x, y)
    # NAdam's product of momenta is a float32, in PyTorch as here
    assert_near(ours.numpy(), theirs.numpy(), 1e-6)
    states = optimizer.state[ours.params["w"]]
    assert states["exp_avg"].dtype is lm.float64


def test_float64_steps_are_exact_to_float64() -> None:
    ours, theirs = Ours(np.float64), Theirs(np.float64)
    optimizer = optim.AdamW(ours.params.values(), lr=0.01)
    expected = torch.optim.AdamW(theirs.params.values(), lr=0.01)
    optimizer.step(ours.loss)
    step = lm.compile(ours.graph, "cpu")
    for x, y in batches(np.float64):
        step({"x": x, "y": y})
        theirs.step(expected, x, y)
    assert_near(ours.numpy(), theirs.numpy(), 1e-12)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_bfloat16_parameters_are_rounded_once_a_step(backend: str) -> None:
    arrays = normals(4, 3)
    first = next(arrays).astype(ml_dtypes.bfloat16)
    p = lm.Parameter(first)
    q = torch.nn.Parameter(torch.from_numpy(first.astype(np.float32)))
    cx = lm.Graph()
    optimizer = optim.AdamW([p], lr=0.05)
    optimizer.apply([cx.tensor((4, 3), "bfloat16", "g")])
    assert {s.dtype for s in optimizer.state[p].values()} == {lm.float32, lm.int64}
    step, expected = lm.compile(cx, backend), torch.optim.AdamW([q], lr=0.05)
    for _ in range(20):
        g = next(arrays).astype(ml_dtypes.bfloat16)
        step({"g": g})
        q.grad = torch.from_numpy(g.astype(np.float32))
        expected.step()
        q.data = q.data.bfloat16().float()  # what PyTorch computes in float32, rounded as ours
    found = p.numpy().astype(np.float32)
    np.testing.assert_allclose(found, q.detach(), 2**-7)  # one rounding may fall the other way
    assert np.mean(found == q.detach().numpy()) > 0.7


def test_a_parameter_that_joins_later_counts_its_own_steps() -> None:
    p, q = (lm.Parameter(np.ones(2, np.float32)) for _ in range(2))
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer, expected = optim.Adam([p, q], lr=0.1), torch.optim.Adam([a, b], lr=0.1)
    alone, both = lm.Graph(), lm.Graph()
    optimizer.apply({p: alone.tensor((2,), name="g")})
    optimizer.apply({p: both.tensor((2,), name="g"), q: both.tensor((2,), name="h")})
    first, second = (lm.compile(cx, "reference") for cx in (alone, both))
    arrays = normals(2)
    for k in range(6):
        g, h = next(arrays), next(arrays)
        a.grad = torch.from_numpy(g)
        b.grad = None if k < 3 else torch.from_numpy(h)
        if k < 3:
            first({"g": g})
        else:
            second({"g": g, "h": h})
        expected.step()
    close_each(p.numpy(), a.detach())
    close_each(q.numpy(), b.detach())


def test_runs_that_are_skipped_change_nothing() -> None:
    p = lm.Parameter(np.ones(3, np.float32))
    cx = lm.Graph()
    optimizer = optim.Adam([p], lr=0.1)
    optimizer.apply([cx.tensor((3,), name="g")], when=cx.tensor((), "bool", "go"))
    step = lm.compile(cx, "cpu")
    g = np.asarray([1, np.nan, np.inf], np.float32)
    step({"g": g, "go": np.asarray(False)})
    np.testing.assert_array_equal(p.numpy(), 1)
    states = optimizer.state[p]
    assert {name: float(np.abs(s.numpy()).max()) for name, s in states.items()} == {
        "step": 0.0,
        "exp_avg": 0.0,
        "exp_avg_sq": 0.0,
    }
    step({"g": np.ones(3, np.float32), "go": np.asarray(True)})
    # one step in float32: 8 ulp, and 80 behind a product
    np.testing.assert_allclose(p.numpy(), 0.9, 1e-6)


def test_names_come_from_pairs_and_weights_stand_for_their_parameters() -> None:
    model = nn.Linear(2, 3)
    assert [*optim.SGD(model.named_parameters()).names.values()] == ["weight", "bias"]
    cx = lm.Graph()
    w = cx.weight((2, 2), name="w")
    assert optim.SGD([w]).names == {w.value.node.attrs.parameter: "w"}


def test_a_parameter_is_one_variable_however_the_graph_reads_it() -> None:
    p = lm.Parameter(np.array([1.0, -2.0, 3.0], np.float32))
    cx = lm.Graph()
    optim.SGD([p], lr=0.1).step((cx.read(p) * cx.weight_of(p)).sum() + (cx.read(p) * 2).sum())
    lm.compile(cx)({})
    np.testing.assert_allclose(p.numpy(), [0.6, -1.8, 2.2], 1e-6)  # p - 0.1 * (2 * p + 2)


def test_what_is_refused() -> None:
    p = lm.Parameter(np.ones(2, np.float32), name="p")
    with pytest.raises(lm.InputError, match="Adam: got no parameters"):
        optim.Adam([])
    with pytest.raises(lm.InputError, match="p is given twice"):
        optim.Adam([p, p])
    with pytest.raises(lm.InputError, match="p is given twice"):
        optim.Adam([{"params": [p]}, {"params": p}])
    with pytest.raises(lm.InputError, match="no option 'momentum'; the options are lr, betas"):
        optim.Adam([{"params": [p], "momentum": 0.9}])
    with pytest.raises(lm.InputError, match="no Parameter of floats"):
        optim.Adam([lm.Parameter([1, 2])])
    with pytest.raises(lm.InputError, match="Adam: lr=-1; it must be a number of at least 0"):
        optim.Adam([p], lr=-1)
    with pytest.raises(
        lm.InputError,
        match=r"betas=\(0.9, 1.0\); it must be 2 numbers, each a number of at least 0",
    ):
        optim.Adam([p], betas=(0.9, 1.0))
    with pytest.raises(lm.InputError, match="nesterov needs momentum"):
        optim.SGD([p], nesterov=True)
    with pytest.raises(lm.InputError, match=r"p has the shape \(2,\) and is no matrix"):
        optim.Muon([p])
    muon = optim.Muon([lm.Parameter((2, 2))])
    with pytest.raises(lm.InputError, match="is no matrix"):
        muon.add_param_group({"params": p})
    muon.add_param_group({"params": p, "use_muon": False})  # what was refused is not known yet
    with pytest.raises(lm.InputError, match="match_rms_adamw"):
        optim.Muon([p], adjust_lr_fn="other", use_muon=False)
    cx = lm.Graph()
    optimizer = optim.Adam([p])
    with pytest.raises(lm.GraphError, match="depends on none of its 1 parameters"):
        optimizer.step(cx.tensor((), name="x") * 2)
    with pytest.raises(lm.ShapeError, match="no scalar"):
        optimizer.step(cx.weight_of(p) * 2)
    with pytest.raises(lm.InputError, match="2 gradients for 1 parameters"):
        optimizer.apply([None, None])
    with pytest.raises(lm.InputError, match="none of its parameters"):
        optimizer.apply({lm.Parameter((2,)): cx.ones(2)})
    with pytest.raises(lm.InputError, match=r"gradient of p has the shape \(3,\)"):
        optimizer.apply([cx.ones(3)])
    with pytest.raises(lm.GraphError, match="lr: takes one number"):
        optim.SGD([p], lr=cx.tensor((2,), name="rates")).apply([cx.ones(2)])
    with pytest.raises(lm.ShapeError, match="sgd_on_graph: the lists hold 1, 0 Tensors"):
        optim.sgd_on_graph([cx.ones(2)], [], 0.1)
