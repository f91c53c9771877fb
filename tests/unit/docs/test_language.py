"""The lint of plain language finds what it is for, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lint import language

LONG = " ".join(["word"] * (language.MOST_WORDS + 1))
FITS = " ".join(["word"] * language.MOST_WORDS)


def test_sentences_end_where_a_reader_pauses() -> None:
    text = 'One (see e.g. Two). Three of 1.5; "four"? `five` is "six." Seven'
    assert [*language.sentences(text)] == [
        "One (see e.g. Two).", "Three of 1.5;", '"four"?', '`five` is "six."', "Seven",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [
    f"{LONG}.", f"- one\n- {LONG}.", f"> {LONG}", f"Short. {LONG}.", f"**{LONG}**, [{LONG}](x.md)",
])  # fmt: skip
def test_long_sentences_are_found(text: str) -> None:
    assert [*language.long_sentences(text)]


@pytest.mark.parametrize("text", [
    f"{FITS}.", f"{FITS}; {FITS}.", f"{FITS}.\n\n{FITS}.", f"# {LONG}", f"```\n{LONG}\n```",
    f"|{LONG}|\n|---|\n|{LONG}|", f"`{LONG}`", f"<!-- one sentence: a list -->\n\n{LONG}.",
])  # fmt: skip
def test_what_is_no_long_sentence_is_left_alone(text: str) -> None:
    assert not [*language.long_sentences(text)]


def test_a_reason_excuses_one_paragraph() -> None:
    text = f"<!-- one sentence: a list -->\n\n{LONG}.\n\n{LONG}."
    assert len([*language.long_sentences(text)]) == 1


def test_codespell_is_there_and_finds(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It was recieved.\n")  # codespell:ignore
    command = [sys.executable, "-m", "codespell_lib", str(page)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 65
    assert "received" in ran.stdout
