"""Adapters by name in a server: texts are those of a model into which the adapter is merged."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError
from luminal.cli.chat import command as chat
from luminal.cli.serve import _adapters
from luminal.models import PromptLookup
from luminal.models.adapters import read_adapter
from luminal.models.architectures import decoder_of
from luminal.models.checkpoint import Checkpoint
from luminal.models.decoder import Decoder
from luminal.models.generate import LanguageModel
from luminal.models.named_adapters import keep_apart
from luminal.models.sampling import Sampling
from luminal.models.text import Text as Written
from luminal.serve import program
from luminal.serve.app import make_app
from luminal.serve.blocks import BlockPool, contents_of
from luminal.serve.engine import Engine, EngineOptions
from luminal.serve.jobs import Event, Job
from luminal.serve.load import load
from luminal.serve.orders import Limits
from luminal.serve.program import adapters_of, inputs_of
from luminal.serve.ranks import Ranks
from luminal.serve.scheduler import Row, Step, Text
from luminal.serve.served import Served
from tests.models.small_adapters import adapter, pairs
from tests.serve.running import CONFIG, CONTEXT, asked, characters, running

Array = np.ndarray[Any, Any]
ENDS = {"one": ("q_proj", "up_proj"), "two": ("o_proj", "k_proj", "down_proj")}
SAYS = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": CONFIG.hidden_size,
    "intermediate_size": CONFIG.intermediate_size, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "vocab_size": CONFIG.vocab_size, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6,
}  # fmt: skip
SHARED = "a shared beginning of some length: "
ASKS: list[tuple[str, dict[str, Any]]] = [
    (SHARED + "x", {}),
    (SHARED + "x", {"temperature": 0.8, "seed": 3}),
    ("ab ab ab ab ab", {}),
    ("z", {"temperature": 1.2, "seed": 9}),
]
TIME = 120.0


def models(folder: Path) -> list[Decoder]:
    """A model, the same with "one" and with "two" merged, and with both apart."""
    lm.manual_seed(5)
    tensors = {name: held.numpy() for name, held in Decoder(CONFIG).named_parameters()}
    checkpoint = Checkpoint(SAYS, tensors, None, folder / "config.json")
    adapters = {}
    for number, (name, ends) in enumerate(ENDS.items()):
        rng = np.random.default_rng(number)
        added = {
            key: rng.standard_normal(array.shape).astype(np.float32) / 2
            for key, array in pairs(tensors, ends, 3 + number).items()
        }
        path = adapter(folder / name, added, r=3 + number, target_modules=[*ends])
        adapters[name] = read_adapter(path)
    merged = [each.merged(tensors) for each in adapters.values()]
    made = [decoder_of(replace(checkpoint, tensors=each)) for each in (tensors, *merged, tensors)]
    keep_apart(made[-1], checkpoint, adapters)
    return made


def texts(
    engine: Engine, asks: Sequence[tuple[str, dict[str, Any], int]], rounds: int = 2
) -> list[tuple[str, tuple[float, ...]]]:
    """The texts of requests that come together, with log-probabilities, in rounds."""
    said: dict[Job, str] = {}
    logprobs: dict[Job, tuple[float, ...]] = {}
    wrong: list[str] = []
    left: set[Job] = set()
    ended = threading.Condition()

    def deliver(events: list[Event]) -> None:
        with ended:
            for event in events:
                if event.error is not None:
                    wrong.append(event.error)
                said[event.job] = said.get(event.job, "") + event.piece
                if event.logprob is not None:
                    logprobs[event.job] = (*logprobs.get(event.job, ()), event.logprob)
                if event.reason is not None or event.error is not None:
                    left.discard(event.job)
            ended.notify_all()

    jobs = []
    engine.start(deliver)
    try:
        for _ in range(rounds):
            begun = []
            for prompt, settings, number in asks:
                ids = engine.tokenizer.encode(prompt)
                text = Written(engine.tokenizer, ids, 24, Sampling(**settings))
                begun.append(engine.job(text, ids, 0, adapter=number))
            with ended:
                left.update(begun)
            for job in begun:
                engine.submit([job])
            with ended:
                assert ended.wait_for(lambda: not left, TIME)
            jobs += begun
        assert wrong == []
    finally:
        engine.stop()
    return [(said[job], logprobs[job]) for job in jobs]


def engine(model: Decoder, draft: Decoder | PromptLookup | None = None) -> Engine:
    """Its cache has too few blocks for all texts at once."""
    options = EngineOptions(rows=16, chunk=32, size=4, cache=256)
    return Engine(model, characters(), CONTEXT, options, draft)


@pytest.mark.long
@pytest.mark.parametrize("draft", [None, "lookup", "model"])
def test_a_mixed_batch(draft: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one batch, with shared beginnings: each text is that of the merged model, and without
    an adapter the log-probabilities are the plain model's, bit for bit.
    """
    monkeypatch.setattr(program, "WAYS", ((), program.FEATURES))
    plain, one, two, apart = models(tmp_path)
    wanted: list[list[tuple[str, tuple[float, ...]]]] = [
        texts(engine(model), [(*ask, 0) for ask in ASKS]) for model in (plain, one, two)
    ]
    assert len({row[0][0] for row in wanted}) == 3  # each adapter says something else
    proposes = {None: None, "lookup": PromptLookup(), "model": plain}[draft]
    mixed = engine(apart, proposes)
    found = texts(mixed, [(*ask, number) for ask in ASKS for number in (0, 1, 2)])
    for place, (text, logprobs) in enumerate(found):
        ask, number = divmod(place, 3)
        expected, chances = wanted[number][ask]
        assert text == expected, (ask, number)
        if number:
            # Logarithms of sums in float32, merged there and apart here.
            np.testing.assert_allclose(logprobs, chances, atol=1e-4)
        else:
            assert logprobs == chances
    load_of = mixed.load
    assert (load_of.proposed > 0) == (draft is not None)
    assert load_of.steps < load_of.computed / 4  # they ran together


