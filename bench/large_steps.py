"""The sides of a training step of 1B parameters, for `bench/large_sides.py`: one batch, one model.

Parameters are bfloat16 and the same for all. Moments are f32 for us and JAX; PyTorch's AdamW keeps
them in the Parameters' own dtype. Layers are computed again for gradients: by `memory_limit`, by
`jax.checkpoint`, by transformers' own switch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

RATE, DECAY = 1e-3, 0.01
Array = np.ndarray[Any, Any]


def batch(vocabulary: int, length: int) -> tuple[Array, Array]:
    """A text of random tokens, and what follows each."""
    ids = np.random.default_rng(0).integers(0, vocabulary, (1, length))
    return ids, np.roll(ids, -1, 1)


class Steps:
    """A side: `call` makes a step and gives the loss before it."""

    def __init__(self, call: Callable[[], float]) -> None:
        self.call = call
        self.losses: list[float] = []

    def run(self) -> float:
        """Seconds of a step."""
        start = time.perf_counter()
        self.losses.append(self.call())
        return time.perf_counter() - start

    def loss(self) -> list[float]:
        """Before each step."""
        return self.losses


class Luminal(Steps):
    """One graph: forward, backward and update."""

    def __init__(
        self, keys: Mapping[str, Any], length: int, threads: int, memory_limit: str | None
    ) -> None:
        import luminal as lm
        from bench.large_models import EPSILON, THETA, Sizes
        from luminal import optim
        from luminal.models.llama import Llama, LlamaConfig
        from luminal.nn import functional as F

        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                 "num_key_value_heads", "head_dim", "vocab_size")  # fmt: skip
        sizes = {name: keys[name] for name in names}
        tied = keys["tie_word_embeddings"]
        settings = LlamaConfig(
            **sizes, max_position_embeddings=length, rms_norm_eps=EPSILON, rope_theta=THETA,
            tie_word_embeddings=tied,
        )  # fmt: skip
        model = Llama(settings, "bfloat16").train()
        arrays = Sizes(keys).arrays()
        for name, held in model.named_parameters():
            held.set(arrays[name])
        cx = lm.Graph()
        ids, wanted = (cx.tensor((1, length), np.int64, name) for name in ("ids", "wanted"))
        logits = model(ids).reshape(length, keys["vocab_size"])
        loss = F.cross_entropy(logits, wanted.reshape(length)).output("loss")
        optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY).step(loss)
        step = lm.compile(cx, memory_limit=memory_limit)
        given = dict(zip(("ids", "wanted"), batch(keys["vocab_size"], length), strict=True))
        self.step = step
        super().__init__(lambda: float(step(given)["loss"]))

    def memory(self) -> dict[str, int]:
        """Bytes of Parameters, States and the arena, once a step was made."""
        report = self.step.memory_report()
        return {
            "weights": report.weight_bytes,
            "states": report.state_bytes,
            "arena": report.arena_bytes + report.scratch_bytes,
        }


class PyTorch(Steps):
    """transformers' Llama, eager, with gradient checkpointing."""

    def __init__(
        self, keys: Mapping[str, Any], length: int, threads: int, memory_limit: str | None
    ) -> None:
        import torch
        import transformers

        from bench.large_models import EPSILON, THETA, Sizes

        torch.set_num_threads(threads)
        plain = {k: v for k, v in keys.items() if k not in ("architectures", "model_type")}
        rotary = {"rope_type": "default", "rope_theta": THETA}
        settings = transformers.LlamaConfig(**plain, rms_norm_eps=EPSILON, rope_parameters=rotary)
        model: Any = transformers.LlamaForCausalLM(settings)
        model.to(torch.bfloat16)
        arrays = Sizes(keys).arrays()
        with torch.no_grad():
            for name, held in model.named_parameters():
                held.copy_(torch.from_numpy(arrays[name].view("uint16")).view(torch.bfloat16))
        if memory_limit is not None:
            model.activation_checkpointing_enable()
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
        ids, wanted = map(torch.from_numpy, batch(keys["vocab_size"], length))

        def call() -> float:
            optimizer.zero_grad()
            logits = model(ids, use_cache=False).logits.float().view(length, -1)
            loss = torch.nn.functional.cross_entropy(logits, wanted.view(-1))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return float(loss.detach())

        super().__init__(call)


class Jax(Steps):
    """One `jax.jit` with its buffers donated."""

    def __init__(
        self, keys: Mapping[str, Any], length: int, threads: int, memory_limit: str | None
    ) -> None:
        from bench import training_jax
        from bench.large_models import THETA, Sizes

        step = training_jax.llama(
            Sizes(keys).arrays(),
            *batch(keys["vocab_size"], length),
            keys["num_hidden_layers"],
            keys["num_attention_heads"],
            THETA,
            recomputed=memory_limit is not None,
        )
        super().__init__(step)
