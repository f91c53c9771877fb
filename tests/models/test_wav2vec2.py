"""wav2vec 2.0 and HuBERT: logits, characters and their times as transformers'."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.models.ctc import CtcTranscriber
from tests.close import close, close_to_greatest
from tests.models.small_wav2vec2 import LETTERS, SIZES, TINY, saved, torch, transformers

RATE = 16000
HOP = int(np.prod(SIZES["conv_stride"]))


def noise(seconds: float) -> np.ndarray[Any, Any]:
    """Noise around a value that is not 0."""
    count = int(seconds * RATE)
    return (np.random.default_rng(0).standard_normal(count) * 0.3 + 0.1).astype(np.float32)


def check_logits(name: str, folder: Path, backend: str) -> None:
    """Of two sounds, by one program."""
    theirs = saved(name, folder)
    extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(folder)
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, CtcTranscriber)
    before = lm.compile_count()
    for seconds in (0.011, 0.15):
        sound = noise(seconds)
        values = extractor(sound, sampling_rate=RATE, return_tensors="pt").input_values
        close(loaded.prepared(sound), values[0].numpy())
        with torch.no_grad():
            close_to_greatest(loaded.logits(sound), theirs(values).logits[0].numpy())
    assert lm.compile_count() - before == 1


@pytest.mark.parametrize("name", TINY)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    check_logits(name, tmp_path, "reference")


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_compiled_logits(name: str, tmp_path: Path) -> None:
    check_logits(name, tmp_path, "cpu")


SAID = {
    "words": "| E E <pad> E A | | T <pad> | <unk> O O <s>",
    "silence": "<pad> <pad>",
    "gap": "| |",
    "one": "E",
}


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", SAID)
def test_characters_and_times(
    name: str, lower: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("wav2vec2", tmp_path, do_lower_case=lower)
    ids = np.array([LETTERS.index(letter) for letter in SAID[name].split()])
    tokenizer = transformers.Wav2Vec2CTCTokenizer.from_pretrained(tmp_path)
    wanted = tokenizer.decode(ids, output_char_offsets=True, output_word_offsets=True)
    loaded = lm.models.load(tmp_path, backend="reference")
    monkeypatch.setattr(loaded, "logits", lambda sound: np.eye(len(LETTERS))[ids])
    assert "".join(each.text for each in loaded.transcribe(noise(1), "text")) == wanted.text
    for parts, key, offsets in (
        ("words", "word", wanted.word_offsets),
        ("characters", "char", wanted.char_offsets),
    ):
        found = loaded.transcribe(noise(1), parts)
        texts = [each[key].lower() if lower else each[key] for each in offsets]
        assert [each.text for each in found] == texts
        for own, other in zip(found, offsets, strict=True):
            times = [other[end] * HOP / RATE for end in ("start_offset", "end_offset")]
            assert [own.start, own.end] == pytest.approx(times)
            if "<" not in own.text:
                assert len(own.tokens) == len(own.text)


def test_old_names_of_weights(tmp_path: Path) -> None:
    saved("wav2vec2", tmp_path)
    before = lm.models.load(tmp_path, backend="reference").logits(noise(0.05))
    path = tmp_path / "model.safetensors"
    weights = {name: np.array(array) for name, array in lm.load(path).items()}
    prefix = "wav2vec2.encoder.pos_conv_embed.conv."
    for part, old in (("original0", "weight_g"), ("original1", "weight_v")):
        weights[prefix + old] = weights.pop(f"{prefix}parametrizations.weight.{part}")
    weights["project_q.weight"] = np.zeros((3, 3), np.float32)  # of its training
    lm.save(path, weights)
    after = lm.models.load(tmp_path, backend="reference").logits(noise(0.05))
    np.testing.assert_array_equal(before, after)


def test_what_is_not_transcribed(tmp_path: Path) -> None:
    saved("wav2vec2", tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    with pytest.raises(InputError, match=r"has 10 samples at 16000 a second; it must have 30 to"):
        loaded.transcribe(noise(1)[:10])
    with pytest.raises(InputError, match=r"parts is 'letters'; it is one of 'words', 'char"):
        loaded.transcribe(noise(1), "letters")
    with pytest.raises(InputError, match=r"sound is int16 of shape \(2,\); it must be floats"):
        loaded.transcribe(np.zeros(2, np.int16))


DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "convs": ("config.json", {"conv_kernel": [10, 3]}, "have 3, 2, 3 numbers; each must have one"),
    "stride": ("config.json", {"conv_stride": [5, 0, 2]}, "all must be from 1 to 65536"),
    "norm": ("config.json", {"feat_extract_norm": "batch"}, "'batch' is not 'group' or 'layer'"),
    "adapter": ("config.json", {"add_adapter": True}, "add_adapter=True is not supported"),
    "ids": ("vocab.json", {"E": "five"}, "'E' is 'five'; it must be an id"),
    "blank": ("tokenizer_config.json", {"pad_token": "_"}, "lacks '_', which stands for silence"),
    "many": ("tokenizer_config.json", {"target_lang": "eng"}, "of several languages is not"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_settings_must_not_say(name: str, tmp_path: Path) -> None:
    saved("wav2vec2", tmp_path)
    file, change, message = DAMAGED[name]
    path = tmp_path / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message):
        lm.models.load(tmp_path)


def test_a_folder_without_a_vocabulary(tmp_path: Path) -> None:
    saved("wav2vec2", tmp_path)
    (tmp_path / "vocab.json").unlink()
    with pytest.raises(LoadError, match=r"no vocab.json in it; save_pretrained of the model's tok"):
        lm.models.load(tmp_path)


def test_the_command_transcribe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("hubert", tmp_path)
    path = tmp_path / "a.wav"
    sound = (noise(0.1) * 2**14).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(sound.tobytes())
    loaded = lm.models.load(tmp_path, backend="reference")
    options = ["luminal", "transcribe", str(path), "--model", str(tmp_path)]

    def run(*more: str) -> list[str]:
        monkeypatch.setattr("sys.argv", [*options, "--backend", "reference", *more])
        with pytest.raises(SystemExit) as done:
            main()
        return [*capsys.readouterr().out.splitlines(), str(done.value.code or "")]

    words = loaded.transcribe(path)
    assert len(words) > 1
    assert run() == [*map(str, words), ""]
    assert run("--no-timestamps") == [loaded.transcribe(path, "text")[0].text, ""]
    assert "--language and --translate are for Whisper" in run("--language", "en")[-1]