def test_blocks_of_one_adapter_are_not_another_s() -> None:
    tokens = [*range(8)]
    names = [
        {content.name for content in contents_of(tokens, 8, 4, adapter=number)}
        for number in range(3)
    ]
    assert all(len(each) == 2 for each in names)
    assert len(set.union(*names)) == 6
    # Nor where a text goes on, whose first blocks are known already.
    first = contents_of(tokens[:4], 8, 4, adapter=2)
    assert contents_of(tokens, 8, 4, first, adapter=2) == contents_of(tokens, 8, 4, adapter=2)


def test_numbers_of_tokens() -> None:
    """In the order of the other inputs: pieces of 16 of the chunks, padding, then single rows."""
    held = [Text([1] * 20, 30, adapter=2), Text([1] * 3, 9), Text([1] * 4, 9, adapter=1)]
    for text in held:
        text.blocks = [*range(5)]
    rows = (Row(held[2], 3, 1), Row(held[0], 2, 1), Row(held[1], 2, 1))
    step = Step(rows, (Row(held[1], 0, 3), Row(held[0], 0, 20)), ())
    found = adapters_of(step)
    assert found.tolist() == [0] * 16 + [2] * 32 + [0] * 16 + [1, 2, 0, 0]
    assert found.dtype == np.int32
    assert len(found) == len(inputs_of(step, BlockPool(9, 4)).ids)


def test_the_api_by_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "WAYS", (program.FEATURES,))
    _, _, two, apart = models(tmp_path)
    options = EngineOptions(rows=8, chunk=16, size=4, cache=256, backend="reference")
    served = Served("tiny", LanguageModel(apart, characters(), context=CONTEXT), options)
    merged = LanguageModel(two, characters(), backend="reference", context=CONTEXT)
    body = {"prompt": "ab", "max_tokens": 3, "temperature": 0, "logprobs": 1, "echo": True}
    with running(served) as server, server.client() as client:
        assert [each.id for each in client.models.list()] == ["tiny", "one", "two"]
        assert client.models.retrieve("two").parent == "tiny"
        found = {name: client.completions.create(model=name, **body) for name in ("tiny", *ENDS)}
        vectors = [client.embeddings.create(model=m, input="ab") for m in ("tiny", *ENDS)]
        error = asked(make_app(server.served, Limits()), {"model": "three", "prompt": "a"})
        assert error.status_code == 404
        assert "'three' does not exist; there are 'tiny', 'one', 'two'" in error.text
    (wanted,) = merged.complete(["ab"], 3, logprobs=True)
    assert [found["two"].model, vectors[2].model] == ["two", "two"]
    mine = found["two"].choices[0]
    assert mine.text == "ab" + wanted.text
    chances = [*merged.score("ab"), *wanted.logprobs]
    # Logarithms of sums in float32, merged there and apart here.
    np.testing.assert_allclose(mine.logprobs.token_logprobs[1:], chances, atol=1e-4)
    # Means of the same sums, in another order.
    np.testing.assert_allclose(vectors[2].data[0].embedding, merged.embed("ab"), atol=1e-4)
    assert len({each.choices[0].logprobs.token_logprobs[1] for each in found.values()}) == 3


GIVEN: dict[str, tuple[list[str], Any]] = {
    "none": ([], (None, {})),
    "a folder": (["a/b"], ("a/b", {})),
    "a folder with a sign": (["./a=b"], ("./a=b", {})),
    "a name": (["x=a"], (None, {"x": "a"})),
    "two names": (["x=a", "y=./b=c"], (None, {"x": "a", "y": "./b=c"})),
    "a name twice": (["x=a", "x=b"], "the name 'x' has a already; give each another"),
    "two folders": (["a", "b"], "--adapter a: .* give each a name: --adapter NAME=FOLDER"),
    "both": (["x=a", "b"], "--adapter b: .* give each a name: --adapter NAME=FOLDER"),
    "no name": (["=a"], "--adapter =a: write NAME=FOLDER, or FOLDER alone"),
    "no folder": (["x="], "--adapter x=: write NAME=FOLDER, or FOLDER alone"),
}


@pytest.mark.parametrize("case", GIVEN)
def test_what_is_given(case: str) -> None:
    given, wanted = GIVEN[case]
    if isinstance(wanted, str):
        with pytest.raises(InputError, match=wanted):
            _adapters(given)
    else:
        assert _adapters(given) == dict(zip(("adapter", "adapters"), wanted, strict=True))


def test_who_cannot_have_them() -> None:
    with pytest.raises(
        InputError, match=r"'m' is the model's own name; .* or the model, by --name"
    ):
        load("a/m", adapters={"m": "b"})
    with pytest.raises(InputError, match="with --tensor merge one adapter: --adapter FOLDER"):
        load("a/m", adapters={"x": "b"}, ranks=Ranks())
    for name, said in (
        ("\udcff", "'.udcff'"),
        ("a\n", "'a.n'"),
    ):  # of a shell's bytes, a line's end
        for options in ({"adapters": {name: "b"}}, {"name": name}):
            with pytest.raises(
                InputError, match=f"the name {said} has .*; give another, by --name"
            ):
                load("a/m", **options)


def test_a_chat_merges_one() -> None:
    with pytest.raises(InputError, match="only one is merged; merge the first into a model"):
        chat("m", adapter=["a", "b"])
