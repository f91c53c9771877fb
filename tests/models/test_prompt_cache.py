"""Prompts in files: the same text from them, and no text from damaged or foreign ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import luminal as lm
from tests.models.small_models import language_model, llama

PROMPT = "ABCDEFGH"


def test_a_text_goes_on_from_a_file(tmp_path: Path) -> None:
    model, path = language_model(), tmp_path / "prompt.safetensors"
    longer = model.generate(PROMPT + "XY", 6)
    same = model.generate(PROMPT, 6)
    model.save_prompt(PROMPT, path)
    fresh = language_model()
    assert fresh.load_prompt(path) == len(PROMPT)
    read = []
    original = fresh.programs.read

    def counted(texts: object, features: object) -> object:
        read.append(len(texts[0].unread))  # type: ignore[index]
        return original(texts, features)  # type: ignore[arg-type]

    fresh.programs.read = counted  # type: ignore[method-assign]
    assert fresh.generate(PROMPT + "XY", 6) == longer
    assert read[0] == 2
    assert fresh.generate("Q", 4) == model.generate("Q", 4)  # another prompt
    read.clear()
    assert fresh.generate(PROMPT, 6) == same
    assert read[0] == 1  # the last token is read again: what follows it is not in the file


def test_files_that_are_refused(tmp_path: Path) -> None:
    model, path = language_model(), tmp_path / "prompt.safetensors"
    model.save_prompt(PROMPT, path)
    data = path.read_bytes()
    with pytest.raises(lm.LoadError, match="the prompt of another model; save it with this one"):
        language_model(llama(1)).load_prompt(path)
    with pytest.raises(lm.LoadError, match="8 tokens, but the context is 7"):
        language_model(context=7).load_prompt(path)
    for place in range(len(data) - 1, len(data) // 2, -997):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(lm.LoadError, match="damaged: its digest does not fit"):
            model.load_prompt(path)
    path.write_bytes(data[:-5])
    with pytest.raises(lm.LoadError, match="truncated"):
        model.load_prompt(path)
