"""The process that holds the device: it takes a line of JSON for each thing to measure.

`command.py` starts it, ends it where it hangs, and starts another. So a kernel that faults or never
ends costs one row. What libraries print goes to the error output: answers have a channel of their
own.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

import luminal as lm
from bench.gpu.networks import resnet50
from bench.gpu.programs import PROGRAMS, Array, Work
from luminal.backends.registry import compiling
from luminal.models.llama import Llama, LlamaConfig
from luminal.models.speed import Programs, filled
from luminal.models.speed import Work as Tokens
from luminal.runtime.variants import Variant
from luminal.search.genome import Genome, called_by
from luminal.search.space import Space

GPU = "cuda"  # where PyTorch computes
BLOCKS = 5
PAUSE = 0.1  # seconds before each block: clocks and caches settle
COPIED = 1 << 30  # bytes, far beyond any cache
LLAMA_1B = LlamaConfig(2048, 8192, 16, 32, 8, 64, 128256, 2048)
SMALL_LLAMA = LlamaConfig(64, 128, 2, 4, 2, 16, 256, 64)
CONTEXT = 256
PAST = 128


@cache
def pytorch() -> Any:
    """PyTorch where it has a CUDA device, else None."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def in_turns(calls: Mapping[str, Callable[[], float]], seconds: float) -> dict[str, list[float]]:
    """The median of each block of calls that say how long they took, by side. The sides take turns,
    so that a card that grows hot or slow meets all; blocks of a side share the seconds, and in no
    time each is one call.
    """
    medians: dict[str, list[float]] = {side: [] for side in calls}
    for _ in range(BLOCKS if seconds else 1):
        for side, call in calls.items():
            time.sleep(PAUSE if seconds else 0.0)
            call()
            end, taken = time.perf_counter() + seconds / BLOCKS, [call()]
            while time.perf_counter() < end:
                taken.append(call())
            medians[side].append(statistics.median(taken))
    return medians


def alone(call: Callable[[], float], seconds: float) -> list[float]:
    """The median of each block of one side."""
    return in_turns({"": call}, seconds)[""]


# --- PyTorch --------------------------------------------------------------------------------------


def tensor(torch: Any, array: Array) -> Any:
    """The array as a tensor on the GPU."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16).to(GPU)
    return torch.from_numpy(array).to(GPU)


def timer(torch: Any, call: Callable[[], Any]) -> Callable[[], float]:
    """A call that says how long the GPU took for one of ten calls in a row."""

    def timed() -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(10):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-4

    return timed


def peers(torch: Any, work: Work) -> dict[str, Callable[[], Any]]:
    """PyTorch's calls for a program: as they are, and by torch.compile."""
    given = [tensor(torch, array) for array in work.inputs.values()]
    if work.module is not None:
        width = len(work.module.state_dict()["0.weight"])
        model = resnet50(torch.nn, width).to(GPU).eval().bfloat16()
        state = {name: np.asarray(w, np.float32) for name, w in work.module.state_dict().items()}
        kept = {name: torch.from_numpy(array) for name, array in state.items()}
        model.load_state_dict(kept, strict=False)
        functions = {"eager": model, "torch.compile": torch.compile(model)}
    else:
        assert work.torch is not None

        def function(*tensors: Any) -> Any:
            return work.torch(torch, *tensors)  # type: ignore[misc]

        functions = {"eager": function, "torch.compile": torch.compile(function)}
    return {name: partial(called, *given) for name, called in functions.items()}


def by_library(graph: lm.Graph, device: str) -> lm.Executable | None:
    """The same program with its products by the vendor's library; None where that has none."""
    backend = compiling(device)
    space = Space(graph.graph(), backend)
    wished = {
        origin.name: called_by(libraries[0])
        for origin in space.decode(Genome()).stages.origins
        if (libraries := backend.library_calls(origin.steps[0]))
    }
    if not wished:
        return None
    program = space.decode(Genome().with_tuned(wished)).program
    return lm.Executable(space.graph, (Variant({}, backend.runner(program)),))


# --- requests -------------------------------------------------------------------------------------


