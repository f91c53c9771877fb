"""The record of `python -m bench`: its schema, how a run goes on, rates above limits, load."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import bench.limits
from bench import load, pair, record, table
from bench.block import EFFORT
from bench.limits import Counted, beyond_cache, rates
from bench.load import Load
from bench.pair import compare
from bench.record import OF_ROW, Record, read
from bench.row import KEPT, Row, Skipped
from luminal.base.errors import InputError, LoadError
from luminal.runtime.roofline import Peaks

PEAKS = Peaks(flops=200e9, memory=20e9, cache=400e9, cache_bytes=1 << 24)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"blocks": 3, "seconds": 0.0, "pause": 0.0, "named": ""}.items():
        monkeypatch.setattr(EFFORT, name, value)
    monkeypatch.setattr(pair, "measured_now", lambda: PEAKS)
    monkeypatch.setattr(record, "commit", lambda: {"commit": "0" * 40, "changed": False})
    yield
    KEPT.clear()


class Subject(ModuleType):
    """Rows a, b, c, the last of which may fail; `calls` counts what was measured."""

    def __init__(self) -> None:
        super().__init__("bench.small")
        self.calls: list[str] = []
        self.fails = True

    def rows(self) -> Iterator[Row | Skipped]:
        for name in "abc":
            yield self.row(name)
        yield Skipped("d", "no data")

    def row(self, name: str) -> Row:
        def ours() -> np.ndarray[Any, Any]:
            if name == "c" and self.fails:
                raise RuntimeError("the machine went down")
            self.calls.append(name)
            return np.ones(1)

        return compare(name, ours, lambda: np.ones(1), 1e-9, Counted(1.0))


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch) -> Subject:
    made = Subject()
    monkeypatch.setitem(sys.modules, "bench.small", made)
    return made


def test_a_run_that_ended_goes_on_row_by_row(subject: Subject, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(RuntimeError):
        table.main(["--only", "small", "--json", str(path)])
    half = read(path)
    assert [row["name"] for row in half["rows"]] == ["a", "b"]
    assert half["finished"] == []
    subject.calls, subject.fails = [], False
    assert table.main(["--resume", str(path)]) == 0
    assert set(subject.calls) == {"c"}
    whole = read(path)
    assert [row["name"] for row in whole["rows"]] == ["a", "b", "c", "d"]
    assert whole["rows"][:2] == half["rows"]
    assert whole["finished"] == ["small"]
    subject.calls = []
    assert table.main(["--resume", str(path)]) == 0
    assert subject.calls == []
    assert read(path)["finished"] == ["small"]


@pytest.mark.usefixtures("subject")
def test_a_record_is_not_written_over_and_not_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    made = Record.begun(path, ("small",), 2)
    assert made.left == ["small"]
    assert table.main(["--only", "small", "--json", str(path)]) == 2
    assert f"{path} is there already; give --resume {path}" in capsys.readouterr().err
    with pytest.raises(InputError, match="its threads is another: 2 and 1"):
        Record.resumed(path, 1)
    monkeypatch.setattr(record, "versions", lambda: {**made.facts["versions"], "torch": "9"})
    with pytest.raises(InputError, match=r"its versions is another: torch was .* and is '9'"):
        Record.resumed(path, 2)


def test_a_name_that_no_row_has_is_an_error(
    subject: Subject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And leaves no record."""
    subject.fails = False
    path = tmp_path / "record.json"
    assert table.main(["--only", "small", "--rows", "nosuchrow", "--json", str(path)]) == 2
    assert "no row of small has a name that begins with 'nosuchrow'" in capsys.readouterr().err
    assert not path.exists()


