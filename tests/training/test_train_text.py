"""`luminal train`: settings from TOML, byte pairs, and a tiny Llama from end to end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal import models
from luminal.base.errors import InputError
from luminal.cli.main import main
from luminal.models.train import ModelSettings, TextRun, new_llama, train_text
from luminal.models.write_folder import write_folder
from luminal.training.byte_pairs import train_byte_pairs
from luminal.training.settings import read_settings
from luminal.training.trainer import Trainer
from tests.training.small_run import digest

TEXT = "".join(f"{k} times {k} is {k * k}.\n" for k in range(400)) + "Grüße! \N{SNOWMAN}\n" * 4

SETTINGS = """
text = "text.txt"
output = "out"
seed = 3
[tokenizer]
vocabulary = 280
[model]
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 1
context = 32
dtype = "bfloat16"
[training]
steps = 12
batch = 4
length = 16
warmup = 2
learning_rate = 0.01
validate_every = 6
checkpoint_every = 5
[sample]
prompt = "7"
tokens = 8
"""


def folder(path: Path, settings: str = SETTINGS) -> Path:
    """The TOML file beside its text."""
    (path / "text.txt").write_text(TEXT, "utf-8")
    (path / "run.toml").write_text(settings, "utf-8")
    return path / "run.toml"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["luminal", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_from_a_text_to_a_model_that_generates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "train", str(folder(tmp_path))) == 0
    printed = capsys.readouterr().out
    outcome = json.loads((tmp_path / "out/training.json").read_text("utf-8"))
    assert outcome["sample"] in printed
    assert outcome["sample"].startswith("7")
    assert f"validation loss {outcome['validation_loss']:.4f}" in printed
    assert outcome["steps"] == 12
    assert [step for step, _ in outcome["validation"]] == [6, 12]
    loaded = models.load(tmp_path / "out")
    assert loaded.model.config.num_key_value_heads == 1
    weights = lm.load(tmp_path / "out/model.safetensors")
    assert {array.dtype for array in weights.values()} == {np.dtype(ml_dtypes.bfloat16)}
    assert loaded.tokenizer.decode(loaded.tokenizer.encode(TEXT)) == TEXT
    arguments = "--model", str(tmp_path / "out"), "--prompt", "7", "--max-tokens", "8"
    assert run(monkeypatch, "generate", *arguments, "--temperature", "0.8") == 0
    assert capsys.readouterr().out == outcome["sample"] + "\n"


@pytest.mark.long
def test_the_validation_loss_is_that_of_the_weights_written(tmp_path: Path) -> None:
    settings = read_settings(folder(tmp_path), TextRun)
    trained = train_text(settings, tmp_path)
    loaded = models.load(tmp_path / "out")
    held = TEXT[TEXT.rfind("\n", 0, int(len(TEXT) * 0.9)) + 1 :]
    ids = loaded.tokenizer.encode(held)
    windows = [ids[k : k + 17] for k in range(0, len(ids) - 16, 16)]
    cx = lm.Graph()
    rows = cx.tensor([row[:-1] for row in windows], lm.int32)
    logits = loaded.model(rows).output("logits")
    found = lm.compile(cx, "reference")()[logits].astype(np.float64)
    chosen = np.take_along_axis(found, np.array([row[1:] for row in windows])[..., None], -1)
    nats = np.log(np.exp(found).sum(-1)) - chosen[..., 0]
    # a mean over all windows in float32, 25 ulp
    assert trained.validation_loss == pytest.approx(nats.mean(), 3e-6)
    bits = nats.mean() / np.log(2) * len(ids) / len(held.encode())
    # bits a byte are written in four digits
    assert trained.bits_per_byte == pytest.approx(bits, 1e-4)


@pytest.mark.long
def test_the_same_seed_twice_and_a_run_that_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(trainer: Trainer) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        return {"validation_loss": 0.0}

    written = []
    for name in ("once", "again", "stopped"):
        (tmp_path / name).mkdir()
        settings = read_settings(folder(tmp_path / name), TextRun)
        if name == "stopped":
            with monkeypatch.context() as patched:
                patched.setattr(Trainer, "validated", press)
                assert train_text(settings, tmp_path / name).record.steps == 6
        trained = train_text(settings, tmp_path / name)
        assert trained.record.resumed == (6 if name == "stopped" else 0)
        written.append((tmp_path / name / "out/model.safetensors").read_bytes())
    assert written[0] == written[1] == written[2]


# --- settings -------------------------------------------------------------------------------------

WRONG = {
    "unknown": ("[model]", "[model]\nhiden_size = 3", "'hiden_size'; did you mean 'hidden_size'"),
    "far": ("seed = 3", "zzzzzz = 3", "no setting 'zzzzzz'; known are text, output, model"),
    "missing": ("steps = 12\n", "", "training: steps is missing; give it a value"),
    "type": ("steps = 12", 'steps = "12"', "training: steps is '12'; it must be of type int"),
    "bool": ("steps = 12", "steps = true", "training: steps is True; it must be of type int"),
    "table": ("[sample]", "[other]", "no setting 'other'; "),
    "no-toml": ("[sample]", "[sample", "not TOML: "),
    "heads": ("num_attention_heads = 2", "num_attention_heads = 3", "16 is no multiple"),
    "warmup": ("warmup = 2", "warmup = 12", "warmup = 12; it must be from 1 to steps - 1 = 11"),
    "vocabulary": ("vocabulary = 280", "vocabulary = 256", "no room for all bytes; at least 257"),
    "held": ("warmup = 2", "warmup = 2\nheld_out = 1.0", "held_out=1.0; it must be a number"),
    "steps": ("steps = 12", "steps = 0", "training: steps=0; it must be an int of at least 1"),
    "width": ("hidden_size = 16", "hidden_size = 0", "model: hidden_size=0; it must be an int of"),
    "clip": ("warmup = 2", "warmup = 2\nclip_norm = -1.0", "training: clip_norm=-1.0; it must be"),
    "dtype": ('dtype = "bfloat16"', 'dtype = "int8"', "dtype='int8'; it must be a float's"),
    "heat": ("[sample]", "[sample]\ntemperature = -1.0", "sample: temperature=-1.0; it must be"),
    "text": ('"text.txt"', '"none.txt"', "none.txt: cannot be read: No such file"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_named(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, message = WRONG[name]
    path = folder(tmp_path, SETTINGS.replace(old, new))
    assert message in str(run(monkeypatch, "train", str(path)))


def test_settings_that_are_no_table(tmp_path: Path) -> None:
    path = folder(tmp_path, "model = 3\n" + SETTINGS.split("[tokenizer]")[0])
    with pytest.raises(InputError, match="model is 3; it must be a table"):
        read_settings(path, TextRun)
    with pytest.raises(InputError, match=r"none\.toml: cannot be read"):
        read_settings(tmp_path / "none.toml", TextRun)


def test_a_text_that_is_no_utf_8(tmp_path: Path) -> None:
    settings = read_settings(folder(tmp_path), TextRun)
    (tmp_path / "text.txt").write_bytes(b"abc\xff")
    with pytest.raises(InputError, match=r"text\.txt: byte 3 is no UTF-8"):
        train_text(settings, tmp_path)


# --- parts ----------------------------------------------------------------------------------------


def test_byte_pairs_are_the_same_each_time_and_hold_every_byte() -> None:
    first = train_byte_pairs(TEXT, 300)
    assert train_byte_pairs(TEXT, 300) == first
    assert len(json.loads(first)["model"]["vocab"]) == 300
    assert len(json.loads(train_byte_pairs("ab", 300))["model"]["vocab"]) < 300


def test_first_weights_follow_from_the_seed() -> None:
    sizes = ModelSettings(16, 24, 2, 2, 32)
    lm.manual_seed(1)
    first = new_llama(sizes, 50)
    lm.manual_seed(1)
    assert digest(new_llama(sizes, 50)) == digest(first)
    lm.manual_seed(2)
    assert digest(new_llama(sizes, 50)) != digest(first)
    spread = {path: array.std() for path, array in first.state_dict().items() if array.ndim == 2}
    # a standard deviation of some thousand draws
    assert spread["model.layers.0.mlp.up_proj.weight"] == pytest.approx(0.02, 0.2)
    # a standard deviation of some thousand draws
    assert spread["model.layers.0.mlp.down_proj.weight"] == pytest.approx(0.01, 0.2)


@pytest.mark.long
def test_a_written_folder_is_read_by_transformers(tmp_path: Path) -> None:
    import torch
    import transformers

    model = new_llama(ModelSettings(16, 24, 2, 2, 32, num_key_value_heads=1), 280).eval()
    write_folder(tmp_path, model, train_byte_pairs(TEXT, 280))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = np.arange(10).reshape(2, 5)
    cx = lm.Graph()
    logits = model(cx.tensor(ids.tolist(), lm.int32)).output("logits")
    with torch.no_grad():
        expected = theirs(torch.from_numpy(ids)).logits.numpy()
    # logits of a network in float32, about 1: 80 ulp
    np.testing.assert_allclose(lm.compile(cx)()[logits], expected, atol=1e-5)
