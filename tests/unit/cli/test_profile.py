"""`luminal profile`: what it says of traces that are written here by hand, and of a graph."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from luminal.cli import profile_rows
from luminal.cli.main import main
from luminal.cli.profile import Sort
from luminal.runtime.trace import read
from tests.unit.cli.traces import document, written


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object,
    columns: int = 120,
) -> tuple[Any, str]:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "argv", ["luminal", "profile", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code, capsys.readouterr().out


def test_a_table_has_shares_lines_and_what_lies_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = run(monkeypatch, capsys, written(tmp_path / "a.trace"))
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "1.2 ms: compiling 70 us, searching 30 us, 4 runs 397 us"
    assert lines[2] == "m, cpu, fast at s = 3: 4 runs 397 us, one takes 100 us, arena 4.1 kB"
    assert lines[3] == (
        "  one with clocks takes 97 us: prepare 5 us, wake threads 10 us, launches 80 us (of these "
        "15 us waits of threads), end 2 us"
    )
    rows = [line.split() for line in lines[5:]]
    assert [row[0] for row in rows] == ["75.0%", "25.0%"]
    assert rows[0][1] == "█" * 12
    assert rows[1][1] == "█" * 4
    assert "layers.*.mlp: up  model.py:4,5" in lines[5]
    assert "[red]norm[/]" in lines[6]
    assert "\x1b" not in out  # no colours into a pipe


def test_every_order_can_be_asked_for() -> None:
    assert [sort.value for sort in Sort] == [*profile_rows.SORTS]


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_a_table_fits_and_cuts_nothing_off(
    columns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path / "a.trace")
    out = run(monkeypatch, capsys, path, "--sort", "name", columns=columns)[1]
    rows = out.splitlines()[4:]
    assert max(map(len, rows)) <= columns
    assert "…" not in out
    assert "75.0%" in out
    assert ("roofline" in out) == (columns == 200)
    first = next(row for row in rows if row.lstrip()[:1].isdigit())
    assert "25.0%" in first  # by name: [ before l


def test_json_adds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(monkeypatch, capsys, written(tmp_path / "a.trace"), "--json")[1]
    facts = json.loads(out)
    assert sum(row["share"] for row in facts["kernels"]) == pytest.approx(1)
    assert [row["seconds"] for row in facts["kernels"]] == pytest.approx([60e-6, 20e-6])
    assert facts["kernels"][0]["total_seconds"] == pytest.approx(4 * 60e-6)
    assert facts["kernels"][0]["roofline"] is None  # of another machine
    told = facts["totals"]
    assert told["launches"] + told["waiting"] + told["between"] == pytest.approx(told["runs"])
    parts = facts["programs"][0]["parts"]
    assert parts.pop("waiting") == pytest.approx(15e-6)
    assert sum(parts.values()) == pytest.approx(97e-6)


def test_peaks_are_asked_of_the_machine_that_wrote_the_trace(tmp_path: Path) -> None:
    assert profile_rows.peaks_here(read(written(tmp_path / "a.trace"))) is None
    here = read(written(tmp_path / "b.trace", host=platform.node()))
    here.programs[0].dispatch = "list"  # of a device
    assert profile_rows.peaks_here(here) is None


def test_two_traces_are_compared_by_time_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = written(tmp_path / "a.trace")
    second = written(tmp_path / "b.trace", first=50, second=45)
    lines = run(monkeypatch, capsys, first, second, columns=160)[1].splitlines()
    assert lines[0] == "a run of each program: 15 us slower in the second trace"
    assert lines[2].split()[:7] == ["+25", "us", "20", "us", "45", "us", "2.25x"]
    assert lines[3].split()[:7] == ["-10", "us", "60", "us", "50", "us", "0.83x"]
    told = json.loads(run(monkeypatch, capsys, first, second, "--json")[1])
    assert [row["lost"] for row in told] == pytest.approx([25e-6, -10e-6])


def test_a_command_is_run_with_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, kept = written(tmp_path / "a.trace"), tmp_path / "kept.trace"
    code = (
        "import os, sys, shutil; "
        f"shutil.copy({str(source)!r}, os.environ['LUMINAL_TRACE']); sys.exit(int(sys.argv[-1]))"
    )
    shown = tmp_path / "perfetto.json"
    arguments = ("--save", kept, "--perfetto", shown, "--", "python", "-c", code, "--n", 3)
    status, out = run(monkeypatch, capsys, *arguments)
    assert status == 3  # the command's
    assert "75.0%" in out
    assert kept.read_text() == source.read_text()
    assert "traceEvents" in json.loads(shown.read_text())


def test_a_page_of_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The viewer's, of one trace and of two."""
    first = written(tmp_path / "a.trace")
    second = written(tmp_path / "b.trace", first=50, second=45)
    page = tmp_path / "page.html"
    for targets, other in (((second,), None), ((first, second), f"{first}: m, cpu, fast")):
        status, out = run(monkeypatch, capsys, *targets, "--html", page)
        assert status == 0
        assert out
        shown = document(page)
        assert shown["title"] == f"{second}: m, cpu, fast"
        seconds = [row["seconds"] for row in shown["launches"]]
        assert seconds == pytest.approx([50e-6, 45e-6])
        assert (shown["other"] or {"title": None})["title"] == other
    empty = tmp_path / "empty.trace"
    empty.write_text(first.read_text().splitlines(keepends=True)[0])
    said = str(run(monkeypatch, capsys, empty, "--html", tmp_path / "none.html")[0])
    assert f"nothing ran in {empty}, so no page is written" in said
    assert not (tmp_path / "none.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.trace",), "profile: nothing.trace: no such file"),
        (("train.py",), "write `luminal profile -- python train.py`"),
        (("--", "no-such-command", "x"), "no-such-command: cannot be run: No such file"),
        (("a.trace", "--perfetto", "/no/such/x.json"), "there is no folder /no/such"),
        (("--save", "/no/such/x.trace", "--", "python", "-c", "1"), "there is no folder /no/such"),
        (("--save", __file__, "--", "python", "-c", "1"), "is no trace, and is kept as it is"),
    ],
)
def test_what_cannot_be_shown_is_said(
    arguments: Sequence[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said in str(run(monkeypatch, capsys, *arguments)[0])


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_a_command_without_luminal_ends_as_it_did(
    code: str,
    ends: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An older trace under the name is not taken for one of the command."""
    kept = written(tmp_path / "kept.trace")
    before = kept.read_bytes()
    monkeypatch.setattr(sys, "argv", ["luminal", "profile", "--save", str(kept), "--",
                                      "python", "-c", code])  # fmt: skip
    with pytest.raises(SystemExit) as caught:
        main()
    told = capsys.readouterr()
    assert (caught.value.code, told.out) == (ends, "")
    assert "compiled nothing with Luminal, so there is nothing to show" in told.err
    assert f"(its exit status is {ends})" in told.err
    assert kept.read_bytes() == before


def test_a_function_s_graph_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profile_rows, "peaks_here", lambda trace: None)  # seconds of measuring
    file = tmp_path / "small_graph.py"
    file.write_text(
        "import luminal as lm\n\n\ndef graph():\n    cx = lm.Graph('small')\n"
        "    (cx.tensor((8, 16), name='x') * 2).sum(-1).output('y')\n    return cx\n"
    )
    status, out = run(monkeypatch, capsys, f"{file}:graph")
    assert status == 0
    assert "small, cpu, fast: 40 runs" in out
    assert "small_graph.py:6" in out
    assert "100.0%" in out
