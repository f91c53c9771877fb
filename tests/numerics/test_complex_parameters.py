"""Complex Parameters and States beside PyTorch's: values, gradients, steps, files."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import nn
from luminal.base.errors import DTypeError, GraphError, LoadError, ShapeError
from luminal.training.accumulate import GradientAccumulator
from luminal.training.ema import EMA
from tests.close import close_to_greatest
from tests.long_share import long_but

torch = pytest.importorskip("torch")

rng = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def spectral(library: Any, weight: Any, turn: Any) -> Any:
    """A layer with a complex weight, as Fourier neural operators have, and a complex buffer."""

    class Spectral(library.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = library.nn.Parameter(library.tensor(weight))
            self.gain = library.nn.Parameter(library.ones(1))
            self.register_buffer("turn", library.tensor(turn))

        def forward(self, x: Any) -> Any:
            low = library.fft.rfft(x)[..., : self.weight.shape[1]]
            z = library.einsum("bk,ok->bo", low * self.turn, self.weight) * self.gain
            return (
                library.abs(z + self.weight[:, 0]) + (self.weight.conj() * self.weight).real.sum()
            )

    return Spectral()


def pair() -> tuple[Any, Any, Any]:
    weight, turn = numbers(3, 4), numbers(4)
    x = rng.standard_normal((5, 8)).astype(np.float32)
    return spectral(lm, weight, turn), spectral(torch, weight, turn), x


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "Adam": {"lr": 0.05},
    "SGD": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    "AdamW": {"lr": 0.05, "amsgrad": True},
    "RMSprop": {"lr": 0.01, "momentum": 0.5},
    "Adagrad": {"lr": 0.05},
    "Adadelta": {"lr": 1.0},
    "RAdam": {"lr": 0.05},
}


@pytest.mark.parametrize("name", long_but(OPTIMIZERS, {"Adam"}))
def test_three_steps_are_pytorchs(name: str) -> None:
    ours, theirs, x = pair()
    options = OPTIMIZERS[name]
    step, their_step = (
        getattr(library.optim, name)(layer.parameters(), **options)
        for library, layer in ((lm, ours), (torch, theirs))
    )
    inputs, their_inputs = lm.tensor(x), torch.tensor(x)
    for number in range(3):
        loss, their_loss = ours(inputs).square().mean(), theirs(their_inputs).square().mean()
        # Before any step, as of a forward pass; then of three steps in float32.
        close_to_greatest(loss.numpy(), their_loss.detach().numpy(), 1e-4 if number else 1e-5)
        step.zero_grad()
        their_step.zero_grad()
        loss.backward()
        their_loss.backward()
        close_to_greatest(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), 1e-4)
        step.step()
        their_step.step()
        close_to_greatest(ours.weight.numpy(), theirs.weight.detach().numpy(), 1e-4)
    found, wanted = step.state_dict()["state"][0], their_step.state_dict()["state"][0]
    for slot, moment in found.items():
        if slot != "step":
            assert moment.dtype == np.complex64
            close_to_greatest(moment, wanted[slot].numpy(), 1e-4)


def test_a_recorded_step_with_clipping() -> None:
    ours, theirs, x = pair()
    step, their_step = (
        lm.optim.SGD(ours.parameters(), lr=0.1),
        torch.optim.SGD(theirs.parameters(), lr=0.1),
    )
    cx = lm.Graph()
    loss = ours(cx.tensor((5, 8), name="x")).square().mean()
    loss.output("loss")
    norm = step.step(loss, clip_norm=1.0)
    assert norm is not None
    norm.output("norm")
    results = cx.compile()(x=x)
    their_loss = theirs(torch.tensor(x)).square().mean()
    their_loss.backward()
    their_norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
    their_step.step()
    close_to_greatest(results["norm"], their_norm.numpy(), 1e-5)
    close_to_greatest(ours.weight.numpy(), theirs.weight.detach().numpy(), 1e-5)


def test_states_and_files_go_both_ways(tmp_path: Path) -> None:
    ours, theirs, x = pair()
    theirs.load_state_dict({k: torch.tensor(v) for k, v in ours.state_dict().items()})
    fresh = spectral(lm, numbers(3, 4), numbers(4))
    fresh.load_state_dict(theirs.state_dict())
    close_to_greatest(fresh(lm.tensor(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), 1e-5)
    lm.save(tmp_path / "a.safetensors", ours.state_dict())
    read = pytest.importorskip("safetensors.torch").load_file(tmp_path / "a.safetensors")
    assert np.array_equal(read["weight"].numpy(), ours.weight.numpy())
    again = lm.load(tmp_path / "a.safetensors")
    assert again["turn"].dtype == np.complex64
    fresh.load_state_dict(again)
    assert np.array_equal(fresh.turn.numpy(), ours.turn.numpy())
    assert np.array_equal(torch.from_dlpack(ours.weight).numpy(), ours.weight.numpy())
    with pytest.raises(LoadError, match=r"weight: expected shape \(3, 4\), got \(3, 4, 2\)"):
        fresh.load_state_dict(again | {"weight": np.zeros((3, 4, 2), np.float32)})


@pytest.mark.long
def test_optimizers_states_go_both_ways() -> None:
    ours, theirs, x = pair()
    step = lm.optim.Adam(ours.parameters(), lr=0.05)
    their_step = torch.optim.Adam(theirs.parameters(), lr=0.05)
    their_loss = theirs(torch.tensor(x)).square().mean()
    their_loss.backward()
    their_step.step()
    ours.load_state_dict(theirs.state_dict())
    step.load_state_dict(their_step.state_dict())
    loss = ours(lm.tensor(x)).square().mean()
    loss.backward()
    step.step()
    their_step.zero_grad()
    theirs(torch.tensor(x)).square().mean().backward()
    their_step.step()
    close_to_greatest(ours.weight.numpy(), theirs.weight.detach().numpy(), 1e-4)


def test_what_a_complex_parameter_is() -> None:
    value = numbers(2, 3)
    p = nn.Parameter(value, name="w")
    assert (p.shape, p.ndim, p.numel(), p.dtype, p.is_complex()) == (
        (2, 3),
        2,
        6,
        lm.complex64,
        True,
    )
    assert "w: c64[2, 3]" in repr(p)
    assert f"{value[0, 0].real:.4f}".rstrip("0") in repr(p)
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert np.array_equal(twin.numpy(), value)
        assert twin.dtype is lm.complex64
    p.set(np.ones((2, 3)))  # real numbers are complex ones
    assert np.array_equal(p.numpy(), np.ones((2, 3)))
    p.set([[1j] * 3, [2.0] * 3])
    assert p.numpy()[0, 1] == 1j
    empty = nn.Parameter((2,), dtype=lm.complex128)
    assert not empty.has_value
    with pytest.raises(ShapeError, match=r"expected shape \(2, 3\), got \(2, 3, 2\)"):
        p.set(np.zeros((2, 3, 2)))
    with pytest.raises(DTypeError, match="is not made of numbers"):
        p.set("x")
    with pytest.raises(DTypeError, match="is complex; pass its real and imaginary part"):
        nn.Parameter([1j], dtype=lm.float32)


def test_averages_are_pytorchs() -> None:
    ours, theirs, x = pair()
    average = EMA(ours.parameters(), 0.75)
    swa = torch.optim.swa_utils
    their_average = swa.AveragedModel(theirs, multi_avg_fn=swa.get_ema_multi_avg_fn(0.75))
    step = lm.optim.SGD(ours.parameters(), lr=0.1)
    their_step = torch.optim.SGD(theirs.parameters(), lr=0.1)
    cx = lm.Graph()
    step.step(ours(cx.tensor((5, 8), name="x")).square().mean())
    average.update(cx)
    run = cx.compile()
    for _ in range(3):
        run(x=x)
        their_step.zero_grad()
        theirs(torch.tensor(x)).square().mean().backward()
        their_step.step()
        their_average.update_parameters(theirs)
    wanted = their_average.module.weight.detach().numpy()
    close_to_greatest(average.averages[ours.weight].numpy(), wanted, 1e-4)
    saved = average.state_dict()
    again = EMA(ours.parameters(), 0.75)
    again.load_state_dict(saved)
    with again.swapped():
        close_to_greatest(ours.weight.numpy(), wanted, 1e-4)
    assert not np.allclose(ours.weight.numpy(), wanted)
    with pytest.raises(DTypeError, match="is complex; pass its real and imaginary part"):
        EMA([nn.Parameter(numbers(2).real)]).load_state_dict({"count": 1, "averages": [[1j, 2]]})


@pytest.mark.parametrize("clip", [None, pytest.param(0.5, marks=pytest.mark.long)])
def test_gradients_that_add_up_are_those_of_a_large_batch(clip: float | None) -> None:
    ours, theirs, _ = pair()
    batches = rng.standard_normal((4, 5, 8)).astype(np.float32)
    step = lm.optim.Adam(ours.parameters(), lr=0.05)
    both = GradientAccumulator(step, 2)
    their_step = torch.optim.Adam(theirs.parameters(), lr=0.05)
    cx = lm.Graph()
    both.step(ours(cx.tensor((5, 8), name="x")).square().mean(), clip_norm=clip)
    run = cx.compile()
    for number, x in enumerate(batches):
        before = ours.weight.numpy().copy()
        run(x=x)
        (theirs(torch.tensor(x)).square().mean() / 2).backward()
        if number % 2 == 0:
            assert np.array_equal(ours.weight.numpy(), before)
            sums = both.state_dict()
            both.load_state_dict(sums)
            assert sums["sums"][0].dtype == np.complex64
            continue
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        their_step.step()
        their_step.zero_grad()
        close_to_greatest(ours.weight.numpy(), theirs.weight.detach().numpy(), 1e-4)


def test_norms_of_complex_gradients_are_pytorchs() -> None:
    z = numbers(3, 4)
    for order in (1.0, 2.0, 3.0, float("inf")):
        found = lm.optim.grad_norm([lm.tensor(z), lm.tensor(z.real)], order)
        theirs = [torch.zeros(3, 4, dtype=torch.complex64), torch.zeros(3, 4)]
        for p, g in zip(theirs, (z, z.real), strict=True):
            p.requires_grad_().grad = torch.tensor(g)
        wanted = torch.nn.utils.get_total_norm([p.grad for p in theirs], order)
        close_to_greatest(found.numpy(), wanted.numpy(), 1e-5)


def test_operators_of_complex_parameters() -> None:
    a, b = numbers(2, 2), numbers(2, 2)
    held: Any = nn.Parameter(a), lm.State((2, 2), "complex64", b), nn.Parameter(b.real)
    p, q, real = held
    x: Any = lm.tensor(a.real)
    for found, wanted in (
        (x * p, a.real * a), (p * x, a * a.real), (p @ q, a @ b), (real @ p, b.real @ a),
        (p + 1j, a + 1j), (2 / q, 2 / b), (lm.exp(p), np.exp(a)), (x - q, a.real - b),
        (p.mH, a.conj().T), (p[0], a[0]), (lm.where(x > 0, p, 0), np.where(a.real > 0, a, 0)),
    ):  # fmt: skip
        close_to_greatest(found.numpy(), wanted, 3e-6)


def test_complex_states() -> None:
    first = numbers(3)
    state = lm.State((3,), lm.complex64, first, "s")
    cx = lm.Graph()
    z: Any = cx.read(state)
    cx.assign(state, z * 1j + cx.tensor((), name="x"))
    run = cx.compile()
    for k in range(2):
        run(x=np.float32(k))
    close_to_greatest(state.numpy(), -first + 1, 1e-6)
    state.reset()
    assert np.array_equal(state.numpy(), first)
    assert np.array_equal(pickle.loads(pickle.dumps(state)).numpy(), first)
    assert lm.State((2,), lm.complex64, 2 - 1j).numpy().tolist() == [2 - 1j] * 2
    cx = lm.Graph()
    with pytest.raises(GraphError, match=r"State\(s: c64\[3\]\) cannot hold f32\[3\]"):
        cx.assign(state, cx.read(state).real)
    with pytest.raises(GraphError, match=r"cannot hold Complex.* take its real part"):
        cx.assign(lm.State((3,)), cx.read(state))


def test_complex_numbers_pass_through_trees() -> None:
    a = numbers(3)
    z: Any = lm.tensor(a)
    assert (z.dtype, z.shape) == (lm.complex64, (3,))
    pulled = lm.grad(lambda z: (z.abs() ** 2).sum())(z)
    close_to_greatest(pulled.numpy(), 2 * a, 1e-6)
    last, steps = lm.scan(lambda c, x: (c * x, c + x), lm.tensor(1j), z)
    close_to_greatest(last.numpy(), 1j * a.prod(), 1e-5)
    assert steps.shape == (3,)
    found: Any = lm.jit(lambda x: (lm.fft.fft(x), x))(a.real.copy())
    close_to_greatest(found[0], np.fft.fft(a.real), 1e-6)
    lm.manual_seed(0)
    drawn = lm.randn(20_000, dtype=lm.complex64).numpy()
    assert 0.95 < np.var(drawn) < 1.05
    assert 0.47 < np.var(drawn.imag) < 0.53
    assert lm.rand(2, dtype=lm.complex128).numpy().imag.min() > 0


def test_gradients_in_complex_tensors() -> None:
    """Also where views of the numbers are read, which are views of the pairs that they lie in."""

    def loss(library: Any, z: Any) -> Any:
        return (library.abs(z[1:] * 2 + z[:1]) ** 2).sum() + (z.T.real * z.imag).sum()

    data = numbers(4, 4)
    given = torch.tensor(data, requires_grad=True)
    loss(torch, given).backward()
    expected = given.grad.numpy()
    z: Any = lm.tensor(data).requires_grad_()
    assert z.requires_grad_().grad is None
    of_loss = loss(lm, z)
    (found,) = lm.grad(of_loss, [z])
    of_loss.backward()
    cx = lm.Graph()
    x = cx.tensor((4, 4), lm.complex64, name="x")
    lm.view_as_real(lm.grad(loss(lm, x), x)).output("g")
    pairs = lm.compile(cx)({"x": data.view(np.float32).reshape(4, 4, 2)})["g"]
    for gradient in found.numpy(), z.grad.numpy(), pairs.view(np.complex64)[..., 0]:
        close_to_greatest(gradient, expected, 1e-5)
    assert (z * 2).grad is None
    assert z.T.grad is None
    assert lm.complex(z.imag, z.real).grad is None


def test_real_numbers_of_half_precision_to_a_complex_power() -> None:
    x, z = rng.uniform(0.5, 3, 5).astype(np.float16), numbers(5)
    found: Any = lm.tensor(x) ** lm.tensor(z)
    assert found.dtype is lm.complex64
    close_to_greatest(found.numpy(), x.astype(np.float64) ** z.astype(np.complex128), 1e-5)
