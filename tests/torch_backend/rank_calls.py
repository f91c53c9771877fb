"""Collectives of PyTorch drawn at random, in eager mode and compiled: one rank's program.

`python -m tests.torch_backend.rank_calls RANK RANKS FILE FIRST COUNT` prints the cases that differ
as JSON, last the number of those compared; ranks meet at FILE.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives

KINDS = [
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "permute", "coalesced",
    "numbers", "view", "transpose",
]  # fmt: skip
OPS = ["sum", "avg", "max", "min", "product"]
DTYPES = "float32 float64 bfloat16 float16 int64 int32 int8 uint8".split()
BOUNDS = {torch.bfloat16: 3e-2, torch.float16: 4e-3}  # some roundings of 8 and 11 bits; one of 24
Step = tuple[str, str, int]


def drawn(seed: int, ranks: int) -> tuple[list[Step], list[int], torch.dtype, bool]:
    """Steps, the shape and dtype of what they begin with, and are its lengths open?"""
    choose = random.Random(seed)
    steps = [
        (choose.choice(KINDS), choose.choice(OPS), choose.choice([0, 0, 1]))
        for _ in range(choose.randint(1, 4))
    ]
    shapes = [[ranks, ranks], [3 * ranks, 2 * ranks], [4 * ranks], [ranks, ranks, 2], [0, ranks]]
    dtype = getattr(torch, choose.choice(DTYPES))
    return steps, choose.choice(shapes), dtype, choose.random() < 0.25


def function(steps: list[Step], ranks: int) -> Callable[[torch.Tensor], Any]:
    """The steps as a function of a rank's own tensor."""
    group = dist.group.WORLD

    def f(x: torch.Tensor) -> torch.Tensor:
        for kind, op, dim in steps:
            dim = min(dim, x.ndim - 1)
            if kind == "all_reduce":
                x = collectives.all_reduce(x, op, group)
            elif kind == "all_gather":
                x = collectives.all_gather_tensor(x, dim, group)
            elif kind == "reduce_scatter" and x.shape[dim] % ranks == 0:
                x = collectives.reduce_scatter_tensor(x, op, dim, group)
            elif kind == "all_to_all" and x.shape[0] % ranks == 0:
                x = collectives.all_to_all_single(x, None, None, group)
            elif kind == "broadcast":
                x = collectives.broadcast(x, 0, group)
            elif kind == "permute" and x.ndim == 1:
                x = collectives.permute_tensor(x, [*range(1, ranks), 0], group)
            elif kind == "coalesced":
                x = sum(collectives.all_reduce_coalesced([x, x * 2], op, group))
            elif kind == "numbers":
                x = x * 3 - 1
            elif kind == "view":
                x = x.flip(0).reshape(-1)
            elif x.ndim == 2:
                x = x.t()
        return x + 0

    return f


def outcome(f: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    """The result, or the kind of error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is left to PyTorch
            y = f(x.clone())
        return y.wait() if isinstance(y, collectives.AsyncCollectiveTensor) else y
    except (RuntimeError, ValueError) as error:
        return type(error).__name__


def differs(expected: Any, actual: Any) -> str:
    """In what one outcome is not the other; eager mode's errors are not compared."""
    if isinstance(expected, str):
        return ""
    if isinstance(actual, str):
        return actual
    bound = BOUNDS.get(expected.dtype, 1e-5)
    try:
        torch.testing.assert_close(actual, expected, rtol=bound, atol=bound, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


def main(rank: int, ranks: int, file: str, first: int, count: int) -> None:
    """Compares the cases of so many seeds."""
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    compared = 0
    for seed in range(first, first + count):
        steps, shape, dtype, is_open = drawn(seed, ranks)
        torch.manual_seed(1000 * seed + rank)
        x = (torch.randn(shape) * 3).to(dtype).abs()
        f = function(steps, ranks)
        expected = outcome(f, x)
        fails = torch.tensor([isinstance(expected, str)]).int()
        dist.all_reduce(fails)  # a call that some rank refuses would leave the others waiting
        if fails.item():
            continue
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="luminal", dynamic=is_open or None)
        compared += 1
        if text := differs(expected, outcome(compiled, x)):
            print(json.dumps([seed, steps, shape, str(dtype), text]))
    print(json.dumps(compared))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    rank, ranks, file, first, count = sys.argv[1:]
    main(int(rank), int(ranks), file, int(first), int(count))
