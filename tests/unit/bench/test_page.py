"""The page of records: history, marks, versions; drawn by a browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bench import page
from bench.history import places

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LOAD = {"before": 0.1, "after": 0.2, "others": 0.0, "stolen": 0.0, "seconds": 9.0, "loaded": False}


def row(name: str, measured: float, **facts: Any) -> dict[str, Any]:
    seconds = {"median": 0.002, "spread": [0.001, 0.003], "seconds": [0.001, 0.002, 0.003]}
    return {
        "subject": "matmul", "name": name, "load": LOAD, "made": "2026-11-30T08:00:00+00:00",
        "measured": measured, "target": 1.0, "unit": "x", "spread": [measured / 2, measured * 2],
        "detail": "", "passed": measured >= 1, "doubts": [], "blocks": 3,
        "order": ["ours", "PyTorch"], "sides": {"ours": seconds, "PyTorch": seconds}, "rates": [],
        **facts,
    }  # fmt: skip


def record(day: str, *rows: dict[str, Any], cpu: str = "A <CPU>", torch: str = "2.13.0") -> Any:
    return {
        "format": 1, "made": f"{day}T08:00:00+00:00", "threads": 2, "subjects": ["matmul"],
        "finished": ["matmul"], "rows": list(rows), "versions": {"torch": torch, "luminal": "0.1"},
        "source": {"commit": "c" * 40, "date": None, "changed": False},
        "effort": {"blocks": 5, "seconds": 0.3, "pause": 0.2, "quick": False},
        "machine": {
            "cpu": cpu, "llvm_cpu": "znver3", "vector_bits": 256, "features": ["avx2"], "cores": 2,
            "cache_bytes": [1, 2, 3], "memory_bytes": 1 << 34, "virtual": True, "system": "Linux",
            "clocks": {"governor": "performance"},
        },
    }  # fmt: skip


RECORDS = [
    record("2026-11-30", row("a", 2.0, doubts=["ours: 2 TFLOP/s is above"], passed=False),
           row("b", 0.5, load={**LOAD, "loaded": True}),
           {"subject": "matmul", "name": "c", "reason": "no <data>", "load": LOAD, "made": ""}),
    record("2026-05-30", row("a", 1.5), torch="2.11.0"),
    record("2026-08-30", row("a", 1.75), row("gone", 3.0)),
    record("2026-08-29", row("a", 9.0), cpu="Another"),
]  # fmt: skip


def test_history_is_by_machine_and_in_order_of_time() -> None:
    first, other = places(RECORDS)
    assert first.name == "A <CPU> (znver3), 2 cores, 2 threads"
    series = {each.name: each for each in first.series()}
    assert [found["measured"] for _, found in series["a"].points] == [1.5, 1.75, 2.0]
    assert list(series) == ["a", "b", "c", "gone"]
    assert [found["measured"] for _, found in other.series()[0].points] == [9.0]


def test_the_page_shows_marks_history_and_versions(tmp_path: Path) -> None:
    paths = []
    for number, each in enumerate(RECORDS):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(each), "utf-8")
    out = tmp_path / "folder/index.html"
    assert page.main([*map(str, paths), "--out", str(out)]) == 0
    text = out.read_text("utf-8")
    lines = {name: line for line in re.findall("<tr>.*?</tr>", text)
             for name in re.findall('<td class="name">(\\w+)', line)[:1]}  # fmt: skip
    assert 'class="mark doubt"' in text
    assert "ours: 2 TFLOP/s is above" in text
    assert text.count('class="mark loaded"') == 1
    assert "from 1.5 to 2 in 3 records" in text
    assert "(2026-08-30)" in lines["gone"]
    assert "<td class=changed>2.13.0</td>" in text
    assert "A &lt;CPU&gt;" in text
    assert "skipped: no &lt;data&gt;" in text
    assert not re.search(r"(src|href)=|url\(|@import|https?:", text)  # nothing is fetched
    assert "prefers-color-scheme: dark" in text
    Balanced().feed(text)


class Balanced(HTMLParser):
    """Fails where an element ends that is not the one begun last."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_file_that_is_no_record_writes_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "a.json", tmp_path / "index.html"
    path.write_text("[]", "utf-8")
    assert page.main([str(path), "--out", str(out)]) == 2
    assert f"bench: {path} is no record of format 1, but of 'list'" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.long
def test_a_browser_draws_it(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    file = tmp_path / "index.html"
    file.write_text(page.page(RECORDS), "utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.count("<svg") == page.page(RECORDS).count("<svg")
    shot = tmp_path / "page.png"
    command[4:] = [f"--screenshot={shot}", "--window-size=1200,900", file.as_uri()]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert shot.stat().st_size > 10_000
