"""The lint of plain language: no sentence that must be read twice, and no word that is misspelt.

`python -m tests.lint.language` prints what breaks a rule and ends with 1 if anything does; `make
lint` runs it. It reads what readers of the site read, the pages and the reference that is made of
docstrings, without code, tables and headings. A sentence of more than `MOST_WORDS` words is to be
two; a semicolon parts them as well. Where it must be one (a list that is only true as a whole), a
comment `<!-- one sentence: why -->` stands before its paragraph. codespell knows common
misspellings, also in the sources; `ALLOWED` are words that only look so.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from manual import commands, reference
from tests.lint.docstrings import PACKAGE, ROOT

MOST_WORDS = 35
ALLOWED = ("fro", "inout", "olt", "te", "seperator")
"""What codespell takes for misspelt: names of a norm, of a role, of a comparison and of a header of
HTTP, and a key of GGUF that is spelt so.
"""

_REASON = re.compile(r"<!-- one sentence: \S.* -->")
# What ends a sentence: a mark with what closes it, before a space and something that can begin one.
_END = re.compile(r"[.!?][)\"'”]*\s+(?=[('*\[]*[A-Z0-9\"“`])|;\s+")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|cf|vs|al|etc|Fig|No|p)\.$")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a paragraph."""
    start = 0
    for end in _END.finditer(text):
        if not _ABBREVIATED.search(text[: end.start() + 1]):
            yield text[start : end.end()].strip()
            start = end.end()
    yield text[start:].strip()


def paragraphs(markdown: str) -> Iterator[tuple[int, str]]:
    """The paragraphs and list items of a page or a docstring: line, and the text as it is read."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    inside: list[str] = []
    excused = False
    for token in tokens:
        if token.nesting > 0:
            inside.append(token.type)
        elif token.nesting < 0:
            inside.pop()
        elif token.type == "html_block":
            excused = bool(_REASON.search(token.content))
        elif token.type == "inline" and "paragraph_open" in inside:
            if not excused:
                yield (token.map or [0])[0] + 1, _read(token)
            excused = False


def _read(token: Token) -> str:
    """The words of a paragraph: a piece of code is one of them."""
    words = []
    for child in token.children or []:
        match child.type:
            case "text":
                words.append(child.content)
            case "code_inline":
                words.append("`code`")
            case "softbreak" | "hardbreak":
                words.append(" ")
    return "".join(words)


def long_sentences(markdown: str) -> Iterator[tuple[int, int, str]]:
    """Sentences that are too long: line of the paragraph, words, the sentence."""
    for line, text in paragraphs(markdown):
        for sentence in sentences(text):
            count = len(sentence.split())
            if count > MOST_WORDS:
                yield line, count, sentence


def pages() -> list[Path]:
    """The pages for readers, and the README."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def faults() -> list[str]:
    """The sentences that are too long, a line each."""
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in pages()}
    lines = []
    for name, markdown in (texts | reference.pages() | commands.pages()).items():
        for line, count, sentence in long_sentences(markdown):
            begins = " ".join(sentence.split()[:8])
            lines.append(f"{name}:{line}: {count} words, of at most {MOST_WORDS}: {begins!r}...")
    return lines


def misspelt() -> list[str]:
    """What codespell finds in pages and sources, a line each."""
    places = [*pages(), PACKAGE, ROOT / "examples", ROOT / "manual"]
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words-list", ",".join(ALLOWED)]
    ran = subprocess.run(
        [*command, "--skip", "*.json,*.safetensors,*.js", *map(str, places)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode not in (0, 65):
        raise RuntimeError(f"codespell ended with {ran.returncode}: {ran.stderr}")
    return ran.stdout.splitlines()


def main() -> int:
    """Prints the faults."""
    lines = [*faults(), *misspelt()]
    print(*lines, sep="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
