"""What code made something: part of the keys of things on disk that other code would make anew."""

from __future__ import annotations

import functools
import hashlib
import os
import re

from luminal.runtime import object_cache

PACKAGE = "luminal"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Python's own parser takes ten times as long; a test compares the two.
_IMPORT = re.compile(
    rf"^[ \t]*(?:from ({PACKAGE}\b[\w.]*) import (?:\(([^)]*)\)|([^\n]*))"
    rf"|import ({PACKAGE}\b[\w.]*))",
    re.MULTILINE,
)
_FOR_TYPES = re.compile(r"^if TYPE_CHECKING:.*\n(?:[ \t].*\n|\n)*", re.MULTILINE)
_COMMENT = re.compile(r"#.*")


@functools.cache
def source_hash(*modules: str) -> str:
    """A hash over the text of some modules of Luminal and of all that they import, in turn; kept
    for these sources, as reading sixty files is a tenth of a start's Python.
    """
    objects = object_cache.default()
    key = object_cache.key("source hash", *modules, package_stamp())
    kept = objects.get(key)
    if kept is None:
        kept = _text_hash(modules).encode()
        objects.put(key, kept)
    return kept.decode()


def _text_hash(modules: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name, text in sorted(closure(*modules).items()):
        digest.update(f"{name} {len(text)}\n{text}".encode())
    return digest.hexdigest()


def closure(*modules: str) -> dict[str, str]:
    """The texts of the modules and of all that they import in Luminal, by name.

    A package's own file counts where a name is taken from it, not where a module below is: that
    runs all sorts of imports, but nothing of them is used.
    """
    # The closure of imports by text, not by `sys.modules`: it is the same in a process that has
    # loaded nothing of the compiler yet, and reads no more than what can change the code.
    texts: dict[str, str] = {}
    waiting = [*modules]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            with open(_file(name) or name, encoding="utf-8") as file:
                texts[name] = file.read()
            waiting += _imported(texts[name])
    return texts


def _imported(text: str) -> list[str]:
    names_imported = []
    for package, several, one, plain in _IMPORT.findall(_FOR_TYPES.sub("", text)):
        if plain:
            names_imported.append(plain)
            continue
        listed = _COMMENT.sub("", several or one).split(",")
        names = [f"{package}.{name.split()[0]}" for name in listed if name.strip()]
        names_imported += [name if _file(name) else package for name in names]
    return names_imported


@functools.cache
def _file(module: str) -> str | None:
    """The path of a module's or a package's text; None where a name is neither."""
    place = os.path.join(ROOT, *module.split(".")[1:])
    return next(filter(os.path.isfile, (f"{place}.py", os.path.join(place, "__init__.py"))), None)


@functools.cache
def package_stamp() -> str:
    """A text that says which sources of Luminal these are: their names, sizes and times, by which
    Python, too, tells whether its compiled copy of one is still true. A quarter of the time that
    texts take.
    """
    stamps, waiting = [], [ROOT]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    stamps.append((entry.path, status.st_size, status.st_mtime_ns))
                elif "." not in entry.name and entry.is_dir():
                    waiting.append(entry.path)
    return hashlib.sha256(repr(sorted(stamps)).encode()).hexdigest()
