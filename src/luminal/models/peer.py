"""Another library's decoder in a process of its own, to be timed in turns with ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

from luminal.base import config
from luminal.base.errors import LuminalError

_LOOP = """
import json, sys, time
def answer(run):
    print("ready", flush=True)
    for line in sys.stdin:
        tokens, past, seconds = json.loads(line)
        taken, end = [], time.perf_counter() + seconds
        while not taken or time.perf_counter() < end:
            taken.append(run(tokens, past))
        print(json.dumps(taken), flush=True)
spec = json.loads(sys.argv[1])
"""
_TRANSFORMERS = """
import copy, torch, transformers
torch.set_num_threads(spec["threads"])
transformers.utils.logging.set_verbosity_error()
kind = transformers.AutoModelForCausalLM
if spec["path"]:
    model = kind.from_pretrained(spec["path"], dtype=spec["dtype"])
else:
    keys = spec["config"]
    config = transformers.AutoConfig.for_model(**keys)
    model = kind.from_config(config, dtype=getattr(torch, spec["dtype"]))
model.eval()
read = {}
@torch.inference_mode()
def run(tokens, past):
    def step(count, cache):
        ids = torch.zeros((1, count), dtype=torch.long)
        return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).past_key_values
    if past and past not in read:
        read[past] = step(past, None)
    cache = copy.deepcopy(read.get(past))
    start = time.perf_counter()
    step(tokens, cache)
    return time.perf_counter() - start
answer(run)
"""
_LLAMA_CPP = """
import llama_cpp
model = llama_cpp.Llama(
    spec["path"], n_ctx=spec["context"], n_threads=spec["threads"], verbose=False
)
def run(tokens, past):
    model.reset()
    if past:
        model.eval([0] * past)
    start = time.perf_counter()
    model.eval([0] * tokens)
    return time.perf_counter() - start
answer(run)
"""
_SCRIPTS = {"transformers": _TRANSFORMERS, "llama.cpp": _LLAMA_CPP}
_NEEDED = {"transformers": ("torch", "transformers"), "llama.cpp": ("llama_cpp",)}


class Peer:
    """A child process; a context manager ends it."""

    def __init__(self, name: str, spec: dict[str, Any]) -> None:
        self.name = name
        command = [sys.executable, "-c", _LOOP + _SCRIPTS[name], json.dumps(spec)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            # In a process of its own: two libraries in one share a pool of threads and an
            # allocator, and each would be timed with the other's settings.
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=config.child_environment(),
        )
        self._answer()

    @staticmethod
    def is_installed(name: str) -> bool:
        """Can it be run here?"""
        return all(find_spec(module) is not None for module in _NEEDED[name])

    def seconds(self, tokens: int, past: int, block: float) -> list[float]:
        """Times of reading so many tokens after `past` others, again and again for a block of
        seconds.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended: the answer says why
            self._process.stdin.write(json.dumps([tokens, past, block]) + "\n")
            self._process.stdin.flush()
        times: list[float] = json.loads(self._answer())
        return times

    def _answer(self) -> str:
        """The next line of the process. LuminalError with what it said where it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            said = errors.strip().splitlines() or ["nothing"]
            raise LuminalError(f"bench: the process of {self.name} ended; it said: {said[-1]}")
        return line

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
