"""Tiny decoders made by transformers, saved to files, and how ours is compared with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import luminal as lm
from luminal.models import load
from luminal.models.decoder import Decoder
from tests.close import close_to_greatest
from tests.models.tiny_architectures import TINY, VARIANTS, VOCABULARY, Tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
LONGEST = 48
LENGTHS = (1, 7, 19)


def saved(name: str, folder: Path) -> Any:
    """A random model of transformers, also written to the folder.

    Weights are wide enough for attention to choose, and none is left at 0 or 1.
    """
    return made((TINY | VARIANTS)[name], folder)


def made(tiny: Tiny, folder: Path) -> Any:
    """The same of a configuration."""
    torch.manual_seed(0)
    config = getattr(transformers, tiny.config)(**tiny.options)
    model = getattr(transformers, tiny.model)(config).eval()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not name.endswith(("slope_rate", "_decay")):  # what follows from a layer's number
                value.add_(torch.randn_like(value) * 0.2)
    write(model, tiny, folder)
    return model


def write(model: Any, tiny: Tiny, folder: Path) -> None:
    """Saves a model as transformers does, under the class that published files name."""
    model.save_pretrained(folder)
    if tiny.published:
        path = folder / "config.json"
        said = json.loads(path.read_text())
        path.write_text(json.dumps(said | {"architectures": [tiny.published]}))


def whole(model: Decoder) -> lm.Graph:
    """Logits of three texts of one length."""
    graph = lm.Graph()
    ids = graph.tensor((3, graph.dim("s", 1, LONGEST)), lm.int32, "ids")
    model(ids).output("logits")
    return graph


def cached(model: Decoder) -> lm.Graph:
    """Logits of further tokens of one text."""
    graph = lm.Graph()
    past = graph.dim("past", 0, LONGEST - 1)
    ids = graph.tensor((graph.dim("s", 1, LONGEST),), lm.int32, "ids")
    model(ids, model.make_caches(LONGEST), past).output("logits")
    return graph


def expected(model: Any, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Theirs, with `ids` (batch, s)."""
    with torch.no_grad():
        return model(torch.from_numpy(ids).long()).logits.numpy()  # type: ignore[no-any-return]


def check_logits(theirs: Any, model: Decoder, backend: str) -> None:
    """Of three texts at once, of three lengths; then of one text in steps, with caches."""
    rng = np.random.default_rng(0)
    exe = whole(model).compile(backend)
    for length in LENGTHS:
        ids = rng.integers(0, VOCABULARY, (3, length)).astype(np.int32)
        close_to_greatest(exe(ids=ids)["logits"], expected(theirs, ids))
    ids = rng.integers(0, VOCABULARY, 14).astype(np.int32)
    exe = cached(model).compile(backend)
    logits = expected(theirs, ids[None])[0]
    past = 0
    for count in (9, 1, 1, 3):
        part = slice(past, past + count)
        close_to_greatest(exe(ids=ids[part], dims={"past": past})["logits"], logits[part])
        past += count


def check_one_length(theirs: Any, model: Any, length: int) -> None:
    """Of three texts at once; a model of theirs is only run."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (3, length)).astype(np.int32)
    found = expected(theirs, ids)
    if isinstance(model, Decoder):
        close_to_greatest(whole(model).compile("reference")(ids=ids)["logits"], found)


def check_texts_in_step(theirs: Any, model: Decoder, backend: str) -> None:
    """Three texts of one length, read together; then each has a position of its own."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, VOCABULARY, (3, 12)).astype(np.int32)
    logits = expected(theirs, ids)
    graph = lm.Graph()
    first = graph.tensor((3, graph.dim("s", 1, LONGEST)), lm.int32, "ids")
    caches = model.make_caches(LONGEST, batch=3)
    model(first, caches, graph.dim("past", 0, LONGEST)).output("logits")
    exe = graph.compile(backend)
    close_to_greatest(exe(ids=ids[:, :7], dims={"past": 0})["logits"], logits[:, :7])
    close_to_greatest(exe(ids=ids[:, 7:9], dims={"past": 7})["logits"], logits[:, 7:9])
    graph = lm.Graph()
    rows = graph.dim("rows", 1, 3)
    one = graph.tensor((rows, 1), lm.int32, "ids")
    places = graph.tensor((rows, 1), lm.int32, "positions")
    model(one, caches, places).output("logits")
    exe = graph.compile(backend)
    found = exe(ids=ids[:, 9:10], positions=np.full((3, 1), 9, np.int32))["logits"]
    close_to_greatest(found, logits[:, 9:10])
    beginning = np.array([[10], [0]], np.int32)  # the second text starts again
    found = exe(ids=np.array([ids[0, 10:11], ids[1, :1]]), positions=beginning)["logits"]
    close_to_greatest(found, np.array([logits[0, 10:11], logits[1, :1]]))
    found = exe(ids=ids[2:, 10:11][[0, 0, 0]], positions=np.full((3, 1), 10, np.int32))["logits"]
    close_to_greatest(found[2], logits[2, 10:11])  # the third was not touched


def check_greedy_tokens(theirs: Any, folder: Path, backend: str) -> None:
    """The 30 likeliest tokens after five, then eight after prompts of three lengths at once.

    Two programs are compiled for a text alone, and two for a batch.
    """
    write_tokenizer(folder)
    language_model = load(folder, backend=backend, context=LONGEST)
    prompt = [3, 14, 15, 9, 26]
    before = lm.compile_count()
    found = list(language_model.tokens(prompt, 30))
    assert lm.compile_count() - before <= 2
    for count, token in enumerate(found):
        logits = expected(theirs, np.array([prompt + found[:count]]))[0, -1]
        assert token == logits.argmax(), f"token {count} of {found}"
    assert len(found) == 30
    prompts = [prompt, prompt[:2], [*prompt, *found[:6]]]
    batch = language_model.complete(prompts, 8)
    for ids, completion in zip(prompts, batch, strict=True):
        logits = expected(theirs, np.array([[*ids, *completion.tokens]]))[0]
        wanted = logits[len(ids) - 1 : -1].argmax(-1)
        np.testing.assert_array_equal(completion.tokens, wanted)
    assert lm.compile_count() - before <= 4


def write_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are single letters."""
    letters = {chr(0x4E00 + number): number for number in range(VOCABULARY)}
    Tokenizer(WordLevel(letters, unk_token=next(iter(letters)))).save(
        str(folder / "tokenizer.json")
    )
