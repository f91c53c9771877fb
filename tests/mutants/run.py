"""Runs tests against a mutant: in a forked process, over a copy of the package made of links."""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".mutants"
PRELOADED = ("numpy", "hypothesis", "llvmlite.binding", "ml_dtypes", "_pytest.assertion.rewrite")
MEMORY = 6 << 30  # bytes of a process; a mutant may never stop asking for more
PATIENCE = 3  # times the CPU seconds of the tests as they are
LEAST_SECONDS = 20
MODULE = "_reached"  # `beacon.py`, under the name by which marked modules import it
WALL = 20  # times the CPU seconds allowed, on a busy machine


class Outcome(NamedTuple):
    """How the tests ended: 0 if all passed, and their CPU seconds."""

    code: int
    seconds: float


class Tree:
    """A copy of the package whose files are links, one of them replaced at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path in ROOT.iterdir():
            if path.name not in ("src", WORK.name):
                (folder / path.name).symlink_to(path)
        for path in sorted((ROOT / "src/luminal").rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                link = folder / path.relative_to(ROOT)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)
        (folder / f"src/{MODULE}.py").symlink_to(Path(__file__).with_name("beacon.py"))

    @contextmanager
    def holding(self, sources: Mapping[str, str]) -> Iterator[None]:
        """These modules have these sources inside the block."""
        for file, source in sources.items():
            path = self.folder / file
            path.unlink()
            path.write_text(source)
            self._written += 1
            os.utime(path, (self._written, self._written))  # bytecode is known by it
        try:
            yield
        finally:
            for file in sources:
                path = self.folder / file
                path.unlink()
                path.symlink_to(ROOT / file)


def preload() -> None:
    """Imports what takes long and is no part of what is mutated."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert not any(name.split(".")[0] == "luminal" for name in sys.modules)


Plugins = Callable[[], list[Any]]


def run(
    tree: Tree,
    tests: Sequence[str],
    seconds: float | None,
    log: Path,
    plugins: Plugins = list,
    first_failure: bool = True,
) -> Outcome:
    """The tests over a tree. `seconds`: CPU time that they take as they are, if it is known.
    `plugins`: makes plugins of pytest, in the process that tests. `first_failure`: ends it.
    """
    limit = None if seconds is None else int(LEAST_SECONDS + PATIENCE * seconds)
    child = os.fork()
    if child == 0:
        options = ["-x"] if first_failure else []
        _test(tree, [*options, *tests], limit, log, plugins)
    end = time.monotonic() + WALL * (limit or 600)
    while True:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that it started
    return Outcome(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)


def _test(tree: Tree, tests: Sequence[str], limit: int | None, log: Path, plugins: Plugins) -> None:
    """The child: never returns."""
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(output, number)
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = f"{tree.folder}/src"  # of commands that tests start
        os.environ["LUMINAL_CACHE_DIR"] = str(tree.folder / "cache")
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(tree.folder / "hypothesis")
        options = ["-q", "-n", "0", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is preloaded
        options += ["-o", f"pythonpath={tree.folder}/src ."]
        code = int(pytest.main([*options, *tests], plugins()))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
