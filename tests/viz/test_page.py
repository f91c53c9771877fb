"""The viewer's page, as a person uses it, with a document that is made up."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve import browser
from tests.serve.browser import Page
from tests.viz import looks, made_up

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason="there is no Chromium")
EVIL = "<img src=x onerror=window.hit=1></script><script>window.hit=1</script>"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    made = made_up.document()
    made["title"] = f"model.py:{EVIL}"
    made["files"][0]["lines"]["10"] = EVIL
    made["modules"][1]["path"] += EVIL
    made["values"]["name"][0] = EVIL
    made["kernels"][0]["texts"]["tile"] = EVIL
    made["search"]["rejected"][0]["reason"] = EVIL
    for row in (made["launches"][0], made["kernels"][0], made["memory"]["buffers"][0]):
        row["origin"] = EVIL
    return made


@pytest.fixture(scope="module")
def page(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with looks.opened(document, tmp_path_factory.mktemp("viz")) as found:
        yield found


@pytest.mark.parametrize("width", [1280, 390])
def test_views(page: Page, width: int) -> None:
    page.resize(width, 800)
    for view in looks.VIEWS:
        looks.check(page, view)


def test_what_is_selected_is_seen_in_all_stages(page: Page, document: dict[str, Any]) -> None:
    """Against the document: nodes of a stage are marked where their "of" meets the selection."""
    page.resize(1600, 900)
    page.value("clear()")
    looks.show(page, "graph")
    names = ("HLIR", "Algebra", "Selection", "Program")
    page.value("""[...document.querySelectorAll('#view-graph > .bar button')].forEach(one =>
      one.ariaPressed === 'false' && one.click());
      [...document.querySelectorAll('.pane .choice button')].forEach(one =>
      one.textContent === 'Text' && one.click())""")
    for kind, number in (("value", 12), ("algebra", 40), ("kernel", 3), ("program", 8)):
        page.value(f"select({kind!r}, {number})")
        stages = {stage["name"]: stage["of"] for stage in document["stages"]}
        wanted = {
            "value": {number},
            "algebra": {*stages["algebra"][min(number, len(stages["algebra"]) - 1)]},
            "kernel": {*document["kernels"][min(number, 8)]["of"]},
            "program": {*stages["program"][min(number, 8)]},
        }[kind]
        for name in names[1:]:
            seen = looks.marked(page, name)
            of = stages[name.lower()]
            assert seen, (kind, name)
            assert all(wanted & {*of[i]} for i in seen), (kind, name)
            if len(wanted) == 1:
                assert seen == [i for i, values in enumerate(of) if wanted & {*values}]
        assert page.value("location.hash") == f"#view=graph&select={kind}:{number}"
    page.value("clear()")


def test_nothing_of_a_program_is_markup(page: Page) -> None:
    for view in looks.VIEWS:
        looks.show(page, view)
        page.value("select('value', 0); select('kernel', 0); select('buffer', 0)")
    page.value("by('find').value = 'img'; showFound(); clear()")
    assert page.value("window.hit") is None
    assert page.value("document.images.length") == 0
    assert EVIL in page.value("by('title').textContent")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_have_contrast(page: Page, theme: str) -> None:
    """4.5 for text and 3 for shapes: WCAG 2.2, AA."""
    page.value(f"setTheme({theme!r})")
    page.value("['good', 'wrong'].forEach(name => { const probe = document.createElement('i');"
               "probe.style.color = `var(--${name})`; document.body.append(probe);"
               "paint[name] = getComputedStyle(probe).color; probe.remove(); })")  # fmt: skip
    texts, shapes = looks.contrasts(page, looks.TEXTS), looks.contrasts(page, looks.SHAPES)
    assert {pair: n for pair, n in texts.items() if n < 4.5} == {}
    assert {pair: n for pair, n in shapes.items() if n < 3} == {}


def test_numbers_are_in_units_of_people(page: Page) -> None:
    seconds = {1.0237: "1.02 s", 0.99951: "1.00 s", 0.9994: "999 ms", 311e-6: "311 us",
               9.996e-6: "10.0 us", 1e-9: "1.00 ns", -2.5e-3: "-2.50 ms", 0: "0 s"}  # fmt: skip
    assert page.value(f"{json.dumps([*seconds])}.map(duration)") == [*seconds.values()]
    sizes = {0: "0 B", 999: "999 B", 999_600: "1.00 MB", 1024: "1.02 kB", 3_260_000: "3.26 MB"}
    assert page.value(f"{json.dumps([*sizes])}.map(bytes)") == [*sizes.values()]
    shares = {0.00231: "0.23%", 0.0994: "9.9%", 0.5349: "53%", 1.25: "125%", 0: "0%"}
    assert page.value(f"{json.dumps([*shares])}.map(percent)") == [*shares.values()]


def test_boxes_lie_below_what_they_read_and_beside_each_other(page: Page) -> None:
    draw = random.Random(0)
    for count in (1, 2, 60):
        pairs = {(draw.randrange(n), n) for n in range(1, count) for _ in range(2)}
        widths = [draw.randrange(40, 200) for _ in range(count)]
        task = {"widths": widths, "sources": [a for a, _ in pairs],
                "targets": [b for _, b in pairs], "gap": 20}  # fmt: skip
        found = page.value(f"(() => {{ const {{x, row, rows}} = placed({json.dumps(task)});"
                           "return {x: [...x], row: [...row], rows}; })()")  # fmt: skip
        assert all(found["row"][a] < found["row"][b] for a, b in pairs)
        assert sorted(i for row in found["rows"] for i in row) == [*range(count)]
        for row in found["rows"]:
            for a, b in itertools.pairwise(row):
                apart = (widths[a] + widths[b]) / 2 + 20
                assert found["x"][b] - found["x"][a] >= apart - 0.01  # float32 of some thousands


def test_a_program_that_has_not_run_says_what_it_will_hold_and_what_would_be_faster(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """The least spelling is named, sizes are those of buffers, and no name makes a table wide."""
    made = copy.deepcopy(document)
    made["search"], memory = None, made["memory"]
    memory["report"] = dict.fromkeys(memory["report"], 0)
    memory["peak"]["buffers"] = memory["peak"]["buffers"][:1]
    memory["buffers"][0]["name"] = "n" * 10_000
    memory["buffers"][1] |= {"lines": [], "origin": "backbone.stem: Conv"}
    made["spellings"] = made["spellings"][1:]
    recorded, taken = made["spellings"][0]["nodes"]
    recorded["cost"], recorded["why_not"] = taken["cost"] / 4, "a run should take less"
    with looks.opened(made, tmp_path) as page:
        help_list = page.value("document.querySelector('#view-overview ol.help').innerText")
        looks.show(page, "memory")
        text = page.value("document.querySelector('#view-memory').innerText")
        wide = page.value("[...document.querySelectorAll('.wide')].map(one => one.scrollWidth)")
    assert "%12 " in help_list
    assert "(as recorded): a run should take less." in help_list
    kinds = text.split("The arena over a run")[0].split()
    assert kinds[kinds.index("arena") + 1 :][:2] == [f"{memory['arena_bytes'] / 1e6:.2f}", "MB"]
    assert "1 value holds" in text
    lines = text.split("By line")[1].split("All buffers")[0]
    assert "backbone.stem: Conv" in lines
    assert "no line: weight" in lines
    assert max(wide) < 2000


@pytest.mark.long
def test_without_what_was_not_made_views_say_so(tmp_path: Path) -> None:
    """A document of a graph alone, as of a compile without a profile or search."""
    made = made_up.document(40, 1)
    nothing = dict.fromkeys(("memory", "peaks", "run_seconds", "search", "other"))
    no_list: dict[str, Any] = {name: [] for name in ("kernels", "launches", "stages", "spellings")}
    absent = {**nothing, **no_list, "timeline": {"run": [], "compile": [], "search": []}}
    notes = {"spellings": "They are kept where --spellings is given."}
    with looks.opened({**made, **absent, "notes": notes}, tmp_path) as page:
        for view in looks.VIEWS:
            looks.check(page, view)
        said = {view: page.value(f"document.querySelector('#view-{view}').innerText")
                for view in looks.VIEWS}  # fmt: skip
    assert "pass --mode 30s" in said["search"]
    assert said["spellings"] == notes["spellings"]
    assert "Nothing was timed" in said["timeline"]


def test_a_database_is_a_list_of_searches_and_each_of_them(tmp_path: Path) -> None:
    """By keys alone, and by a link; a seed of 61 bits is exact, amounts are numbers."""
    made = made_up.database()
    rows = "[...document.querySelectorAll('#view-searches tbody tr')]"
    with looks.opened(made, tmp_path) as page:
        assert page.value("viewNames") == ["searches", "search"]
        for width in (1280, 390):
            page.resize(width, 800)
            looks.check(page, "searches")
            looks.check(page, "search")
        looks.show(page, "searches")
        assert page.value(f"{rows}.map(row => row.datum.title)") == [
            row["title"] for row in made["searches"]
        ]
        page.value(f"{rows}[3].focus()")
        page.press("ArrowUp")
        page.press("Enter")
        told = page.value("document.querySelector('#view-search').innerText")
        assert page.value("location.hash") == "#view=search&search=2"
        assert "failed: it hung" in told
        assert f"seed {2**60 + 2}" in told
        page.value("location.hash = '#view=search&search=3'")
        page.wait("document.querySelector('#view-search').innerText.includes('graph3')")
        first = page.value("document.querySelector('#view-search ul li').innerText")
        assert first.startswith("Sum of mlp: down (model.py:12) is stored.")
        assert first.endswith("Without it a run takes 1.31 times as long.")
        page.value("[...document.querySelectorAll('#view-search .choice button')]"
                   ".find(one => one.textContent.startsWith('Kept')).click()")  # fmt: skip
        kept = page.value("[...document.querySelectorAll('#view-search table')][0]"
                          ".querySelectorAll('tbody tr').length")  # fmt: skip
        assert kept == sum(
            row["outcome"] == "kept" for row in made["searches"][3]["search"]["genes"]
        )
        assert page.errors == []


@pytest.mark.long
def test_a_database_without_searches_says_so(tmp_path: Path) -> None:
    with looks.opened({**made_up.database(0)}, tmp_path) as page:
        for view in ("searches", "search"):
            looks.check(page, view)
        said = page.value("document.querySelector('#view-searches').innerText")
    assert "This database has noted no search" in said


def test_what_a_launch_takes_of_a_unit_is_by_the_model(page: Page) -> None:
    looks.show(page, "kernels")
    page.value("select('launch', 0)")
    text = page.value("document.querySelector('#view-kernels').innerText")
    assert "by the model of the chip" in text
    heads = page.value(
        "[...document.querySelectorAll('#view-kernels th')].map(one => one.innerText)"
    )
    assert heads[-4:] == ["occupancy", "registers", "shared", "groups"]
    told = page.value("by('inspector').innerText")
    assert "By the model: 25% of the lanes that a unit has room for, in 4 groups of 128" in told
    assert "a lane takes 32 registers" in told
    page.value("clear()")


def test_why_a_launch_is_slow_is_told_of_that_launch(page: Page) -> None:
    """Where one kernel is launched twice, the figures are those of the launch that is selected."""
    page.value("launches[1].kernel = launches[0].kernel")
    for launch in range(2):
        each = page.value(f"duration(launches[{launch}].seconds / launches[{launch}].trips)")
        page.value(f"select('launch', {launch})")
        assert f"Launch {launch} takes {each}." in page.value("by('inspector').innerText")
    page.value("clear(); launches[1].kernel = 1")
