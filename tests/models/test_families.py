"""Encoders of Hugging Face's folders: hidden states as transformers', vectors as pooled by hand."""

from __future__ import annotations

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import luminal as lm
from luminal.base.errors import InputError, LoadError
from luminal.cli.main import main
from luminal.models.embed import TextEncoder, folder_pooling
from luminal.models.families import read_model
from tests.close import close_to_greatest
from tests.models.encoder_checks import check_hidden_states
from tests.models.small_encoders import TINY, saved, torch


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_hidden_states_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    check_hidden_states(saved(name, tmp_path), tmp_path, "reference")


@pytest.mark.long
@pytest.mark.parametrize("name", TINY)
def test_compiled_hidden_states(name: str, tmp_path: Path) -> None:
    check_hidden_states(saved(name, tmp_path, "Model"), tmp_path, "cpu")


WORDS = ("[PAD]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz")
SENTENCES = ("a b c d", "z", "h e l l o w o r l d", "q q")


def with_tokenizer(folder: Path) -> None:
    """A tokenizer of single letters, whose texts begin with [CLS] and end with [SEP]."""
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def with_pooling(folder: Path, pooling: dict[str, Any], normalize: bool, longest: int) -> None:
    """The files of sentence-transformers."""
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * normalize
    modules = [
        {"idx": n, "path": f"{n}_{kind}" * (n > 0), "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    (folder / "1_Pooling").mkdir()
    for path, content in (
        ("modules.json", modules),
        ("1_Pooling/config.json", pooling),
        ("sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False}),
    ):
        (folder / path).write_text(json.dumps(content))


def pooled(theirs: Any, sentence: str, kind: str, normalize: bool, longest: int) -> Any:
    """The vector of one sentence, by NumPy."""
    letters = [WORDS.index(word) for word in sentence.split()][: longest - 2]
    with torch.no_grad():
        ids = torch.tensor([[1, *letters, 2]])
        hidden = theirs(ids).last_hidden_state[0].numpy()
    vector = {"mean": hidden.mean(0), "max": hidden.max(0), "cls": hidden[0]}[kind]
    return vector / np.linalg.norm(vector) if normalize else vector


POOLINGS = {
    "mean": ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean", True),
    "cls": ({"word_embedding_dimension": 32, "pooling_mode_cls_token": True}, "cls", False),
    "max": ({"pooling_mode": "max"}, "max", True),
}


@pytest.mark.parametrize(
    "name", ["mean", *(pytest.param(name, marks=pytest.mark.long) for name in ("cls", "max"))]
)
def test_vectors_of_sentences(name: str, tmp_path: Path) -> None:
    theirs = saved("bert", tmp_path)
    with_tokenizer(tmp_path)
    modes, kind, normalize = POOLINGS[name]
    with_pooling(tmp_path, modes, normalize, longest=8)
    encoder = lm.models.load(tmp_path, backend="reference")
    assert isinstance(encoder, TextEncoder)
    found = encoder.embed(SENTENCES)
    close_to_greatest(
        found, np.stack([pooled(theirs, each, kind, normalize, 8) for each in SENTENCES])
    )


@pytest.mark.long
def test_many_texts_share_one_program(tmp_path: Path) -> None:
    theirs = saved("bert", tmp_path, "ForMaskedLM").bert
    with_tokenizer(tmp_path)
    encoder = lm.models.load(tmp_path, backend="reference")
    sentences = [" ".join("abc"[: 1 + n % 3]) for n in range(35)]
    before = lm.compile_count()
    found = encoder.embed(sentences)
    assert lm.compile_count() - before == 1
    close_to_greatest(
        found, np.stack([pooled(theirs, each, "mean", False, 24) for each in sentences])
    )
    assert encoder.embed([]).shape == (0, 32)


def test_what_is_no_text(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    with_tokenizer(tmp_path)
    encoder = lm.models.load(tmp_path, backend="reference")
    np.testing.assert_array_equal(encoder.embed("a b"), encoder.embed(["a b"])[0])
    for other in ([7], 7):
        with pytest.raises(InputError, match="embed: 7 is no text"):
            encoder.embed(other)
    for option in ({"tokenizer": tmp_path}, {"context": 8}):
        with pytest.raises(InputError, match=r"no language model, which alone takes (tok|con)\w+="):
            lm.models.load(tmp_path, **option)
    with pytest.raises(InputError, match=r"None is no path; give a str or a pathlib.Path"):
        lm.models.load(None)  # type: ignore[arg-type]
    for choice in ({"mode": "x"}, {"backend": "x"}):
        with pytest.raises(lm.CompileError, match="'x': "):
            lm.models.load(tmp_path, **choice)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ('[{"type": "sentence_transformers.models.Dense"}]', "module 'Dense' is not supported"),
        ("{}", "holds a JSON dict, it must hold a list"),
        ('[{"type": "x.Pooling", "path": "here"}]', "pooling_mode 'pooling_mode_lasttoken' is not"),
    ],
    ids=["dense", "no_list", "last_token"],
)
def test_what_modules_must_not_say(modules: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(modules)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    with pytest.raises(LoadError, match=message):
        folder_pooling(tmp_path)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    with pytest.raises(LoadError, match=r"no tokenizer.json in it; save_pretrained .* writes one"):
        lm.models.load(tmp_path)


def test_an_architecture_that_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BigBirdModel"]}')
    with pytest.raises(LoadError, match=r"architectures is \['BigBirdModel'\]; supported are Bert"):
        read_model(tmp_path)


DAMAGED = {
    "decoder": ({"is_decoder": True}, "is_decoder=True is not supported"),
    "heads": ({"num_attention_heads": 5}, "hidden_size 32 does not divide among"),
    "width": ({"intermediate_size": 10**8}, "does not fit"),
    "activation": ({"hidden_act": "sine"}, "activation 'sine' is not known"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_a_configuration_must_not_say(name: str, tmp_path: Path) -> None:
    saved("bert", tmp_path)
    change, message = DAMAGED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LoadError, match=message):
        read_model(tmp_path)


def test_the_command_embed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = saved("bert", tmp_path)
    with_tokenizer(tmp_path)
    wanted = np.stack([pooled(theirs, each, "mean", False, 24) for each in SENTENCES])
    options = ["luminal", "embed", "--model", str(tmp_path), "--backend", "reference"]

    def run(*more: str) -> str:
        monkeypatch.setattr("sys.argv", [*options, *more])
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code in (0, None)
        return capsys.readouterr().out

    rows = [json.loads(line) for line in run(*SENTENCES).splitlines()]
    assert [row["text"] for row in rows] == list(SENTENCES)
    close_to_greatest(np.array([row["vector"] for row in rows]), wanted)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(SENTENCES)))
    assert run("-o", str(tmp_path / "vectors.npy")) == ""
    close_to_greatest(np.load(tmp_path / "vectors.npy"), wanted)
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        read = pool.submit((tmp_path / "pipe").read_bytes)
        run("-o", str(tmp_path / "pipe"), *SENTENCES)
    assert read.result() == (tmp_path / "vectors.npy").read_bytes()


def fails(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """The error of a command."""
    monkeypatch.setattr("sys.argv", ["luminal", *words])
    with pytest.raises(SystemExit) as done:
        main()
    return str(done.value.code)


def test_texts_that_are_no_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved("bert", tmp_path)
    with_tokenizer(tmp_path)
    words = "embed", "--model", str(tmp_path), "--backend", "reference"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff\n"), "utf-8"))
    assert "embed: the input is no utf-8: invalid start byte" in fails(monkeypatch, *words)
    wrong = fails(monkeypatch, *words, "ab\udcff")
    assert wrong == r"luminal: text: character 2 is no text ('\udcff'); give UTF-8"
    monkeypatch.setattr("sys.stdin", None)  # as where it is closed
    assert fails(monkeypatch, *words) in ("None", "0")


def test_vectors_are_written_whole_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved("bert", tmp_path)
    with_tokenizer(tmp_path)
    path = tmp_path / "vectors.npy"
    path.write_bytes(b"before")

    def fail(file: Any, array: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.save", fail)
    words = "embed", "a", "--model", str(tmp_path), "--backend", "reference", "-o", str(path)
    assert "vectors.npy: cannot be written: No space left" in fails(monkeypatch, *words)
    assert path.read_bytes() == b"before"
    assert not list(tmp_path.glob("*.tmp"))


def test_vectors_that_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved("bert", tmp_path)
    with_tokenizer(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    words = "embed", "a", "--model", str(tmp_path), "--backend", "reference"
    assert fails(monkeypatch, *words, "-o", f"/dev/fd/{writer}") == "141"
    os.close(writer)


COMMANDS = {
    "generate": ("generate --prompt x", "a language model"),
    "transcribe": ("transcribe a.wav", "a Whisper"),
    "classify": ("classify a.png", "a classifier"),
    "detect": ("detect a.png", "a detector"),
    "segment": ("segment a.png", "a SegFormer or SAM"),
    "draw": ("draw x", "a Stable Diffusion"),
}


@pytest.mark.parametrize(("command", "message"), COMMANDS.values(), ids=COMMANDS)
def test_commands_that_take_other_models(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("bert", tmp_path)
    with_tokenizer(tmp_path)
    words = ["luminal", *command.split(), "--model", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match=f"is a TextEncoder; give {message}"):
        main()


def test_names_of_the_first_files(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    before = read_model(tmp_path).state_dict()
    path = tmp_path / "model.safetensors"
    weights = lm.load(path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {"cls.seq_relationship.bias": np.zeros(2, np.float32)}
    for name, array in weights.items():
        for new, first in old.items():
            name = name.replace(new, first)
        renamed[f"bert.{name}"] = np.array(array)
    renamed["bert.embeddings.position_ids"] = np.arange(24)[None]
    lm.save(path, renamed)
    after = read_model(tmp_path).state_dict()
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
