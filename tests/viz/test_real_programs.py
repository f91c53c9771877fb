"""The viewer's page of real programs: every view, keys, narrow windows, both themes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve import browser
from tests.serve.browser import Page
from tests.viz import graphs, looks, made_up

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(browser.PROGRAM is None, reason="there is no Chromium"),
]
PROGRAMS = {"llama": graphs.llama, "training": graphs.training_step, "detector": graphs.detector}


@pytest.fixture(scope="module", params=PROGRAMS)
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = PROGRAMS[request.param]().document()
    return found


@pytest.fixture(scope="module")
def page(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with looks.opened(document, tmp_path_factory.mktemp("viz")) as found:
        yield found


@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (1024, "dark"), (390, "light")])
def test_views(page: Page, width: int, theme: str) -> None:
    page.resize(width, 844)
    page.value(f"setTheme({theme!r}); clear()")
    for view in looks.VIEWS:
        looks.check(page, view)
        page.value("select('kernel', kernels[0].number)")
        looks.check(page, view)
        page.value("clear()")


def test_selections_against_the_document(page: Page, document: dict[str, Any]) -> None:
    """In every stage, what meets the values of the selection; and so for kernels and buffers."""
    draw = random.Random(0)
    stages = {stage["name"]: stage["of"] for stage in document["stages"]}
    kinds = {"value": [[n] for n in range(len(document["values"]["op"]))], **stages}
    for kind, of in kinds.items():
        for number in draw.sample(range(len(of)), 5):
            page.value(f"select({kind!r}, {number})")
            wanted = {*of[number]}
            for name, others in stages.items():
                found = page.value(
                    f"nodesOf(stages.find(one => one.name === {name!r}), selection.values)"
                )
                assert found == [i for i, mine in enumerate(others) if wanted & {*mine}], name
            for name, rows in (("kernels", document["kernels"]),
                               ("buffers", document["memory"]["buffers"])):  # fmt: skip
                found = page.value(f"meets({name!r}, {name}, selection.values)")
                assert found == [i for i, row in enumerate(rows) if wanted & {*row["of"]}], name
    page.value("clear()")


def test_times_add_up(page: Page, document: dict[str, Any]) -> None:
    """The overview's parts are a whole run, or the launches' sum where that is more."""
    looks.show(page, "overview")
    shares = page.value("""[...document.querySelectorAll('#view-overview .stack button')]
      .map(one => Number(one.style.flexGrow))""")
    assert sum(shares) == pytest.approx(1, abs=1e-4)  # a style keeps six digits
    parts = page.value("""[...document.querySelectorAll('#view-overview tbody tr')]
      .map(row => row.datum.seconds)""")
    taken = sum(row["seconds"] or 0 for row in document["launches"])
    assert sum(parts) == pytest.approx(max(document["run_seconds"], taken))


def test_keys(page: Page) -> None:
    page.resize(1440, 900)
    page.value("clear(); document.activeElement.blur()")
    for number, view in enumerate(looks.VIEWS, 1):
        page.press(str(number))
        assert page.value("shown") == view
    page.value("by('tab-search').focus()")
    page.press("ArrowRight")
    assert page.value("[shown, document.activeElement.id]") == ["overview", "tab-overview"]
    page.press("End")
    assert page.value("shown") == "search"
    page.press("?")
    assert page.value("by('keys').open")
    page.press("Escape")
    assert not page.value("by('keys').open")

    page.press("2")
    page.wait("performance.getEntriesByName('drawn hlir').length > 0")
    page.value("document.querySelector('.pane canvas').focus()")
    page.press("ArrowDown")
    first = page.value("selection.id")
    page.press("ArrowDown")
    assert page.value("selection.id") not in (first, "", -1)
    assert page.value("!by('inspector').hidden")
    page.press("Escape")
    assert page.value("by('inspector').hidden")

    page.press("6")
    page.value("document.querySelector('#view-kernels tbody tr').focus()")
    page.press("ArrowDown")
    page.press("Enter")
    assert page.value("selection.kind") == "launch"
    second = page.value("document.querySelectorAll('#view-kernels tbody tr')[1].ariaSelected")
    assert second == "true"


def test_finding(page: Page, document: dict[str, Any]) -> None:
    page.value("clear(); document.activeElement.blur()")
    page.press("/")
    assert page.value("document.activeElement.id") == "find"
    file, line = document["files"][0]["path"], document["values"]["line"][-1]
    for key in f"{file}:{line}":
        page.press(key)
    told = page.value("found(by('find').value).filter(one => one.kind === 'value').map(x => x.id)")
    values = document["values"]
    assert told == [
        n for n, at in enumerate(values["line"]) if at == line and not values["file"][n]
    ]
    page.press("Enter")
    assert page.value("shown") in ("graph", "kernels")
    assert page.value("selection.kind !== ''")
    shape = values["shape"][-1]
    told = page.value(f"found('[{shape.replace(' ', '')}]').filter(one => one.kind === 'value')"
                      ".map(one => one.id)")  # fmt: skip
    assert told == [n for n, its in enumerate(values["shape"]) if its == shape]


def test_folding(page: Page, document: dict[str, Any]) -> None:
    """Unfolded, every value is in a box but constants and what is shown of them."""
    page.value("clear()")
    looks.show(page, "graph")
    folded, unfolded = (
        page.value(f"contracted(stages[0], new Set({opened}), true).boxes.map(one => one.nodes)")
        for opened in ("[]", "around.flat()")
    )
    count = len(document["values"]["op"])
    assert sorted(n for box in folded for n in box) == [*range(count)]
    assert unfolded == [[n] for n in range(count)]
    assert len(folded) < len(unfolded)


PAN = """(async () => { const times = [], canvas = document.querySelector('.pane canvas');
  for (let k = 0; k < 90; k++) { const begin = performance.now();
    canvas.dispatchEvent(new KeyboardEvent('keydown', {key: k < 45 ? 'ArrowDown' : 'ArrowRight',
      shiftKey: true}));
    await new Promise(requestAnimationFrame); times.push(performance.now() - begin); }
  return times.sort((a, b) => a - b)[45]; })()"""


def test_ten_thousand_values(tmp_path: Path) -> None:
    """Drawn, unfolded, with 2 s of work, and panned at 30 frames a second: near, and whole."""
    document = made_up.document(10_000, 32)
    with looks.opened(document, tmp_path, "#view=graph&fold=none") as page:
        page.wait("performance.getEntriesByName('drawn hlir').length > 0")
        # An opening takes no longer than the work of all its threads, if nothing else runs.
        work = page.processor_seconds()
        opened = page.value("performance.getEntriesByName('drawn hlir')[0].startTime")
        near = page.value(PAN)
        page.value("document.querySelector('.pane canvas').dispatchEvent("
                   "new KeyboardEvent('keydown', {key: '0'}))")  # fmt: skip
        whole = page.value(PAN)
        assert page.errors == []
    print(f"opened in {opened:.0f} ms, {work:.2f} s of processors; "
          f"a frame takes {near:.1f} ms near, {whole:.1f} whole")  # fmt: skip
    assert work < 2
    assert near < 1000 / 30
    assert whole < 1000 / 30
