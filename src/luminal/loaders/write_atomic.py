"""Files that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from luminal.base.errors import InputError
from luminal.loaders.mapped import Array

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)  # Windows has texts, too
_MOST_LINKS = 40  # one after the other, as for Linux


# Programs map files: writing into one would change weights that run, and cutting it short would end
# their process (SIGBUS). A rename leaves the old file to those who have it.
@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of `path` when the block ends without an error.

    It lies in the same folder, and its bytes are on disk before it is renamed: whoever reads
    `path`, also after a crash, finds the old file or the new one. Maps of the old file stay valid.
    Devices and pipes stay what they are, and so does what this process has open already, as
    /dev/stdout: they are written to. Raises InputError where `path` is a folder or cannot be
    opened.
    """
    place = Path(path).expanduser()
    target = place.resolve()  # a link stays a link
    if os.path.isdir(target):
        raise InputError(f"{path}: is a folder; name a file")
    number = _open_already(place)
    if number is not None or (os.path.exists(target) and not os.path.isfile(target)):
        try:
            stream = open(target if number is None else os.dup(number), "wb")  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        with stream:
            yield stream
        return
    # Beside the target, since a rename replaces nothing on another file system.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(draft, _NEW, 0o666)
    except OSError as error:
        fix = "; make the folder first" if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{path}: cannot be written: {error.strerror}{fix}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    # A Ctrl-C as well: a draft has a name that nobody would look for.
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    # The new name is on disk once the folder is.
    _sync_folder(target.parent)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to fill, which becomes `path` when the block ends without an error, and is gone if
    not. Raises InputError where `path` is there already, unless it is an empty folder.
    """
    target = Path(path).expanduser().resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        if target.exists() and any(target.iterdir()):
            raise InputError(f"{path}: is there already; name a new folder")
        draft.mkdir()
    except OSError as error:
        raise InputError(f"{path}: cannot be made: {error.strerror}") from error
    try:
        yield draft
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    _sync_folder(target.parent)


def _open_already(place: Path) -> int | None:
    """Which of this process's open files it names: 1 for /dev/stdout, 3 for /dev/fd/3."""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(place.parent)
        if folder in ("/dev/fd", f"/proc/{os.getpid()}/fd") and place.name.isdecimal():
            return int(place.name)
        if not os.path.islink(place):
            break
        place = place.parent / os.readlink(place)
    return None


def _sync_folder(folder: Path) -> None:
    """Has the rename on disk; some file systems cannot, and the file is whole even so."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_mapping(state: Any, function: str) -> None:
    """Raises InputError, which names the function of `lm`, for what is no mapping of names."""
    if isinstance(state, str | Path):
        raise InputError(
            f"{function}: the path comes first: lm.{function}(path, model.state_dict())"
        )
    if not isinstance(state, Mapping):
        raise InputError(
            f"{function}: {type(state).__name__} is no mapping of names to arrays; pass "
            "model.state_dict()"
        )


def arrays_of(
    state: Mapping[str, Any], names: Mapping[np.dtype[Any], str], what: str
) -> dict[str, Array]:
    """The values of a state_dict as row-major arrays of dtypes that the format `what` has.

    Raises InputError for another dtype, for what is no mapping of names, and for names that no file
    can hold.
    """
    check_mapping(state, "save")
    arrays: dict[str, Array] = {}
    for name, value in state.items():
        if not isinstance(name, str) or not _is_unicode(name):
            raise InputError(f"save: {name!r} is no name for an array; give a str of Unicode")
        array = np.asarray(value)
        if array.dtype not in names:
            raise InputError(
                f"{name}: {array.dtype} has no place in {what}, which takes "
                f"{', '.join(names.values())}; cast the array or leave it out"
            )
        arrays[name] = np.require(array, requirements="C")
    return arrays


def _is_unicode(text: str) -> bool:
    """Has it no halves of surrogate pairs?"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
