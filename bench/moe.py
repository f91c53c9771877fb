"""Mixtures of experts: 48 thin layers against dense ones of the same flops."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import luminal as lm
from bench.pair import in_pairs
from bench.row import Row, Rows, duration
from luminal.base import config
from luminal.loaders.fields import Fields
from luminal.models.architectures import architecture_of
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig

LAYERS, HIDDEN, INNER = 48, 64, 48
CONTEXT, PROMPT = 1024, 512
COMPILES = 3  # processes, each with an empty cache
SIZES = {
    "vocab_size": 256,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen3-MoE": (
        "Qwen3MoeForCausalLM",
        {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": INNER},
    ),
    "Mixtral": ("MixtralForCausalLM", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "Gemma-4-MoE": (
        "Gemma4ForCausalLM",
        {
            "global_head_dim": 32,
            "hidden_size_per_layer_input": 0,
            "sliding_window": 256,
            "enable_moe_block": True,
            "num_experts": 16,
            "top_k_experts": 4,
            "moe_intermediate_size": INNER,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            },
        },
    ),
}


def rows() -> Rows:
    """For each model: its compile, the bytes of a step of one token, the speed of a prompt."""
    for name in MODELS:
        seconds = [_cold_compile(name) for _ in range(COMPILES)]
        yield duration(f"{name}: compile of {LAYERS} layers, empty cache", seconds, 10, "s")
        yield _bytes_of_a_token(name)
        yield _prompt(name)


def settings(name: str) -> DecoderConfig:
    """The configuration of a thin model."""
    architecture, options = MODELS[name]
    path = Path("config.json")
    return architecture_of({"architectures": [architecture]}, path).config(
        Fields(SIZES | options, path)
    )


def dense(sparse: DecoderConfig) -> DecoderConfig:
    """The same flops without a choice: one feed-forward part as wide as the experts of a token."""
    assert sparse.experts is not None
    width = sparse.experts.top_k * sparse.experts.intermediate_size
    layers = tuple(
        replace(
            layer,
            experts=False,
            intermediate_size=width + (0 if layer.experts else sparse.intermediate_size),
        )
        for layer in sparse.layers
    )
    return replace(sparse, layers=layers, experts=None)


def graph_of(settings: DecoderConfig, tokens: int | None) -> lm.Graph:
    """Logits after `tokens` ids, any number if None, which follow those in the caches."""
    lm.nn.init.manual_seed(0)
    model = Decoder(settings).eval()
    graph = lm.Graph()
    past = graph.dim("past", 0, CONTEXT - 1)
    ids = graph.tensor((tokens or graph.dim("s", 1, CONTEXT),), lm.int32, "ids")
    model(ids, model.make_caches(CONTEXT), past, last_only=True).output("logits")
    return graph


def _cold_compile(name: str) -> float:
    """Seconds to compile a prompt's program and a token's, in a process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "bench.moe", name, cache]
        environment = config.child_environment()
        done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    return float(done.stdout)


def _bytes_of_a_token(name: str) -> Row:
    """What all kernels move for one token, against the dense model, which has no other experts."""
    found = settings(name)
    own, peer = (
        sum(kernel.bytes for kernel in lm.compile(graph_of(each, 1)).report({"past": 0}).kernels)
        for each in (found, dense(found))
    )
    detail = f"{own:,} bytes against {peer:,}"
    return Row(f"{name}: bytes of a token", own / peer, 1.1, "of dense", (own / peer,) * 2, detail)


def _prompt(name: str) -> Row:
    """512 tokens at once, against the dense model."""
    ids = np.random.default_rng(0).integers(0, SIZES["vocab_size"], PROMPT).astype(np.int32)

    def caller(settings: DecoderConfig) -> Callable[[], Any]:
        executable = lm.compile(graph_of(settings, None))
        return lambda: executable({"ids": ids}, dims={"past": 0})["logits"]

    sparse = settings(name)
    pairs = in_pairs(caller(sparse), caller(dense(sparse)))
    own, peer = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = [p / o for o, p in pairs]
    detail = f"{own * 1e3:.3g} ms against {peer * 1e3:.3g} ms"
    spread = (min(ratios), max(ratios))
    return Row(f"{name}: {PROMPT} tokens against dense", peer / own, 0.9, "x", spread, detail)


def main() -> None:
    """The child process of `_cold_compile`."""
    name, cache = sys.argv[1:]
    with config.override(LUMINAL_CACHE_DIR=Path(cache)):
        graphs = [graph_of(settings(name), tokens) for tokens in (None, 1)]
        start = time.perf_counter()
        for graph in graphs:
            lm.compile(graph)
        print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
