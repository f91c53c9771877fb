"""Layers against PyTorch's, with the same state_dict."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from luminal import nn
from luminal.base.errors import InputError, ShapeError
from luminal.frontend.graph import Recorder
from tests.close import close
from tests.numerics.recording import results, run

pytestmark = pytest.mark.usefixtures("every_backend")

rng = np.random.default_rng(0)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def like_torch(ours: nn.Module, theirs: Any, *arrays: Any, ulp: float = 16) -> None:
    """Asserts that both give the same, after ours has loaded the weights of theirs."""
    for value in theirs.state_dict().values():
        if value.dtype == torch.float32:
            torch.nn.init.uniform_(value, 0.5, 1.5)
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with torch.no_grad():
        expected = theirs.eval()(*map(torch.from_numpy, arrays)).numpy()
    close(run(ours.eval(), *arrays), expected, ulp)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(0, 1, shape).astype(np.float32)


def test_layers_like_torch() -> None:
    image = normal(2, 4, 9, 8)
    like_torch(nn.Linear(5, 3), torch.nn.Linear(5, 3), normal(2, 7, 5))
    like_torch(nn.Linear(5, 3, bias=False), torch.nn.Linear(5, 3, bias=False), normal(5))
    like_torch(nn.Embedding(9, 4), torch.nn.Embedding(9, 4), rng.integers(0, 9, (2, 3)))
    like_torch(nn.LayerNorm(5), torch.nn.LayerNorm(5), normal(2, 5), ulp=64)
    like_torch(nn.LayerNorm((3, 5)), torch.nn.LayerNorm((3, 5)), normal(2, 3, 5), ulp=64)
    like_torch(
        nn.LayerNorm(5, elementwise_affine=False),
        torch.nn.LayerNorm(5, elementwise_affine=False),
        normal(2, 5),
        ulp=64,
    )
    like_torch(nn.RMSNorm(5, 1e-5), torch.nn.RMSNorm(5, 1e-5), normal(2, 5))
    like_torch(nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4), image)
    like_torch(nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4), normal(3, 4))
    options = {"stride": 2, "padding": (1, 0), "groups": 2}
    like_torch(nn.Conv2d(4, 6, 3, **options), torch.nn.Conv2d(4, 6, 3, **options), image)
    like_torch(nn.MaxPool2d(3, 2, 1), torch.nn.MaxPool2d(3, 2, 1), image)
    like_torch(nn.AvgPool2d(2), torch.nn.AvgPool2d(2), image)


@pytest.mark.parametrize("name", ["ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "Softmax", "Flatten"])
def test_layers_without_parameters(name: str) -> None:
    arguments = {"Softmax": (-1,)}.get(name, ())
    like_torch(getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments), normal(2, 3, 4))


def test_sequential() -> None:
    ours = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    like_torch(ours, theirs, normal(5, 3))


# --- rotary embedding -----------------------------------------------------------------------------


def exact_rotary(x: Any, theta: float, past: int, interleaved: bool) -> np.ndarray[Any, Any]:
    """Each pair as a complex number, turned."""
    size = x.shape[-1]
    angles = np.outer(np.arange(past, past + x.shape[-2]), theta ** (-np.arange(0, size, 2) / size))
    if interleaved:
        turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)
    turned = (x[..., : size // 2] + 1j * x[..., size // 2 :]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], -1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(interleaved: bool) -> None:
    rotary = nn.RotaryEmbedding(8, 500.0, interleaved=interleaved)
    x = normal(3, 5, 8)
    found = run(lambda t: rotary(t, rotary.angles(t.graph, 5, 7)), x)
    close(found, exact_rotary(x, 500.0, 7, interleaved), ulp=32)
    with pytest.raises(ShapeError, match="rotary: 7 features of head_dim 7; pairs need an even"):
        nn.RotaryEmbedding(7)
    with pytest.raises(ShapeError, match="rotary: 10 features of head_dim 8"):
        nn.RotaryEmbedding(8, dims=10)


SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": LLAMA3,
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    "yarn_mscale": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 512,
        "beta_fast": 16.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
        "truncate": False,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 100},
    "longrope": {
        "rope_type": "longrope",
        "factor": 8.0,
        "original_max_position_embeddings": 100,
        "short_factor": [1.0 + 0.01 * k for k in range(32)],
        "long_factor": [1.0 + 0.5 * k for k in range(32)],
    },
}


@pytest.mark.parametrize("length", [90, 101, 300])
@pytest.mark.parametrize("name", SCALINGS)
def test_rotary_scalings_are_those_of_transformers(name: str, length: int) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = SCALINGS[name]
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_attention_heads=1,
        head_dim=64,
        max_position_embeddings=100,
        rope_parameters={**copy.deepcopy(scaling), "rope_theta": 500000.0},
    )
    kind = ROPE_INIT_FUNCTIONS[scaling["rope_type"]]
    frequencies, factor = kind(config, torch.device("cpu"), seq_len=length)
    rotary = nn.RotaryEmbedding(64, 500000.0, scaling)
    zeros = np.zeros((length, 1), np.float32)
    found = run(lambda t: rotary.angles(t.graph, t.extents[0]).cos + t, zeros)
    positions = np.arange(length)[:, None]
    expected = np.cos(positions * frequencies.double().numpy()) * factor
    # an angle of 300 is known to 300 half-ulp; frequencies agree to 1e-6
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-4)


def test_rotary_scalings_that_are_not_known_or_not_complete() -> None:
    with pytest.raises(ShapeError, match="rope_type is one of default, linear, llama3, yarn"):
        nn.RotaryEmbedding(64, scaling={"rope_type": "ntk"})
    with pytest.raises(ShapeError, match="needs 'factor'"):
        nn.RotaryEmbedding(64, scaling={"rope_type": "linear"})


def test_rotary_of_some_features() -> None:
    rotary = nn.RotaryEmbedding(8, 500.0, dims=4)
    x = normal(3, 5, 8)
    found = run(lambda t: rotary(t, rotary.angles(t.graph, 5, 7)), x)
    close(found[..., :4], exact_rotary(x[..., :4], 500.0, 7, False), ulp=32)
    np.testing.assert_array_equal(found[..., 4:], x[..., 4:])


# --- attention ------------------------------------------------------------------------------------


def make_attention() -> nn.Attention:
    attention = nn.Attention(12, 4, 2, 6, nn.RotaryEmbedding(6))
    attention.load_state_dict({n: normal(*p.shape) / 3 for n, p in attention.named_parameters()})
    return attention


def test_attention_like_torch() -> None:
    attention, x = make_attention(), normal(2, 5, 12)
    state = attention.state_dict()

    def heads(name: str, count: int) -> torch.Tensor:
        y = (x @ state[f"{name}.weight"].T).reshape(2, 5, count, 6).swapaxes(1, 2)
        y = exact_rotary(y, 10000.0, 0, False) if name != "v_proj" else y
        return torch.from_numpy(y.astype(np.float32))

    out = torch.nn.functional.scaled_dot_product_attention(
        heads("q_proj", 4), heads("k_proj", 2), heads("v_proj", 2), is_causal=True, enable_gqa=True
    )
    expected = out.numpy().swapaxes(1, 2).reshape(2, 5, 24) @ state["o_proj.weight"].T
    close(run(attention, x), expected, ulp=64)


def test_cached_attention_in_steps_equals_one_pass() -> None:
    attention, x = make_attention(), normal(7, 12)
    whole = run(attention, x)
    cache = nn.KVCache.make(2, 7, 6)
    cx = Recorder()
    s, past = cx.dim("s", 1, 7), cx.dim("past", 0, 6)
    y = attention(cx.tensor((s, 12), name="x"), cache=cache, positions=past).output("y")
    assert [str(r) for r in cx.requirements] == ["past + s <= 7"]
    done = 0
    for count in (3, 1, 2, 1):
        (found,) = results(cx, [y], {"x": x[done : done + count]}, {"s": count, "past": done})
        close(found, whole[done : done + count], ulp=64)
        done += count


def test_causal_mask() -> None:
    cx = Recorder()
    mask = nn.causal_mask(cx, 2, 5, 2).output()
    close(results(cx, [mask], {})[0], np.tri(2, 5, 2, dtype=bool))


def test_causal_mask_of_a_window() -> None:
    cx = Recorder()
    mask = nn.causal_mask(cx, 3, 6, 3, window=2).output()
    seen = np.tri(3, 6, 3, dtype=bool) & ~np.tri(3, 6, 1, dtype=bool)
    close(results(cx, [mask], {})[0], seen)
    with pytest.raises(ShapeError, match="window 0 hides all keys"):
        nn.Attention(12, 4, 2, 6, window=0)


def test_alibi_slopes_of_any_number_of_heads() -> None:
    np.testing.assert_allclose(nn.alibi_slopes(4), [1 / 4, 1 / 16, 1 / 64, 1 / 256])
    np.testing.assert_allclose(nn.alibi_slopes(6), [*nn.alibi_slopes(4), 1 / 2, 1 / 8])


def test_a_zero_centered_norm() -> None:
    layer, x = nn.RMSNorm(6, 1e-6, zero_centered=True), normal(3, 6)
    np.testing.assert_array_equal(layer.state_dict()["weight"], np.zeros(6))
    layer.load_state_dict({"weight": normal(6)})
    plain = nn.RMSNorm(6, 1e-6)
    plain.load_state_dict({"weight": 1 + layer.state_dict()["weight"]})
    close(run(layer, x), run(plain, x), ulp=4)


def test_plain_feed_forward() -> None:
    layer, x = nn.FeedForward(4, 6, "relu2"), normal(3, 4)
    layer.load_state_dict({name: normal(*p.shape) for name, p in layer.named_parameters()})
    state = layer.state_dict()
    inner = np.maximum(x @ state["up_proj.weight"].T + state["up_proj.bias"], 0) ** 2
    close(run(layer, x), inner @ state["down_proj.weight"].T + state["down_proj.bias"], ulp=64)
    with pytest.raises(InputError, match="activation 'sine' is not known; known are gelu"):
        nn.FeedForward(4, 6, "sine")


def test_swiglu() -> None:
    layer, x = nn.SwiGLU(4, 6), normal(3, 4)
    layer.load_state_dict({name: normal(*p.shape) for name, p in layer.named_parameters()})
    gate, up, down = (layer.state_dict()[f"{n}_proj.weight"].T for n in ("gate", "up", "down"))
    silu = torch.nn.functional.silu(torch.from_numpy(x @ gate)).numpy()
    close(run(layer, x), (silu * (x @ up)) @ down, ulp=32)
