"""Mixed precision: which dtypes a network computes in, and losses scaled against underflow."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn, optim
from luminal.frontend.matrices.matmul import autocast
from luminal.nn import functional as F
from luminal.training.amp import AMPContext, GradScaler
from tests.close import close_each
from tests.optim.pairs import SHAPES, Ours, Theirs, batches, loss_of


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)


def test_what_rounds_widens_and_stays() -> None:
    cx = lm.Graph()
    x, w = cx.tensor((4, 8), name="x"), lm.Parameter(normal(8, 8))
    image, kernel = cx.tensor((1, 2, 6, 6), name="image"), cx.tensor((3, 2, 3, 3), name="kernel")
    q, w8 = cx.tensor((2, 4, 8), name="q"), cx.tensor((8, 8), name="w8")
    half, double, whole = x.cast("float16"), x.cast("float64"), x.cast("int32")
    with AMPContext("bfloat16"):
        rounded = [
            x @ w, x @ normal(8, 2), x.matmul(x.mT),
            x.mm(x.mT), F.linear(x, weight=x, bias=x[:, 0]), half @ x.mT,
            lm.einsum("ij,kj->ik", x, x), lm.addmm(x[:, :4], x, x.mT),
            F.bilinear(x, x, lm.stack([w8, w8])),
            lm.tensordot(x, x, ((1,), (1,))), F.conv2d(image, kernel),
            F.conv_transpose2d(F.conv2d(image, kernel), kernel),
            F.scaled_dot_product_attention(q, key=q, value=q), nn.Linear(8, 3)(x),
            nn.Conv2d(2, 3, 3)(image), lm.tensordot(x @ x.mT, x, 1),
        ]  # fmt: skip
        low = x @ x.mT
        wide = [
            low.softmax(-1), low.log_softmax(-1), low.logsumexp(-1), low.layer_norm(),
            nn.RMSNorm(4)(low), F.group_norm(low.reshape(1, 4, 4), 2), F.mse_loss(low, low),
            F.cross_entropy(low, cx.constant(np.arange(4))), F.focal_loss(low, whole[:, 0]),
        ]  # fmt: skip
        same = [low.relu(), low + low, low.sum()]
        others = [double @ double.mT, whole @ whole.mT]
        kept = [lm.linalg.pinv(x), lm.linalg.matrix_power(x[:, :4], 3), x.cov()]
        with AMPContext(enabled=False):
            kept.append(x @ x.mT)
        with AMPContext("float16"):
            assert (x @ x.mT).dtype is lm.float16
        assert (x @ x.mT).dtype is lm.bfloat16
    assert [t.dtype.name for t in rounded] == ["bfloat16"] * len(rounded)
    assert [t.dtype.name for t in wide] == ["float32"] * len(wide)
    assert [t.dtype.name for t in same] == ["bfloat16"] * len(same)
    assert [t.dtype for t in others] == [lm.float64, lm.int32]
    assert [t.dtype.name for t in kept] == ["float32"] * len(kept)
    assert (x @ x.mT).dtype is lm.float32


def test_it_is_the_same_as_operands_cast_outside() -> None:
    cx = lm.Graph()
    q, w = cx.tensor((2, 4, 8), name="q"), cx.tensor((8, 8), name="w")
    low, other = q.cast("bfloat16"), w.cast("bfloat16")
    with AMPContext("bfloat16"):
        inside = [
            F.scaled_dot_product_attention(q, q, q),
            F.linear(q, w, w[0]),
            F.bilinear(q, q, w.unsqueeze(0).expand(3, 8, 8)),
            lm.einsum("abc,cd,de->abe", q, w, w),
        ]
    outside = [
        F.scaled_dot_product_attention(low, low, low),
        F.linear(low, other, w[0].cast("bfloat16")),
        F.bilinear(low, low, w.unsqueeze(0).expand(3, 8, 8).cast("bfloat16")),
        lm.einsum("abc,cd,de->abe", low, other, other),
    ]
    for a, b in zip(inside, outside, strict=True):
        assert a.value == b.value


def test_a_step_recorded_inside_is_not_rounded() -> None:
    values = []
    gradient = normal(6, 4)
    for enabled in (False, True):
        p = lm.Parameter(np.ones((6, 4), np.float32))
        cx = lm.Graph()
        with AMPContext("bfloat16", enabled):
            optim.Muon([p], lr=0.1).apply([cx.constant(gradient)])
        lm.compile(cx, "reference")()
        values.append(np.array(p.numpy()))
    np.testing.assert_array_equal(values[0], values[1])


def test_a_gradient_of_a_bias_is_summed_in_float32() -> None:
    layer, cx = nn.Linear(2, 1), lm.Graph()
    x = cx.constant(np.zeros((64, 2), np.float32))
    with AMPContext("float16"):
        y = layer(x)
    assert y.dtype is lm.float16
    loss = (y.cast("float32") * 2000).sum()  # 128,000 in all: beyond float16
    np.testing.assert_array_equal(lm.grad(loss, layer.bias).numpy(), [128000])


@AMPContext("bfloat16")
def product(x: lm.Tensor) -> lm.Tensor:
    return x @ x.mT


def test_a_function_may_be_recorded_in_it() -> None:
    cx = lm.Graph()
    assert product(cx.ones(2, 2)).dtype is lm.bfloat16
    with autocast(lm.float16):
        assert product(cx.ones(2, 2)).dtype is lm.bfloat16
        assert (cx.ones(2, 2) @ cx.ones(2, 2)).dtype is lm.float16


def network(kind: Any) -> Any:
    """Convolution, norm, attention, a head."""
    parts = {
        "conv": kind.Conv1d(4, 8, 3, padding=1),
        "norm": kind.LayerNorm(8),
        "query": kind.Linear(8, 24, bias=False),
        "head": kind.Linear(8, 5),
    }
    return kind.ModuleDict(parts)


def forward(net: Any, x: Any, F: Any) -> Any:
    """(batch, 4, length) to (batch, 5)."""
    hidden = net["conv"](x).transpose(1, 2)
    q, k, v = net["query"](net["norm"](hidden)).chunk(3, -1)
    hidden = hidden + F.scaled_dot_product_attention(q, k, v)
    return net["head"](F.gelu(hidden).mean(1))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_steps_are_near_those_of_torch_autocast(backend: str) -> None:
    torch.manual_seed(0)
    theirs, ours = network(torch.nn), network(nn)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    cx = lm.Graph()
    x, y = cx.tensor((6, 4, 7), name="x"), cx.tensor((6,), "int64", "y")
    with AMPContext("bfloat16"):
        loss = F.cross_entropy(forward(ours, x, F), y).output("loss")
    assert loss.dtype is lm.float32
    optim.AdamW(ours.parameters(), lr=0.01).step(loss, clip_norm=1.0)
    step = lm.compile(cx, backend)
    expected = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    rng = np.random.default_rng(0)
    ours_found, theirs_found = [], []
    for _ in range(8):
        a, b = rng.normal(0, 1, (6, 4, 7)).astype(np.float32), rng.integers(0, 5, 6)
        found = float(step({"x": a, "y": b})["loss"])
        expected.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits = forward(theirs, torch.from_numpy(a), torch.nn.functional)
            wanted = torch.nn.functional.cross_entropy(logits, torch.from_numpy(b))
        wanted.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        expected.step()
        ours_found.append(found)
        theirs_found.append(float(wanted.detach()))
    # two bfloat16 computations: a rounding is 2**-8, averaged over the network
    np.testing.assert_allclose(ours_found, theirs_found, rtol=0.02)
    assert all(p.dtype is lm.float32 for p in ours.parameters())


# --- loss scaling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_the_scale_moves_and_steps_are_skipped_as_in_torch(backend: str) -> None:
    ours, theirs = Ours(), Theirs()
    options: dict[str, Any] = {
        "init_scale": 2.0**10, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3
    }  # fmt: skip
    scaler, expected = GradScaler(**options), torch.amp.GradScaler("cpu", **options)
    optimizer = optim.Adam(ours.params.values(), lr=0.05)
    wanted = torch.optim.Adam(theirs.params.values(), lr=0.05)
    factor = ours.graph.tensor((), name="factor")
    norm = scaler.step(optimizer, ours.loss * factor, clip_norm=0.5)
    assert norm is not None
    norm.output("norm")
    step = lm.compile(ours.graph, backend)
    skipped = 0
    for k, (x, y) in enumerate(batches()):
        bad = {4: np.inf, 11: np.nan, 12: np.inf}.get(k, 1.0)
        found = step({"x": x, "y": y, "factor": np.float32(bad)})
        wanted.zero_grad()
        tensors = map(torch.from_numpy, (x, y))
        expected.scale(loss_of(*tensors, **theirs.params) * bad).backward()
        expected.unscale_(wanted)
        total = torch.nn.utils.clip_grad_norm_(theirs.params.values(), 0.5)
        expected.step(wanted)
        expected.update()
        skipped += not np.isfinite(bad)
        assert scaler.get_scale() == expected.get_scale(), k
        assert np.isfinite(found["norm"]) == np.isfinite(bad)
        if np.isfinite(bad):
            close_each(found["norm"], total, ulp=64)
        for name in SHAPES:
            value = theirs.params[name].detach()
            # steps that add up their rounding: 80 ulp of values about 1
            np.testing.assert_allclose(ours.params[name].numpy(), value, 1e-5, 1e-5, err_msg=name)
    assert scaler.state_dict()["skipped"] == skipped == 3
    assert optimizer.state_dict()["state"][0]["step"] == 17


def test_scaled_float16_gradients_do_not_vanish() -> None:
    found = {}
    for scale in (1.0, 2.0**14):
        w = lm.Parameter(np.full((4, 4), 0.5, np.float32))
        cx = lm.Graph()
        with AMPContext("float16"):
            loss = (cx.ones(2, 4) @ cx.weight_of(w)).cast("float32").mean() * 1e-7
        scaler = GradScaler(init_scale=scale)
        gradients, is_finite = scaler.unscale(optim.SGD([w]).gradients(scaler.scale(loss)))
        gradients[w].output("g")
        is_finite.output("finite")
        run = lm.compile(cx, "cpu")()
        assert run["finite"]
        found[scale] = run["g"]
    assert not found[1.0].any()
    # a gradient of float16: 2**-10 is its digit
    np.testing.assert_allclose(found[2.0**14], 2.5e-8, rtol=2e-3)


def test_the_scale_stays_finite() -> None:
    scaler = GradScaler(2.0**126, 4.0, growth_interval=1)
    cx = lm.Graph()
    scaler.update(cx.constant(True))
    lm.compile(cx, "reference")()
    assert scaler.get_scale() == 2.0**126


def test_a_scaler_is_saved_and_refuses() -> None:
    first, second = GradScaler(8.0), GradScaler()
    first.states["growth_tracker"].set(5)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == {"scale": 8.0, "growth_tracker": 5, "skipped": 0}
    with pytest.raises(lm.LoadError, match="no 'skipped'"):
        second.load_state_dict({"scale": 1.0, "growth_tracker": 1})
    with pytest.raises(lm.InputError, match="growth_factor=1"):
        GradScaler(growth_factor=1)
    with pytest.raises(lm.InputError, match="float32 has not 16 bits"):
        AMPContext("float32")
