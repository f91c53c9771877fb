"""Two ranks of one thread beside one process of two threads, and beside PyTorch's DDP on gloo.

The same training step of a Llama on the same global batch, in turns: each round starts all three
anew, warms up, and takes the median of its steps.

`python -m bench.ranks --rounds 3` prints the seconds of a step and the ratios; with `--compile` the
seconds in which a rank of two, and one process, compile it with an empty cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
HIDDEN, INNER, LAYERS, HEADS, VOCABULARY = 256, 704, 4, 8, 1024
BATCH, LENGTH = 16, 128
WARM, STEPS = 4, 16


def _batches(rank: int, ranks: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    windows = rng.integers(0, VOCABULARY, (WARM + STEPS, BATCH, LENGTH + 1)).astype(np.int64)
    rows = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    return [(w[rows, :-1].copy(), w[rows, 1:].copy()) for w in windows]


def ours(plan: str, compiles: bool = False) -> float:
    """The median seconds of a step of this rank, of all ranks that were launched, or those of its
    compile.
    """
    import luminal as lm
    from luminal import distributed, optim
    from luminal.models.train import ModelSettings, new_llama, next_token_loss

    distributed.init()
    ranks, rank = distributed.size(), distributed.rank()
    mesh = lm.Mesh((ranks,), ("data",))
    settings = ModelSettings(HIDDEN, INNER, LAYERS, HEADS, LENGTH, num_key_value_heads=HEADS)
    model = lm.shard(new_llama(settings, VOCABULARY), plan, mesh)
    graph = lm.Graph("step")
    ids = graph.tensor((BATCH, LENGTH), "int64", name="ids").shard("data")
    targets = graph.tensor((BATCH, LENGTH), "int64", name="targets").shard("data")
    loss = next_token_loss(model(ids), targets)
    loss.output("loss")
    optim.AdamW(model.named_parameters(), lr=1e-3).step(loss)
    distributed.engine().exchange(b"", "all begin")
    start = time.perf_counter()
    step = lm.compile(graph, mesh=mesh)
    if compiles:
        return time.perf_counter() - start
    return _timed(lambda x, y: step({"ids": x, "targets": y}), _batches(rank, ranks))


def pytorchs() -> float:
    """The median seconds of a step by DistributedDataParallel, on as many ranks as MPI started."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from transformers import LlamaConfig, LlamaForCausalLM

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    config = LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, vocab_size=VOCABULARY, max_position_embeddings=LENGTH,
        tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    model = DistributedDataParallel(LlamaForCausalLM(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        logits = model(torch.from_numpy(x)).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), torch.from_numpy(y).flatten()
        )
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    seconds = _timed(step, _batches(rank, ranks))
    dist.destroy_process_group()
    return seconds


def _timed(step: Any, batches: list[tuple[Any, Any]]) -> float:
    taken = []
    for x, y in batches:
        start = time.perf_counter()
        step(x, y)
        taken.append(time.perf_counter() - start)
    return median(taken[WARM:])


def _run(kind: str, ranks: int, threads: int, **variables: str) -> float:
    """The seconds of the slowest rank."""
    environment = {
        **os.environ, "LUMINAL_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **variables,
    }  # fmt: skip
    own = [sys.executable, "-m", "bench.ranks", "--one", kind]
    if kind == "torch":
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
        processes = [
            subprocess.Popen(
                own, stdout=subprocess.PIPE, text=True,
                env={**environment, "RANK": str(rank), "WORLD_SIZE": str(ranks)},
            )
            for rank in range(ranks)
        ]  # fmt: skip
        outputs = [process.communicate()[0] for process in processes]
    else:
        if ranks > 1:
            launch = [sys.executable, "-m", "luminal", "launch", "-n", str(ranks)]
            own = [*launch, "-m", "bench.ranks", "--one", kind]
        outputs = [subprocess.run(own, stdout=subprocess.PIPE, text=True, env=environment).stdout]
    lines = [line for output in outputs for line in output.splitlines() if "seconds" in line]
    return max(float(json.loads(line[line.index("{") :])["seconds"]) for line in lines)


def compiles(rounds: int) -> None:
    """Prints how long compiles take with an empty cache, and how many times one process's."""
    pairs = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            pairs.append(
                (
                    _run("compile", 1, 2, LUMINAL_CACHE_DIR=one),
                    _run("compile", 2, 1, LUMINAL_CACHE_DIR=two),
                )
            )
    one, two = (median(side) for side in zip(*pairs, strict=True))
    ratio = median(both / alone for alone, both in pairs)
    print(f"compile of one process {one:.2f} s, of a rank of two {two:.2f} s: {ratio:.2f}")


def main() -> None:
    """Times all kinds in turns, or one of them on this rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", choices=("data", "zero1", "torch", "compile"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    if options.one:
        is_compile = options.one == "compile"
        plan = "data" if is_compile else options.one
        seconds = pytorchs() if plan == "torch" else ours(plan, is_compile)
        print(json.dumps({"seconds": seconds}), flush=True)
        return
    if options.compile:
        compiles(options.rounds)
        return
    kinds = {"one of two threads": ("data", 1, 2), "two of one thread": ("data", 2, 1)}
    if not options.no_torch:
        kinds["DDP on gloo, two of one thread"] = ("torch", 2, 1)
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, (kind, ranks, threads) in kinds.items():
            taken[name].append(_run(kind, ranks, threads))
    best = {name: median(seconds) for name, seconds in taken.items()}
    for name, seconds in best.items():
        ratio = best["two of one thread"] / seconds
        print(f"{name}: {seconds * 1e3:.1f} ms a step; two of one thread take {ratio:.2f} of it")


if __name__ == "__main__":
    main()
