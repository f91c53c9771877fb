"""Training steps against PyTorch and JAX: a convolutional network, a Llama, AdamW alone.

A step is forward, backward and update. PyTorch's time is the better of eager and `torch.compile`
(where that works); JAX's, where it is installed, that of one `jax.jit`. Each side is measured in
blocks, with a pause before each, since idle threads of a runtime burn on after its last call.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.nn.functional as f

import luminal as lm
from bench.block import in_block
from bench.row import Row, Rows, Skipped
from luminal import nn, optim
from luminal.frontend.tensor import Tensor
from luminal.models.llama import Llama, LlamaConfig
from luminal.nn import functional as F

Array = np.ndarray[Any, Any]
Step = Callable[[], float]  # one step; its loss

BLOCKS, PAUSE = 5, 1.0  # seconds
BLOCK = 1.0  # seconds, about
VOCABULARY, WIDTH, LAYERS, HEADS, INNER = 4096, 384, 6, 6, 1024
BATCH, LENGTH = 4, 256
TENSORS, PARAMETERS = 150, 13_800_000
TOLERANCE = 1e-3  # of losses
JAX = "jax.jit"


def rows() -> Rows:
    """The step of each model, launches of a Llama's over layers, AdamW against moving its bytes."""
    yield from _against("training step: CNN, batch 64, Adam", *_cnn())
    yield from _against("training step: Llama 13.8M, 4x256 tokens, AdamW", *_llama())
    counts = [len(lm.compile(_llama_graph(n)[0]).report().kernels) for n in (6, 24)]
    ratio = counts[1] / counts[0]
    detail = f"{counts[0]} and {counts[1]}"
    yield Row("launches of 24 layers", ratio, 1.02, "times 6 layers", (ratio, ratio), detail)
    yield _adamw()


def _against(name: str, ours: Step, peers: dict[str, Step]) -> Rows:
    losses = {peer: call() for peer, call in {"luminal": ours, **peers}.items()}
    for loss in losses.values():  # the first step's, from the same weights
        if not abs(loss - losses["luminal"]) <= TOLERANCE * abs(loss):
            raise AssertionError(f"{name}: the losses differ: {losses}")
    own, times = [], {peer: list[float]() for peer in peers}
    for _ in range(BLOCKS):
        own.append(_block(ours))
        for peer, call in peers.items():
            times[peer].append(_block(call))
    theirs = {peer: statistics.median(each) for peer, each in times.items()}
    pytorch = min((peer for peer in peers if peer != JAX), key=theirs.__getitem__)
    for best, target in ((pytorch, 1.5), (JAX, 1.1)):
        if best in times:
            mine = statistics.median(own)
            ratios = [b / a for a, b in zip(own, times[best], strict=True)]
            detail = f"{mine * 1e3:.3g} ms against {theirs[best] * 1e3:.3g} ms ({best})"
            spread = (min(ratios), max(ratios))
            row = f"{name}; JAX" if best == JAX else name
            yield Row(row, theirs[best] / mine, target, "x", spread, detail)
        else:
            yield Skipped(f"{name}; JAX", "jax is not installed")


def _block(call: Callable[[], Any]) -> float:
    """Seconds of a call: a step takes half a second, so blocks are longer than elsewhere."""
    return in_block(call, BLOCK, PAUSE)


def _peers(step: Callable[[], Callable[[Any], Any]], data: Any) -> dict[str, Step]:
    """PyTorch's steps: `step` makes one on a model of its own."""
    eager, compiled = step(), torch.compile(step())
    peers: dict[str, Step] = {"eager": lambda: float(eager(data))}
    try:
        first = [float(compiled(data))]
    except Exception as error:
        print(f"torch.compile does not work here: {type(error).__name__}")
    else:
        peers["torch.compile"] = lambda: first.pop() if first else float(compiled(data))
    return peers


# --- a convolutional network ----------------------------------------------------------------------


class _CNN(nn.Module):
    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(64 * 12 * 12, 128), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2).flatten(1)
        return self.fc2(self.fc1(x).relu())  # type: ignore[no-any-return]


class _TorchCNN(torch.nn.Module):
    def __init__(self, weights: dict[str, Array]) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 32, 3), torch.nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = torch.nn.Linear(64 * 12 * 12, 128), torch.nn.Linear(128, 10)
        self.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in weights.items()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = f.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2).flatten(1)
        return self.fc2(self.fc1(x).relu())  # type: ignore[no-any-return]


