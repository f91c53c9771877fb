"""What code made something: part of the keys of things on disk that other code would make anew."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable


@functools.cache
def source_hash(*packages: str) -> str:
    """A hash over the Python files of some packages and the packages in them."""
    digest = hashlib.sha256()
    for package in packages:
        _add(digest, files(package))
    return digest.hexdigest()


def _add(digest: hashlib._Hash, folder: Traversable) -> None:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            _add(digest, path)
        elif path.name.endswith(".py"):
            digest.update(path.read_bytes())
