"""The search loads egglog's compiled module alone, and says what to install where it is absent."""

import subprocess
import sys
from pathlib import Path

from luminal.base import config

SEARCH = """
import sys
import luminal as lm
from luminal.egraph.base import base
{before}
try:
    base(())
except lm.CompileError as error:
    print(error)
print(sorted({{"black", "IPython", "opentelemetry"}} & {{*sys.modules}}))
{after}
"""


def searched(before: str = "", after: str = "") -> list[str]:
    """The lines that a process prints that makes an e-graph."""
    done = subprocess.run(
        [sys.executable, "-c", SEARCH.format(before=before, after=after)],
        capture_output=True,
        text=True,
        check=True,
        env=config.child_environment(),
    )
    return done.stdout.splitlines()


def test_a_search_imports_nothing_of_the_package_around() -> None:
    same = (
        'was = "egglog.bindings" in sys.modules\n'
        "from egglog.bindings import EGraph\n"
        "from luminal.egraph.binding import egraph_class\n"
        "print(EGraph is egraph_class(), was)"
    )
    assert searched(after=same) == ["[]", "True True"]


def test_a_search_without_egglog_says_what_to_install() -> None:
    said, imported = searched(before='sys.modules["egglog"] = None')
    assert said.startswith("search: egglog, which holds the equal programs, is not installed; ")
    assert "[search]" in said
    assert imported == "[]"


BUDGET = """
import sys
import luminal as lm
sys.modules["egglog"] = None
cx = lm.Graph()
(cx.tensor((4,), name="x") * 2).output("y")
try:
    lm.compile(cx, mode=lm.TimeBudget(1e-3))
except lm.CompileError as error:
    print(error)
"""


def test_a_search_without_egglog_fails_however_short_its_time_is(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUDGET]
    with config.override(LUMINAL_CACHE_DIR=tmp_path):  # no earlier search has decided
        environment = config.child_environment()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith(
        "search: egglog, which holds the equal programs, is not installed"
    )
