"""The lint of words: docstrings and help texts stand alone, locals name the thing, and no function
is too long to read.

`python -m tests.lint.docstrings` prints what breaks a rule and ends with 1 if anything does; `make
lint` runs it. A docstring is quoted by editors, by `help()` and by the pages made of it, where no
heading stands above: so it begins with its own subject or verb, and is a whole sentence. A local
that is called `found` says how its value came about, and not what it is.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "luminal"

LEAST_WORDS = 4
MOST_LINES = 60

# What begins so answers a heading or another docstring, which the reader has not got.
ANSWERS = (
    "Of", "As", "That of", "Those of", "On the", "On a", "In the same way", "The same", "Its",
    "Whose", "Also", "Likewise", "And", "Or", "But",
)  # fmt: skip
_ANSWER = re.compile(rf"(?:{'|'.join(ANSWERS)})\b")
# Words that say how a value came about, or that it is one of several, but not what it is.
VAGUE = frozenset({"found", "each", "known", "made", "own", "given"})

_ENDS = (".", "!", "?", ":", "`", '"', ")", "|")


def fault_of(text: str) -> str | None:
    """The rule that a docstring or a help text breaks, or None."""
    first = text.strip().split("\n\n")[0]
    if begins := _ANSWER.match(first):
        return f"begins with {begins[0]!r}, which answers a heading"
    if len(first.split()) < LEAST_WORDS:
        return f"has fewer than {LEAST_WORDS} words"
    if not first.endswith(_ENDS):
        return "does not end a sentence"
    return None


def texts(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """The docstrings and help texts of a module: line, what it is of, text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), getattr(node, "name", "the module"), text
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                value = keyword.value
                if keyword.arg == "help" and isinstance(value, ast.Constant):
                    yield value.lineno, "help", str(value.value)


def long_functions(tree: ast.Module) -> Iterator[tuple[int, str, int]]:
    """The functions of more than `MOST_LINES` lines, the signature included; the docstring, which
    is read apart, does not count.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if lines > MOST_LINES:
                yield node.lineno, node.name, lines


def vague_names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """The functions with a local or a parameter that does not name the thing, and its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            stored = {
                name.id
                for name in ast.walk(node)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            for name in sorted(VAGUE & (stored | {argument.arg for argument in arguments})):
                yield node.lineno, node.name, name


def faults(package: Path = PACKAGE) -> list[str]:
    """What breaks a rule in a package, a line each."""
    lines = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        tree = ast.parse(path.read_text())
        for line, name, text in texts(tree):
            if fault := fault_of(text):
                lines.append(f"{place}:{line}: {name}: {text.splitlines()[0]!r} {fault}")
        for line, name, length in long_functions(tree):
            lines.append(f"{place}:{line}: {name} has {length} lines, of at most {MOST_LINES}")
        for line, function, name in vague_names(tree):
            lines.append(f"{place}:{line}: {function}: the local {name!r} names no thing")
    return lines


def main() -> int:
    """Prints the faults."""
    lines = faults()
    print(*lines, sep="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
