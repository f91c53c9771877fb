"""A small Llama from a real checkpoint: how fast it writes, how long its compile takes; thin layers
of a 1.1B Llama beside llama.cpp, of the same GGUF file.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from bench.pair import in_pairs
from bench.row import Row, Rows, Skipped, duration
from luminal import models
from luminal.base import config
from luminal.models import Llama, LlamaConfig
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import load_checkpoint
from luminal.models.peer import Peer
from luminal.models.speed import Programs, Work, filled, measured
from luminal.models.write_folder import write_folder

FOLDER = Path(__file__).resolve().parents[2] / "shared/data/tinystories-656k"
PROMPT = "Once upon a time, there was a little girl"
TOKENS = 200
COMPILES = 3  # processes, each with an empty cache and then with the one it has filled

THIN = LlamaConfig(2048, 5632, 2, 32, 4, 64, 2048, 2048)  # two layers of 1.1B's 22
# Of weights in GGUF: what prompts and single tokens should reach.
KINDS = {"bf16": (1.2, 1.0), "q8_0": (2.2, 1.3), "q4_0": (1.3, 1.25)}
CONTEXT = 300
WORKS = Work(128, 0), Work(1, 128)
BLOCKS = 6

PROGRAM = """
import pathlib, sys
from luminal import config, models
with config.override(LUMINAL_CACHE_DIR=pathlib.Path(sys.argv[2])):
    model = models.load(sys.argv[1])
    model.compile()
print(model.stats.compile)
"""


def rows() -> Rows:
    """Tokens a second against transformers, then the compile of prefill and decode."""
    if not FOLDER.is_dir():
        yield Skipped("tinystories-656k", "no ../shared/data/tinystories-656k")
        return
    yield _generate()
    yield from _compile()
    yield from _thin()


def _generate() -> Row:
    """A whole greedy generation as a user calls it, from the prompt to the text."""
    ours = models.load(FOLDER)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    theirs: Any = transformers.LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    options = {"max_new_tokens": TOKENS, "do_sample": False}

    def peer() -> str:
        given = tokenizer(PROMPT, return_tensors="pt")
        ids = theirs.generate(**given, pad_token_id=0, **options)[0]
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    text = PROMPT + ours.generate(PROMPT, TOKENS)
    if text.split() != peer().split():
        raise AssertionError(f"generate: the texts differ:\n{text}\n--\n{peer()}")
    pairs = in_pairs(lambda: ours.generate(PROMPT, TOKENS), peer)
    own, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    count, ratios = ours.stats.new_tokens, [p / o for o, p in pairs]
    detail = f"{count / own:.0f} against {count / other:.0f} tokens/s, {count} tokens"
    spread = (min(ratios), max(ratios))
    return Row("generate tinystories-656k", other / own, 5, "x", spread, detail)


def _compile() -> Rows:
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(COMPILES):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-c", PROGRAM, str(FOLDER), cache]
            # Byte code of modules as an installed package has it, whatever this shell says.
            bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
            environment = config.child_environment() | bytecode
            for times in (cold, warm):
                done = subprocess.run(
                    command, capture_output=True, check=True, text=True, env=environment
                )
                times.append(float(done.stdout))
    yield duration("lm.compile tinystories-656k, empty cache", cold, 5, "s")
    yield duration("lm.compile tinystories-656k, warm cache", warm, 1, "s")


def _thin() -> Rows:
    """A prompt and single tokens of two layers, in blocks that take turns with llama.cpp's."""
    if not Peer.is_installed("llama.cpp"):
        yield Skipped("two layers of 1.1B", "llama-cpp-python is not installed")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "thin"
        tokenizer = (FOLDER / "tokenizer.json").read_text("utf-8")
        model = Llama(THIN, "bfloat16")
        filled(model)
        write_folder(folder, model, tokenizer, "bfloat16")
        for kind, targets in KINDS.items():
            file = Path(place) / f"{kind}.gguf"
            models.convert(folder, file, kind)
            yield from _beside_llama_cpp(file, targets)


def _beside_llama_cpp(file: Path, targets: tuple[float, ...]) -> Rows:
    packed = file.stem != "bf16"  # which llama.cpp multiplies by bytes
    model = decoder_of(load_checkpoint(file, keep_quantized=packed), "int8" if packed else None)
    threads = config.get("LUMINAL_THREADS")
    spec = {"path": str(file), "threads": threads, "context": CONTEXT}
    with Peer("llama.cpp", spec) as peer:
        speed = measured(Programs(model, CONTEXT, "fast", "cpu"), WORKS, [peer], BLOCKS)
    for work, target in zip(WORKS, targets, strict=True):
        own, other = speed.seconds[work].middle, speed.peers["llama.cpp"][work]
        detail = f"{work.tokens / own:.0f} against {work.tokens / other:.0f} tokens/s"
        name = f"two layers of 1.1B, {file.stem}, {work}"
        yield Row(name, other / own, target, "x", (other / own, other / own), detail)