def test_rows_say_all_of_how_they_were_measured(subject: Subject, tmp_path: Path) -> None:
    subject.fails = False
    path = tmp_path / "record.json"
    table.main(["--only", "small", "--rows", "a", "--json", str(path)])
    facts = read(path)
    (row,) = facts["rows"]
    assert row.keys() == OF_ROW.keys()
    assert (row["blocks"], row["order"]) == (3, ["ours", "PyTorch"])
    for side in row["sides"].values():
        assert side["spread"] == [min(side["seconds"]), max(side["seconds"])]
        assert side["median"] == sorted(side["seconds"])[1]
    assert row["load"].keys() == {"before", "after", "others", "stolen", "seconds", "loaded"}
    assert Row.of_record(row).record() == {k: row[k] for k in OF_ROW if k not in
                                           ("subject", "load", "made")}  # fmt: skip
    assert {"torch", "jax", "onnxruntime", "llama-cpp-python", "numpy"} <= facts["versions"].keys()
    assert {"cpu", "features", "clocks", "cores", "memory_bytes"} <= facts["machine"].keys()
    assert facts["machine"]["features"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda facts: facts.pop("machine"), "machine is missing"),
        (lambda facts: facts.update(format=2), "no record of format 1, but of 2"),
        (lambda facts: facts["rows"][0].pop("load"), r"rows\[0\]\.load is missing"),
        (
            lambda facts: facts["rows"][0].update(measured="1"),
            r"rows\[0\]\.measured may not be of ",
        ),
        (lambda facts: facts["rows"].append(3), r"rows\[1\] is a int"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    made = Record.begun(tmp_path / "record.json", ("small",), 2)
    made.add("small", Row("a", 1.0, 1.0, "x", (1.0, 1.0)), Load())
    change(made.facts)
    made.path.write_text(json.dumps(made.facts), "utf-8")
    with pytest.raises(LoadError, match=said):
        read(made.path)


def test_no_rate_above_a_limit_of_the_same_minute_passes() -> None:
    taken = {"ours": 0.004, "PyTorch": 0.02}
    ours, theirs = rates(Counted(1e9), taken, PEAKS)  # 5 ms at least
    assert ours.doubt == (
        "ours: 0.25 TFLOP/s is above the limit of the same minute, 0.2 TFLOP/s by arithmetic"
    )
    assert theirs.doubt is None
    assert theirs.share == pytest.approx(0.25)
    row = Row("a", 5.0, 1.0, "x", (4.0, 6.0), rates=(ours, theirs))
    assert not row.passed
    assert row.record()["doubts"] == [ours.doubt]
    assert row.cells()[3] == "DOUBT"
    assert ours.doubt in row.cells()[5]
    assert Row("a", 5.0, 1.0, "x", (4.0, 6.0), rates=(theirs,)).passed


def test_limits_are_those_of_what_binds_first() -> None:
    (decode,) = rates(Counted(16e9, 16e9, tokens=1), {"ours": 1.0}, PEAKS)
    assert (decode.unit, decode.limit, decode.limited_by) == ("tokens/s", 1.25, "reading memory")
    (prefill,) = rates(Counted(2e12, 16e9, tokens=128), {"ours": 20.0}, PEAKS)
    assert (prefill.limit, prefill.limited_by) == (12.8, "arithmetic")
    (narrow,) = rates(Counted(1e12, narrow=True), {"ours": 1.0}, PEAKS)
    assert (narrow.limit, narrow.limited_by) == (0.8, "4 times f32's arithmetic")
    assert narrow.doubt is not None
    (unknown,) = rates(Counted(tokens=1), {"ours": 1.0}, PEAKS)
    assert unknown.limit is None
    assert unknown.doubt is None
    assert beyond_cache(1) == 0


def test_a_rate_is_beside_the_greatest_limit_of_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter((PEAKS, PEAKS._replace(flops=300e9), PEAKS))
    monkeypatch.setattr(pair, "measured_now", lambda: next(found))
    row = compare("a", lambda: np.ones(1), lambda: np.ones(1), 1.0, Counted(1.0))
    assert {rate.limit for rate in row.rates} == {0.3}
    assert next(found, None) is None


def test_limits_are_measured() -> None:
    peaks = bench.limits.measured_now(1)
    assert min(peaks.flops, peaks.memory) > 1e8


def test_what_others_take_marks_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([load.Moment(0.0, 10.0, 0.0, 1.0, 0.5), load.Moment(10.0, 30.0, 2.0, 16.0, 1.5)])
    monkeypatch.setattr(load, "now", lambda: next(moments))
    with load.watched() as found:
        pass
    assert (found.before, found.after, found.seconds) == (0.5, 1.5, 10.0)
    assert (found.others, found.stolen) == (0.5, 0.2)
    assert found.is_loaded
    row = Row("a", 1.0, 1.0, "x", (1.0, 1.0), "1 ms")
    assert table.marked(row, found)[-1] == "LOADED (0.7 cores taken); 1 ms"
    assert table.marked(row, Load(others=0.05))[-1] == "1 ms"


def test_rows_of_one_measurement_have_its_load(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter((Load(others=0.5, seconds=9.0), Load(others=3.0, seconds=0.001), Load(seconds=2.0),
                  Load(seconds=0.0), Load(seconds=0.0)))  # fmt: skip

    @contextmanager
    def watched() -> Iterator[Load]:
        yield next(found)

    monkeypatch.setattr(table, "watched", watched)
    subject.fails, path = False, tmp_path / "record.json"
    table.main(["--only", "small", "--json", str(path)])
    assert [row["load"]["others"] for row in read(path)["rows"]] == [0.5, 0.5, 0.0, 0.0]


def test_own_time_is_not_that_of_others() -> None:
    first = load.now()
    while load.now().own - first.own < 0.05:
        pass
    last = load.now()
    assert last.own - first.own <= last.busy - first.busy + 0.05