@torch.inference_mode(mode=False)
def _cnn() -> tuple[Step, dict[str, Step]]:
    random = np.random.default_rng(0)
    images = random.standard_normal((64, 1, 28, 28), np.float32)
    labels = random.integers(0, 10, 64)
    nn.init.manual_seed(0)
    model = _CNN()
    weights = {name: p.numpy() for name, p in model.named_parameters()}
    cx = lm.Graph()
    x, y = cx.tensor((64, 1, 28, 28), name="x"), cx.tensor((64,), np.int64, "y")
    loss = F.cross_entropy(model(x), y).output("loss")
    optim.Adam(model.parameters(), lr=1e-3).step(loss)
    step = lm.compile(cx)

    def make() -> Callable[[Any], Any]:
        peer = _TorchCNN(weights)
        optimizer = torch.optim.Adam(peer.parameters(), lr=1e-3)

        @torch.inference_mode(mode=False)
        def train(data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            optimizer.zero_grad()
            loss = f.cross_entropy(peer(data[0]), data[1])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss

        return train

    data = torch.from_numpy(images), torch.from_numpy(labels)
    peers = _peers(make, data)
    if find_spec("jax"):
        from bench import training_jax

        peers[JAX] = training_jax.cnn(weights, images, labels)
    return lambda: float(step({"x": images, "y": labels})["loss"]), peers


# --- a Llama --------------------------------------------------------------------------------------


def _llama_graph(layers: int) -> tuple[lm.Graph, Llama]:
    nn.init.manual_seed(0)
    sizes = (WIDTH, INNER, layers, HEADS, HEADS, WIDTH // HEADS, VOCABULARY, LENGTH)
    model = Llama(LlamaConfig(*sizes)).train()
    cx = lm.Graph()
    ids, wanted = (cx.tensor((BATCH, LENGTH), np.int64, name) for name in ("ids", "wanted"))
    logits = model(ids).reshape(BATCH * LENGTH, VOCABULARY)
    loss = F.cross_entropy(logits, wanted.reshape(BATCH * LENGTH)).output("loss")
    optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01).step(loss)
    return cx, model


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        linear = torch.nn.Linear
        self.self_attn = torch.nn.ModuleDict(
            {f"{name}_proj": linear(WIDTH, WIDTH, bias=False) for name in "qkvo"}
        )
        self.mlp = torch.nn.ModuleDict(
            {
                "gate_proj": linear(WIDTH, INNER, bias=False),
                "up_proj": linear(WIDTH, INNER, bias=False),
                "down_proj": linear(INNER, WIDTH, bias=False),
            }
        )
        self.input_layernorm = torch.nn.RMSNorm(WIDTH, eps=1e-6)
        self.post_attention_layernorm = torch.nn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        h = self.input_layernorm(x)
        shape = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
        q, k, v = (self.self_attn[f"{n}_proj"](h).view(shape).transpose(1, 2) for n in "qkv")
        q, k = (t * cos + _turned(t) * sin for t in (q, k))
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.self_attn["o_proj"](mixed.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        h = self.post_attention_layernorm(x)
        inner = f.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h)
        return x + self.mlp["down_proj"](inner)  # type: ignore[no-any-return]


def _turned(x: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat((-high, low), -1)


class _TorchLlama(torch.nn.Module):
    def __init__(self, weights: dict[str, Array]) -> None:
        super().__init__()
        self.model = torch.nn.ModuleDict(
            {
                "embed_tokens": torch.nn.Embedding(VOCABULARY, WIDTH),
                "layers": torch.nn.ModuleList(_Block() for _ in range(LAYERS)),
                "norm": torch.nn.RMSNorm(WIDTH, eps=1e-6),
            }
        )
        self.lm_head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in weights.items()})
        half = WIDTH // HEADS // 2
        angles = torch.outer(torch.arange(LENGTH), 10000.0 ** (-torch.arange(half) / half))
        self.cos, self.sin = (torch.cat((t, t), -1) for t in (angles.cos(), angles.sin()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.model["embed_tokens"](ids)
        for block in self.model["layers"].children():
            x = block(x, self.cos, self.sin)
        return self.lm_head(self.model["norm"](x))  # type: ignore[no-any-return]


@torch.inference_mode(mode=False)
def _llama() -> tuple[Step, dict[str, Step]]:
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, LENGTH))
    given = {"ids": ids, "wanted": np.roll(ids, -1, 1)}
    cx, model = _llama_graph(LAYERS)
    weights = {name: p.numpy() for name, p in model.named_parameters()}
    step = lm.compile(cx)

    def make() -> Callable[[Any], Any]:
        peer = _TorchLlama(weights)
        optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-3, weight_decay=0.01)

        @torch.inference_mode(mode=False)
        def train(data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            optimizer.zero_grad()
            logits = peer(data[0]).view(BATCH * LENGTH, VOCABULARY)
            loss = f.cross_entropy(logits, data[1].view(-1))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss

        return train

    data = torch.from_numpy(given["ids"]), torch.from_numpy(given["wanted"])
    peers = _peers(make, data)
    if find_spec("jax"):
        from bench import training_jax

        peers[JAX] = training_jax.llama(weights, given["ids"], given["wanted"], LAYERS, HEADS)
    return lambda: float(step(given)["loss"]), peers


# --- an optimizer alone ---------------------------------------------------------------------------


def _adamw() -> Row:
    """An update of many tensors, against a pass that reads and writes as many bytes."""
    random = np.random.default_rng(0)
    size = PARAMETERS // TENSORS
    shapes = [(size // 384 + k % 2, 384) for k in range(TENSORS)]  # of two kinds
    parameters = [lm.Parameter(random.standard_normal(s, np.float32)) for s in shapes]
    cx = lm.Graph()
    given = [lm.Parameter(random.standard_normal(s, np.float32)) for s in shapes]
    optim.AdamW(parameters, lr=1e-3).apply([cx.weight_of(g) for g in given])
    cx.full((), 1.0).output("done")
    update = lm.compile(cx)
    total = sum(rows * columns for rows, columns in shapes)
    plain = lm.Graph()
    whole = plain.weight_of(lm.Parameter(random.standard_normal(total, np.float32)))
    for _ in range(3):
        state = plain.state((total,), init=1)
        plain.assign(state, state + whole)
    plain.full((), 1.0).output("done")
    moved = lm.compile(plain)
    times = [(_block(update), _block(moved)) for _ in range(BLOCKS)]
    ratios = [a / b for a, b in times]
    own, least = (statistics.median(side) for side in zip(*times, strict=True))
    detail = f"{own * 1e3:.3g} ms against {least * 1e3:.3g} ms, {28 * total / own / 1e9:.0f} GB/s"
    spread = (min(ratios), max(ratios))
    name = f"AdamW of {TENSORS} tensors, 13.8M"
    return Row(name, statistics.median(ratios), 1.3, "times moving its bytes", spread, detail)
