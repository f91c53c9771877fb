"""Whisper: spectrograms, logits, tokens and times as transformers'."""

from __future__ import annotations

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.loaders.wav import read_wav, resampled
from luminal.models.log_mel import LogMel
from luminal.models.transcribe import Segment, Transcriber
from tests.close import close
from tests.models.small_whisper import (
    NO_TIMESTAMPS,
    RATE,
    SIZES,
    extractor,
    noise,
    saved,
    transformers,
)
from tests.models.whisper_checks import check_logits


@pytest.mark.parametrize(("mels", "seconds"), [(80, 3), (128, 1), (20, 2.5)])
def test_spectrograms(mels: int, seconds: float) -> None:
    theirs = transformers.WhisperFeatureExtractor(feature_size=mels)
    sound = noise(seconds)
    wanted = theirs(sound, sampling_rate=RATE, padding="longest", return_tensors="np")
    close(LogMel(mels)(sound), wanted["input_features"][0], ulp=64)


def check_transcript(folder: Path, backend: str, seconds: float, **options: Any) -> list[Segment]:
    """Segments, their times and tokens, of noise."""
    theirs = saved(folder)
    sound = noise(seconds)
    features = extractor()(
        sound,
        sampling_rate=RATE,
        return_tensors="pt",
        truncation=False,
        padding="longest" if seconds > 1 else "max_length",
    )
    wanted = theirs.generate(
        features["input_features"],
        attention_mask=features["attention_mask"],
        return_timestamps=True,
        return_segments=True,
        num_beams=1,
        do_sample=False,
        **{"task": "transcribe", **options},
    )["segments"][0]
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, Transcriber)
    before = lm.compile_count()
    found = loaded.transcribe(sound, **options)
    assert lm.compile_count() - before == 2
    for own, other in zip(found, wanted, strict=True):
        assert own.tokens == tuple(t for t in other["tokens"].tolist() if t <= NO_TIMESTAMPS)
        # times are multiples of 0.02 s, which one side holds in float32
        assert own.start == pytest.approx(float(other["start"]), abs=1e-6)
        # times are multiples of 0.02 s, which one side holds in float32
        assert own.end == pytest.approx(float(other["end"]), abs=1e-6)
    return found


def test_logits_are_those_of_transformers(tmp_path: Path) -> None:
    check_logits(tmp_path, "reference")


TRANSCRIPTS: dict[str, tuple[float, dict[str, Any]]] = {
    "one_window": (0.7, {}),
    "three_windows": (2.3, {"language": "en"}),
    "translated": (1.0, {"language": "de", "task": "translate"}),
}


@pytest.mark.parametrize("name", ["one_window"])
def test_transcripts_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    seconds, options = TRANSCRIPTS[name]
    check_transcript(tmp_path, "reference", seconds, **options)


