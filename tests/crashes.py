"""Tests in processes of which one may die: the test that it ran fails, the others run elsewhere.

A vendor's compiler may abort, or stand still where no signal ends it (`faulthandler_timeout` does).
pytest-xdist's scheduler would give that test to the next process, and so on, and waits for ever for
a process with a single test: one starts a test when it knows what follows.
"""

from __future__ import annotations

import faulthandler
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

try:
    from xdist.scheduler import LoadFileScheduling
except ImportError:  # without processes nothing is to be scheduled
    LoadFileScheduling = object


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Has `faulthandler_timeout` wait as much longer as a test's own limit is above that of all."""
    mark = item.get_closest_marker("timeout")
    stands = float(item.config.getini("faulthandler_timeout") or 0)
    more = float(mark.args[0]) - float(item.config.getini("timeout")) if mark else 0.0
    if stands and more > 0:
        file = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(stands + more, file=file, exit=True)


class Surviving(LoadFileScheduling):  # type: ignore[misc]
    """Of files, as LoadFileScheduling, and they end."""

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Keeps what is left of a process's files: all of them are counted after each test."""
        super().mark_test_complete(node, item_index, duration)
        files = self.assigned_work[node]
        name = self._split_scope(self.registered_collections[node][item_index])
        if all(files[name].values()):
            del files[name]

    def remove_node(self, node: Any) -> str | None:
        """The test that a process ran when it died; what it had not begun waits for another."""
        files = self.assigned_work.pop(node)
        begun = next((unit for unit in files.values() if not all(unit.values())), None)
        if begun is None:
            return None
        crashed = next(name for name, is_done in begun.items() if not is_done)
        begun[crashed] = True
        left = {scope: unit for scope, unit in files.items() if not all(unit.values())}
        self.workqueue.update(left)
        for other in self.assigned_work:
            self._reschedule(other)
        return str(crashed)

    def _reschedule(self, node: Any) -> None:
        """Until it has two tests, or knows that no more come."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadfile`."""
    return Surviving(config, log) if config.getvalue("dist") == "loadfile" else None