def facts(device: str) -> dict[str, Any]:
    """The card and the versions. Raises CompileError or DeviceError for what runs nothing here."""
    device = compiling(device).name
    cx = lm.Graph()
    (cx.tensor((1,), name="x") + 1).output("y")
    lm.compile(cx, device)(x=np.zeros(1, np.float32))  # a chip by name only compiles
    found: dict[str, Any] = {"device": device, "python": sys.version.split()[0]}
    for package in ("numpy", "torch", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    torch = pytorch()
    if torch is not None:
        card = torch.cuda.get_device_properties(0)
        found |= {"card": card.name, "units": card.multi_processor_count}
    else:
        found["card"] = str(next((d for d in lm.devices() if d.name == device), device))
    return found


def ceilings(device: str, seconds: float) -> dict[str, Any]:
    """What the card copies, and multiplies in PyTorch's products, on random numbers."""
    torch = pytorch()
    if torch is None:
        return {"skipped": "no PyTorch with CUDA: the card's ceilings are not known"}
    source = torch.randn(COPIED // 8, device="cuda")
    copied = partial(torch.empty_like(source).copy_, source)
    found = {"copy": 2 * source.nbytes / statistics.median(alone(timer(torch, copied), seconds))}
    for name, dtype, n in (("bf16", torch.bfloat16, 8192), ("f32", torch.float32, 4096)):
        a, b = (torch.randn(n, n, device="cuda").to(dtype) for _ in range(2))
        taken = statistics.median(alone(timer(torch, partial(torch.matmul, a, b)), seconds))
        found[f"product {name}"] = 2.0 * n**3 / taken
    return found


def row(device: str, name: str, seconds: float, small: bool, beside: bool) -> dict[str, Any]:
    """One program of the table, beside PyTorch in turns of blocks."""
    work = PROGRAMS[name](small)
    given = {key: array for key, array in work.inputs.items() if key not in work.weights}
    start = time.perf_counter()
    program = lm.compile(work.graph(), backend=device)
    found: dict[str, Any] = {"compile_s": time.perf_counter() - start}
    results = dict(program(given))
    found["launches"] = _launches(program)
    sides = {"ours": lambda: program.device_seconds(given)}
    library = by_library(work.graph(), device)
    if library is not None:
        try:
            library(given)
            sides["library"] = lambda: library.device_seconds(given)
        except lm.LuminalError as error:  # it is the vendor's: the row has its other sides
            found["library"] = str(error)[:200]
    torch = pytorch() if beside else None
    wanted = None if torch is not None or not small else _reference(work, given)
    for peer, call in () if torch is None else peers(torch, work).items():
        try:
            first = call()
        except Exception as error:  # torch.compile's, say: the row has another peer
            found[peer] = f"{type(error).__name__}: {str(error)[:200]}"
            continue
        sides[peer] = timer(torch, call)
        wanted = wanted or [first.float().cpu().numpy()]
    found["error"] = None if wanted is None else _error(results, wanted)
    if found["error"] is not None and not found["error"] <= work.tolerance:
        raise AssertionError(f"wrong: {found['error']:.3g} of the norm, {work.tolerance} is taken")
    taken = in_turns(sides, seconds)
    found["us"] = {side: [1e6 * s for s in times] for side, times in taken.items()}
    return found | {"bytes": work.bytes, "flops": work.flops, "bound": dict(work.bound)}


def decode(device: str, seconds: float, small: bool) -> dict[str, Any]:
    """A token of a Llama of 1B's shape with random weights: the time that a caller sees."""
    config, context = (SMALL_LLAMA, 64) if small else (LLAMA_1B, CONTEXT)
    programs = Programs(filled(Llama(config, lm.bfloat16)), context, "fast", device)
    tokens = Tokens(1, min(PAST, context // 2))
    taken = alone(lambda: programs.run(tokens), seconds)
    launches = _launches(programs.decode)
    return {
        "ms": [1e3 * s for s in taken],
        "launches": launches,
        "layers": config.num_hidden_layers,
    }


def _launches(program: lm.Executable) -> int:
    """The launches of a run."""
    return sum(kernel.trips for kernel in program.report().kernels)


def _reference(work: Work, given: dict[str, Array]) -> list[Array]:
    return [*lm.compile(work.graph(), backend="reference")(given).values()]


def _error(found: dict[str, Array], expected: list[Array]) -> float:
    """The norm of the difference, relative, the worst of the outputs."""
    worst = 0.0
    for own, other in zip(found.values(), expected, strict=False):  # PyTorch's is the first alone
        x, y = own.astype(np.float64), np.asarray(other).astype(np.float64)
        norm = float(np.linalg.norm(y)) or 1.0
        worst = max(worst, float(np.linalg.norm(x - y)) / norm)
    return worst


REQUESTS: dict[str, Callable[..., dict[str, Any]]] = {
    "facts": facts,
    "ceilings": ceilings,
    "row": row,
    "decode": decode,
}


def main() -> None:
    """Answers line by line until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = REQUESTS[request.pop("what")](**request)
        except Exception as error:
            lines = traceback.format_exc().splitlines()
            answer = {"failed": f"{type(error).__name__}: {error}"[:2000], "trace": lines[-12:]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