def test_settings_of_processors(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json")
    )
    transformers.WhisperProcessor(extractor(), tokenizer).save_pretrained(tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    assert loaded.log_mel == LogMel(SIZES["num_mel_bins"])


@pytest.mark.long
def test_compiled_logits_and_transcripts(tmp_path: Path) -> None:
    check_logits(tmp_path, "cpu")
    for seconds, options in TRANSCRIPTS.values():
        check_transcript(tmp_path, "cpu", seconds, **options)


def test_what_a_transcript_is_not_made_of(tmp_path: Path) -> None:
    saved(tmp_path)
    loaded = lm.models.load(tmp_path, backend="reference")
    with pytest.raises(InputError, match=r"language 'fr' is not known; known are de, en"):
        loaded.transcribe(noise(1), language="fr")
    with pytest.raises(InputError, match=r"task 'sing' is not among transcribe, translate"):
        loaded.transcribe(noise(1), task="sing")
    with pytest.raises(InputError, match=r"sound is float32 of shape \(2, 8000\)"):
        loaded.transcribe(noise(1).reshape(2, -1))
    with pytest.raises(InputError, match=r"sound is a list; give a file or an array of NumPy"):
        loaded.transcribe([0.0, 1.0])
    for wrong in (np.nan, np.inf):
        with pytest.raises(InputError, match=r"sound holds NaN or infinities; all must be finite"):
            loaded.transcribe(np.append(noise(1), np.float32(wrong)))
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(LoadError, match=r"no preprocessor_config.json in it"):
        lm.models.load(tmp_path)


def riff(kind: int, channels: int, rate: int, bits: int, samples: bytes) -> bytes:
    """A WAVE file with a chunk of something else before its samples."""
    frame = channels * bits // 8
    layout = struct.pack("<HHIIHH", kind, channels, rate, rate * frame, frame, bits)
    chunks = [(b"fmt ", layout), (b"LIST", b"odd"), (b"data", samples)]
    body = b"WAVE" + b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
        for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


SOUND = np.array([0.0, 0.5, -0.5, 0.25, -1.0])
SAMPLES = {
    "bytes": (1, 8, (SOUND * 128 + 128).astype("u1").tobytes()),
    "int16": (1, 16, (SOUND * 2**15).astype("<i2").tobytes()),
    "int24": (1, 24, b"".join(int(x * 2**23).to_bytes(3, "little", signed=True) for x in SOUND)),
    "int32": (1, 32, (SOUND * 2**31).astype("<i4").tobytes()),
    "float32": (3, 32, SOUND.astype("<f4").tobytes()),
    "float64": (3, 64, SOUND.astype("<f8").tobytes()),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_kinds_of_samples(name: str, tmp_path: Path) -> None:
    kind, bits, samples = SAMPLES[name]
    (tmp_path / "a.wav").write_bytes(riff(kind, 1, 8000, bits, samples))
    found, rate = read_wav(tmp_path / "a.wav")
    assert rate == 8000
    np.testing.assert_array_equal(found, SOUND.astype(np.float32))


@pytest.mark.parametrize("size", [0, 0x7FFF_FFFF - 36, 2**32 - 1])
def test_recordings_that_have_not_ended(size: int, tmp_path: Path) -> None:
    kind, bits, samples = SAMPLES["int16"]
    data = riff(kind, 1, 8000, bits, samples)
    place = data.index(b"data") + 4
    (tmp_path / "a.wav").write_bytes(data[:place] + struct.pack("<I", size) + data[place + 4 :])
    np.testing.assert_array_equal(read_wav(tmp_path / "a.wav")[0], SOUND.astype(np.float32))


def test_samples_that_are_cut_off(tmp_path: Path) -> None:
    """What is there is read, and told is how much that is; a padding byte too few is nothing."""
    kind, bits, samples = SAMPLES["int16"]
    whole = riff(kind, 1, 8000, bits, samples * 8000)
    path = tmp_path / "a.wav"
    path.write_bytes(whole[:-20_000])
    message = (
        r"a\.wav: its header says 80000 bytes of samples, 5\.00 s, and 60000 are there, 3\.75 s: "
        "the file is cut off"
    )
    with pytest.warns(UserWarning, match=message):
        found, _ = read_wav(path)
    np.testing.assert_array_equal(found, np.tile(SOUND, 8000)[:30_000].astype(np.float32))
    kind, bits, samples = SAMPLES["bytes"]
    path.write_bytes(riff(kind, 1, 8000, bits, samples)[:-1])
    assert len(read_wav(path)[0]) == 5


def test_channels_are_mixed(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.array([[0, 2**14], [2**14, 2**14]], "<i2").tobytes())
    np.testing.assert_array_equal(read_wav(tmp_path / "a.wav")[0], [0.25, 0.5])


BROKEN = {
    "text": (b"not a sound at all", "no WAVE file"),
    "compressed": (riff(85, 1, 8000, 0, b"mp3"), "format 85 of 0 bits is not supported"),
    "silent": (riff(1, 0, 8000, 16, b""), "0 channels at 8000 Hz"),
    "fast": (riff(1, 1, 2**31, 8, b"12"), "1 channels at 2147483648 Hz; there must be at least"),
    "nan": (riff(3, 1, 8000, 32, struct.pack("<f", np.nan)), "samples are NaN or infinite"),
    "infinite": (riff(3, 1, 8000, 64, struct.pack("<d", 1e300)), "samples are NaN or infinite"),
    "short": (riff(1, 1, 8000, 16, b"")[:24], "the file is cut off"),
    "empty": (b"RIFF\0\0\0\0WAVE", "no format or no samples"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_sound(name: str, tmp_path: Path) -> None:
    data, message = BROKEN[name]
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(LoadError, match=message):
        read_wav(tmp_path / "a.wav")


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_other_rates(rate: int) -> None:
    def tones(at: int) -> np.ndarray[Any, Any]:
        t = np.arange(at // 4) / at
        return np.sin(2 * np.pi * 440 * t) + 0.3 * np.sin(2 * np.pi * 3000 * t)

    high = np.sin(2 * np.pi * 0.45 * np.arange(rate // 4))  # above what 16 kHz can hold, or not
    sound = tones(rate) + (high if 0.45 * rate > 9000 else 0)
    found = resampled(sound, rate, RATE)
    assert found.shape == (RATE // 4,)
    close(found[200:-200], tones(RATE)[200:-200], ulp=512)


@pytest.mark.long
def test_the_command_transcribe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    sound = noise(0.7)
    path = tmp_path / "a.wav"
    path.write_bytes(riff(3, 1, RATE, 32, sound.astype("<f4").tobytes()))
    wanted = lm.models.load(tmp_path, backend="reference").transcribe(sound)
    options = ["luminal", "transcribe", str(path), "--model", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [*options, "--backend", "reference"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.splitlines() == [str(segment) for segment in wanted]
    assert str(Segment(3599.996, 3725.5, " hi", ())) == "[01:00:00.00 -> 01:02:05.50] hi"
