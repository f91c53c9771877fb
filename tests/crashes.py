"""Tests in processes of which one may die: the test that it ran fails, the others run elsewhere.

A vendor's compiler may abort, or stand still where no signal ends it (`faulthandler_timeout` does).
pytest-xdist's scheduler would give that test to the next process, and so on, and waits for ever for
a process with a single test: one starts a test when it knows what follows.
"""

from __future__ import annotations

from typing import Any

import pytest

try:
    from xdist.scheduler import LoadGroupScheduling
except ImportError:  # without processes nothing is to be scheduled
    LoadGroupScheduling = object


class Surviving(LoadGroupScheduling):  # type: ignore[misc]
    """Of groups of tests, as LoadGroupScheduling, and they end."""

    def remove_node(self, node: Any) -> str | None:
        """The test that a process ran when it died; what it had not begun waits for another."""
        groups = self.assigned_work.pop(node)
        begun = next((unit for unit in groups.values() if not all(unit.values())), None)
        if begun is None:
            return None
        crashed = next(name for name, is_done in begun.items() if not is_done)
        begun[crashed] = True
        left = {scope: unit for scope, unit in groups.items() if not all(unit.values())}
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
    """For `--dist loadgroup`."""
    return Surviving(config, log) if config.getvalue("dist") == "loadgroup" else None
