"""Whisper's times of words, and other temperatures where a text is poor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.models.alignment import Word, token_positions, words_of
from luminal.models.attempts import Attempt, Fallback, compression_of
from luminal.models.transcribe import Transcriber
from tests.close import close
from tests.models.small_whisper import NO_TIMESTAMPS, SIZES, START, noise, saved, torch

HEADS = [(0, 1), (1, 0), (1, 1)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Transcriber]:
    """The model of transformers, and ours."""
    folder = tmp_path_factory.mktemp("whisper")
    theirs = saved(folder)
    theirs.set_attn_implementation("eager")
    return theirs, lm.models.load(folder, backend="reference")


@pytest.mark.parametrize("heard", [50, 17])
def test_positions_of_tokens(both: tuple[Any, Transcriber], heard: int) -> None:
    theirs, ours = both
    features = np.random.default_rng(0).standard_normal((SIZES["num_mel_bins"], 100))
    features = features.astype(np.float32)
    prefix, tokens = [START, 52, 54], [7, 9, 11, 2, 30, 8, 8]
    ours.writer.encode(features)
    found = ours.writer.looks([*prefix, *tokens], HEADS)
    ids = torch.tensor([[*prefix, *tokens]])
    with torch.no_grad():
        output = theirs(
            torch.from_numpy(features)[None], decoder_input_ids=ids, output_attentions=True
        )
    wanted = [output.cross_attentions[layer][0, head].numpy() for layer, head in HEADS]
    close(found, np.stack(wanted), ulp=64)
    generated = SimpleNamespace(
        cross_attentions=[output.cross_attentions], sequences=torch.cat([ids, ids[:, :1]], 1)
    )
    # A plain object takes the place of what generate() gives; `in` asks for its other fields.
    generated = type("Generated", (SimpleNamespace,), {"__contains__": lambda *_: False})(
        **vars(generated)
    )
    times = theirs._extract_token_timestamps(generated, HEADS, 1.0, 2 * heard, len(prefix))
    positions = token_positions(found[:, len(prefix) :, :heard])
    assert positions.tolist() == times[0, len(prefix) : -1].tolist()


def test_weights_that_say_nothing() -> None:
    assert token_positions(np.full((2, 3, 5), 0.2)).shape == (3,)
    assert token_positions(np.ones((1, 1, 1))).tolist() == [0]


def test_words_of_tokens() -> None:
    texts = ["Hel", "lo", ",", " wor", "ld", " (", "yes", ")", "."]

    def decode(ids: Any) -> str:
        return "".join(texts[number] for number in ids)

    words = words_of(range(9), [float(n) for n in range(10)], decode)
    assert words == [Word("Hello,", 0, 3), Word(" world", 3, 5), Word(" (yes).", 5, 9)]
    assert [w.text for w in words_of([0, 1, 2], [0.0, 1.0, 2.0, 3.0], decode, unspaced=True)] == [
        "Hel", "lo,",
    ]  # fmt: skip


def test_segments_have_their_words(both: tuple[Any, Transcriber]) -> None:
    _, ours = both
    sound = noise(2.3)
    plain = ours.transcribe(sound)
    worded = ours.transcribe(sound, words=True)
    assert [(s.start, s.end, s.text) for s in worded] == [(s.start, s.end, s.text) for s in plain]
    assert any(segment.words for segment in worded)
    for segment in worded:
        assert "".join(word.text for word in segment.words).split() == segment.text.split()
        for word in segment.words:
            assert 0 <= word.start <= word.end <= 3.0


def attempt(logprob: float, compression: float, silence: float = 0.0) -> Attempt:
    return Attempt([], 0.0, logprob, compression, silence)


def test_what_is_good_enough() -> None:
    rule = Fallback()
    assert rule.is_good(attempt(-0.5, 1.5))
    assert not rule.is_good(attempt(-1.5, 1.5))
    assert not rule.is_good(attempt(-0.5, 3.0))
    assert rule.is_good(attempt(-1.5, 1.5, 0.9))
    assert rule.is_silence(attempt(-1.5, 1.5, 0.9))
    assert not rule.is_silence(attempt(-0.5, 1.5, 0.9))
    assert compression_of("the same " * 20) > 2.4 > compression_of("Once upon a time") > 0
    with pytest.raises(lm.InputError, match=r"temperatures: \(\) must be numbers of 0 to 2"):
        Fallback(())


@pytest.mark.long
def test_higher_temperatures(both: tuple[Any, Transcriber]) -> None:
    theirs, ours = both
    sound = noise(1.0)
    (first, *_) = ours.transcribe(sound)
    assert first.attempt is not None
    # The mean log-probability by hand: the tokens of the window under the rules for timestamps.
    assert first.attempt.temperature == 0
    never = Fallback((0.0, 0.5, 1.0), logprob=0.0, silence=1.0)
    drawn = ours.transcribe(sound, fallback=never)
    assert drawn[0].attempt is not None
    assert drawn[0].attempt.temperature == 1.0
    assert ours.transcribe(sound, fallback=never) == drawn
    other = Fallback((0.0, 0.5, 1.0), logprob=0.0, silence=1.0, seed=1)
    assert ours.transcribe(sound, fallback=other) != drawn
    kept = Fallback((0.0, 0.5), logprob=first.attempt.logprob - 1, compression=99, silence=1.0)
    assert ours.transcribe(sound, fallback=kept) == ours.transcribe(sound)
    # Surer than 0 that nobody speaks, and of an unlikely text: there is none.
    assert ours.transcribe(sound, fallback=Fallback((0.0,), logprob=0.0, silence=0.0)) == []
    with torch.no_grad():
        frames = ours.log_mel(np.pad(sound, (0, 0)))
        ours.writer.encode(frames)
        logits = theirs(
            torch.from_numpy(frames)[None], decoder_input_ids=torch.tensor([[START]])
        ).logits[0, 0]
    wanted = logits.softmax(-1)[NO_TIMESTAMPS - 1].numpy()
    close(np.float32(ours._silence()), wanted, ulp=256)


def test_heads_that_are_none(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "generation_config.json"
    text = path.read_text()
    for pair, message in (
        ('[1, "a"]', r"\[1, 'a'\]; each is a layer and"),
        ("[2, 0]", "has 2 layer"),
    ):
        path.write_text(text.replace("{", f'{{"alignment_heads": [{pair}],', 1))
        with pytest.raises(lm.LoadError, match=f"alignment_heads has .*{message}"):
            lm.models.load(tmp_path, backend="reference")
