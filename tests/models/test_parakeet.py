"""Parakeet: spectrograms, logits, texts and their times as transformers'."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.models.ctc import CtcTranscriber, Frames
from luminal.models.families import read_model
from tests.close import close_to_greatest
from tests.models.small_parakeet import BLANK, PIECES, SIZES, saved, tokenizer, torch, transformers

RATE = 16000
HOP = 160 * 8


def noise(seconds: float, seed: int = 0) -> np.ndarray[Any, Any]:
    """Noise that gets louder."""
    count = int(seconds * RATE)
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * np.linspace(0.02, 0.5, count)).astype(np.float32)


def theirs_of(folder: Path, model: Any, sounds: list[np.ndarray[Any, Any]]) -> tuple[Any, Any]:
    """What transformers makes of sounds: its inputs and logits."""
    extractor = transformers.ParakeetFeatureExtractor.from_pretrained(folder)
    inputs = extractor(sounds, sampling_rate=RATE, return_tensors="pt")
    with torch.no_grad():
        return inputs, model(**inputs).logits.numpy()


def check_logits(folder: Path, backend: str, *seconds: float, **changes: Any) -> None:
    """Of several sounds, by one program."""
    model = saved(folder, **changes)
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, CtcTranscriber)
    assert isinstance(loaded.prepared, Frames)
    before = lm.compile_count()
    for length in seconds:
        sound = noise(length)
        inputs, wanted = theirs_of(folder, model, [sound])
        frames = int(inputs["attention_mask"].sum())
        close_to_greatest(loaded.prepared(sound), inputs["input_features"][0, :frames].numpy())
        found = loaded.logits(sound)
        close_to_greatest(found, wanted[0, : len(found)])
        assert len(found) == -(-frames // loaded.prepared.group)
    assert lm.compile_count() - before == 1


def test_logits_are_those_of_transformers(tmp_path: Path) -> None:
    check_logits(tmp_path, "reference", 0.02, 0.31, 0.4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("sound", "changes"),
    [
        ({}, {}),
        ({"preemphasis": None, "win_length": 320, "hop_length": 128}, {"scale_input": False}),
        ({"n_fft": 400}, {"attention_bias": False, "convolution_bias": False}),
        ({}, {"subsampling_factor": 4, "hidden_act": "relu", "conv_kernel_size": 9}),
        ({}, {"subsampling_factor": 2, "subsampling_conv_kernel_size": 5}),
        ({}, {"subsampling_factor": 4, "subsampling_conv_stride": 4}),
    ],
)
def test_compiled_logits(sound: dict[str, Any], changes: dict[str, Any], tmp_path: Path) -> None:
    check_logits(tmp_path, "cpu", 0.05, 0.4, 1.33, sound=sound, **changes)


def check_batch(folder: Path, backend: str, *seconds: float, **changes: Any) -> None:
    """What follows a sound's end changes nothing."""
    model = saved(folder, **changes)
    inputs, wanted = theirs_of(folder, model, [noise(n, k) for k, n in enumerate(seconds)])
    frames = inputs["input_features"].numpy()
    lengths = inputs["attention_mask"].sum(1).numpy().astype(np.int32)
    for row, length in zip(frames, lengths, strict=True):
        row[length:] = 7
    graph = lm.Graph()
    batch, count = graph.dim("b", 1, 9), graph.dim("f", 2, 999)
    x = graph.tensor((batch, count, frames.shape[2]), lm.float32, "x")
    read_model(folder)(x, graph.tensor((batch,), lm.int32, "n")).output("logits")
    found = graph.compile(backend=backend)(x=frames, n=lengths)["logits"]
    assert found.shape == wanted.shape
    for row, other, length in zip(found, wanted, lengths, strict=True):
        heard = -(-length // model.config.encoder_config.subsampling_factor)
        close_to_greatest(row[:heard], other[:heard])


def test_sounds_in_a_batch(tmp_path: Path) -> None:
    check_batch(tmp_path, "reference", 0.13, 0.4, 0.2)


@pytest.mark.long
def test_compiled_batch(tmp_path: Path) -> None:
    check_batch(tmp_path, "cpu", 0.7, 0.13, 1.2, 0.05)


def drawn_settings(seed: int) -> dict[str, Any]:
    """Any configuration that there may be."""
    rng = np.random.default_rng(seed)

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    heads, factor = one(1, 2, 3), one(2, 4, 8, 16)
    mels = factor * one(1, 2, 3)
    return {
        "sound": {"feature_size": mels, "hop_length": one(100, 160), "win_length": one(200, 400)},
        "num_mel_bins": mels,
        "subsampling_factor": factor,
        "subsampling_conv_channels": one(3, 8),
        "subsampling_conv_kernel_size": one(1, 3, 5),
        "hidden_size": heads * one(4, 10),
        "num_attention_heads": heads,
        "num_hidden_layers": one(1, 2, 3),
        "intermediate_size": one(7, 32),
        "conv_kernel_size": one(1, 3, 9),
        "hidden_act": one("silu", "relu", "gelu"),
        "attention_bias": one(True, False),
        "convolution_bias": one(True, False),
        "scale_input": one(True, False),
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_drawn_settings(seed: int, tmp_path: Path) -> None:
    backend = "cpu" if seed < 3 else "reference"
    check_batch(tmp_path, backend, 0.4, 0.21, 0.05, **drawn_settings(seed))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is not damaged."""
    folder = tmp_path_factory.mktemp("parakeet")
    saved(folder)
    return folder


SAID = {
    "words": "<pad> ▁a ▁a <pad> bc ▁de <pad> , ▁ a a <pad> a ▁ <pad> ▁ab é",
    "bytes": "▁a <0xC3> <0xC3> <0xA9> ▁de",
    "unknown": "▁a <unk> <unk> b",
    "no_gap": "b c <pad> ▁a",
    "silence": "<pad> <pad>",
}


@pytest.mark.parametrize("name", SAID)
def test_texts_and_times(name: str, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [{"<pad>": BLANK}.get(p) or PIECES.index(p) for p in SAID[name].split()]
    loaded = lm.models.load(whole, backend="reference")
    monkeypatch.setattr(loaded, "logits", lambda sound: np.eye(BLANK + 1)[ids])
    text = "".join(each.text for each in loaded.transcribe(noise(1), "text"))
    assert text == tokenizer().decode(ids, skip_special_tokens=True).strip()
    words = loaded.transcribe(noise(1))
    assert [word.text for word in words] == text.split()
    runs, start = [], 0
    for token, run in groupby(ids):
        end = start + len(list(run))
        runs.append((token, start, end))
        start = end
    for word in words:
        first, last = (round(time * RATE / HOP, 3) for time in (word.start, word.end))
        inside = [run[0] for run in runs if first <= run[1] and run[2] <= last]
        assert tuple(token for token in inside if token != BLANK) == word.tokens
        assert {first, last} <= {float(edge) for run in runs for edge in run[1:]}


def test_what_is_not_transcribed(whole: Path) -> None:
    loaded = lm.models.load(whole, backend="reference")
    with pytest.raises(InputError, match=r"has 319 samples at 16000 a second; it must have 320 to"):
        loaded.transcribe(noise(1)[:319])
    with pytest.raises(InputError, match=r"parts is 'characters'; it is one of 'words', 'text'"):
        loaded.transcribe(noise(1), "characters")


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "layers": ("config.json", {"encoder_config": None}, "no encoder_config in it"),
    "factor": ("", {"subsampling_factor": 6}, "subsampling_factor is 6; it must be a power of 2"),
    "bands": ("", {"num_mel_bins": 20}, "leave 3 bands of num_mel_bins 20; the .* made for 2"),
    "kernel": ("", {"conv_kernel_size": 4}, "conv_kernel_size is 4; it must be odd"),
    "odd": ("", {"hidden_size": 33, "num_attention_heads": 3}, "hidden_size is 33; it must be ev"),
    "heads": ("", {"num_attention_heads": 5}, "32 does not divide among num_attention_heads 5"),
    "width": ("", {"head_dim": 16}, "head_dim=16 is not supported; 8 is"),
    "act": ("", {"hidden_act": "sin"}, "activation 'sin' is not known"),
    "shape": ("", {"intermediate_size": 40}, "up_proj"),
    "blank": (
        "config.json",
        {"pad_token_id": 99},
        f"pad_token_id is 99, it must be at most {BLANK}",
    ),
    "mels": ("preprocessor_config.json", {"feature_size": 80}, "is 80, the model takes 16"),
    "window": ("preprocessor_config.json", {"win_length": 999}, "999, it must be at most 512"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_settings_must_not_say(name: str, whole: Path, tmp_path: Path) -> None:
    for path in whole.iterdir():
        (tmp_path / path.name).symlink_to(path)
    file, change, message = DAMAGED[name]
    path = tmp_path / (file or "config.json")
    values = json.loads(path.read_text())
    if not file:
        change = {"encoder_config": values["encoder_config"] | change}
    path.unlink()
    path.write_text(json.dumps(values | change))
    with pytest.raises(LoadError, match=message):
        lm.models.load(tmp_path)


def test_settings_that_are_missing(whole: Path, tmp_path: Path) -> None:
    """They are those of transformers."""
    for path in whole.iterdir():
        (tmp_path / path.name).symlink_to(path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    path.unlink()
    kept = {key: values["encoder_config"][key] for key in SIZES}
    path.write_text(json.dumps(values | {"encoder_config": kept}))
    sound = noise(0.1)
    found, wanted = (
        lm.models.load(f, backend="reference").logits(sound) for f in (tmp_path, whole)
    )
    np.testing.assert_array_equal(found, wanted)
