"""The process of one side of a large row: `python -m bench.large_sides SIDE`.

Requests come line by line, answers go back the same way (`bench/guarded.py`). Each side has its
model once, so that it can be timed again and again while the machine's limits are measured between.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from bench import large_steps
from luminal.base import config
from luminal.base.host import peak_bytes


class Model(Protocol):
    """A side's model: what it is asked for is a method, with what it takes by name."""

    @property
    def run(self) -> Callable[..., float]:
        """Gives the seconds of a run: of so many tokens after so many others, or of a step."""


SHOWN = 64  # logits that are compared


class Luminal:
    """The GGUF file as `luminal generate` runs it: packed matrices stay packed."""

    def __init__(self, path: str, kind: str, context: int, threads: int) -> None:
        from luminal.models.architectures import decoder_of
        from luminal.models.checkpoint import load_checkpoint
        from luminal.models.speed import Programs

        packed = kind != "bf16"
        checkpoint = load_checkpoint(
            Path(path), keep_quantized=packed, keep_order=True, with_tokenizer=False
        )
        self.model = decoder_of(checkpoint, "int8" if packed else None)
        self.programs = Programs(self.model, context, "fast", "cpu")

    def run(self, tokens: int, past: int) -> float:
        from luminal.models.speed import Work

        return self.programs.run(Work(tokens, past))

    def logits(self, ids: list[int]) -> list[float]:
        import numpy as np

        given = {"ids": np.array(ids, np.int32)}
        found = self.programs.prefill(given, dims={"past": 0})["logits"]
        return [float(x) for x in np.asarray(found, np.float64).reshape(-1)[:SHOWN]]


class LlamaCpp:
    """The same file in llama.cpp, as it comes from PyPI."""

    def __init__(self, path: str, kind: str, context: int, threads: int) -> None:
        import llama_cpp

        self.model = llama_cpp.Llama(path, n_ctx=context, n_threads=threads, verbose=False)

    def run(self, tokens: int, past: int) -> float:
        self.model.reset()
        if past:
            self.model.eval([0] * past)
        start = time.perf_counter()
        self.model.eval([0] * tokens)
        return time.perf_counter() - start

    def logits(self, ids: list[int]) -> list[float]:
        import llama_cpp

        self.model.reset()
        self.model.eval(ids)
        found = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
        return [float(found[k]) for k in range(SHOWN)]


class PyTorch:
    """transformers' Llama in bfloat16, of the file's own arrays."""

    def __init__(self, path: str, kind: str, context: int, threads: int) -> None:
        import torch
        import transformers

        from luminal.models.checkpoint import load_checkpoint

        torch.set_num_threads(threads)
        checkpoint = load_checkpoint(Path(path), with_tokenizer=False)
        keys = {k: v for k, v in checkpoint.config.items() if k != "architectures"}
        settings = transformers.LlamaConfig(**keys)
        with torch.device("meta"):
            model: Any = transformers.LlamaForCausalLM(settings)
        self.model = model.to(torch.bfloat16)
        state = {
            name: torch.from_numpy(array.view("uint16")).view(torch.bfloat16)
            if array.dtype.itemsize == 2
            else torch.from_numpy(array).bfloat16()
            for name, array in checkpoint.tensors.items()
        }
        if keys.get("tie_word_embeddings"):
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        self.model.load_state_dict(state, assign=True)
        rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config=settings)
        self.model.model.rotary_emb = rotary
        self.model.eval()
        self.caches: dict[int, Any] = {}

    def run(self, tokens: int, past: int) -> float:
        import copy

        if past and past not in self.caches:
            self.caches[past] = self._step([0] * past, None).past_key_values
        cache = copy.deepcopy(self.caches.get(past))
        start = time.perf_counter()
        self._step([0] * tokens, cache)
        return time.perf_counter() - start

    def logits(self, ids: list[int]) -> list[float]:
        return [float(x) for x in self._step(ids, None).logits.reshape(-1)[:SHOWN]]

    def _step(self, ids: list[int], cache: Any) -> Any:
        import torch

        with torch.inference_mode():
            given = torch.tensor([ids])
            return self.model(given, past_key_values=cache, use_cache=True, logits_to_keep=1)


SIDES: dict[str, Callable[..., Model]] = {
    "ours": Luminal,
    "llama.cpp": LlamaCpp,
    "PyTorch": PyTorch,
    "ours, steps": large_steps.Luminal,
    "PyTorch, steps": large_steps.PyTorch,
    "JAX, steps": large_steps.Jax,
}


def answered(held: list[Any], side: str, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request; `held` has the side's model once it was loaded."""
    what = request.pop("what")
    if what == "load":
        start = time.perf_counter()
        with config.override(LUMINAL_THREADS=request["threads"]):
            held[:] = [SIDES[side](**request)]
        return {"seconds": time.perf_counter() - start}
    if what == "peak":
        return {"bytes": peak_bytes()}
    (model,) = held
    if what != "run":
        return {"answer": getattr(model, what)(**request)}
    seconds, work, taken = request["seconds"], request["work"], list[float]()
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        taken.append(model.run(*work))
    return {"seconds": taken}


def main() -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to the error output
    held: list[Any] = []
    for line in sys.stdin:
        try:
            answer = answered(held, sys.argv[1], json.loads(line))
        except Exception as error:
            lines = traceback.format_exc().splitlines()
            answer = {"failed": f"{type(error).__name__}: {error}"[:500], "trace": lines[-8:]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
