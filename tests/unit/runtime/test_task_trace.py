"""Traces of persistent kernels: from the words that groups write to rows, a line and a drawing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from luminal.program.task_list import Stamped
from luminal.runtime import task_trace
from luminal.runtime.report import KernelRow, Report

ROWS = (KernelRow("norm", 4, 1, 2, 0, 0), KernelRow("", 7, 2, 2, 0, 0))
WORDS = np.array(
    [
        [[5, 1000, 1000, 1400], [6, 1010, 1010, 1500]],
        [[5, 1410, 1510, 2000], [6, 1510, 1510, 1910]],
    ]
)
LATER = np.array([[[6, 2100, 2100, 2200], [5, 2100, 2100, 2200]]])  # groups are dealt anew
CALLS = (Stamped([0, 1], WORDS), Stamped([1], LATER))


def test_words_become_rows() -> None:
    tasks = task_trace.tasks(CALLS, ROWS, tick=1e-9)
    assert [(row.task, row.label, row.kernel, row.group, row.unit) for row in tasks] == [
        (0, "norm", 4, 0, 5), (0, "norm", 4, 1, 6), (1, "", 7, 0, 5), (1, "", 7, 1, 6),
        (2, "", 7, 0, 6), (2, "", 7, 1, 5),
    ]  # fmt: skip
    assert np.allclose(tasks[2][5:8], [410e-9, 510e-9, 1000e-9])
    assert task_trace.tasks([], ROWS, 1.0) == ()


def test_a_line_says_how_much_of_the_time_is_work() -> None:
    tasks = task_trace.tasks(CALLS[:1], ROWS, tick=1e-9)
    line = task_trace.summary(tasks)
    assert line.startswith("2 tasks by 2 groups on 2 units in 1 us: groups are at work for 89% of")
    assert line.endswith("wait for 5%")
    report = Report({}, ROWS, tasks=tasks)
    assert line in str(report).splitlines()
    assert json.loads(report.to_json())["tasks"][0]["label"] == "norm"


def test_bars_are_named_by_where_tasks_come_from() -> None:
    rows = (replace(ROWS[0], origin="layers.*: norm (model.py:4)"), ROWS[1])
    tasks = task_trace.tasks(CALLS, rows, tick=1e-8)
    events = json.loads(Report({}, rows, tasks=tasks).trace())["traceEvents"]
    bars = {event["name"] for event in events if event["ph"] == "X"}
    assert bars == {"wait", "layers.*: norm (model.py:4)", "k7"}


def test_perfetto_gets_a_bar_for_each_task_and_each_wait(tmp_path: Path) -> None:
    tasks = task_trace.tasks(CALLS, ROWS, tick=1e-8)
    text = Report({}, ROWS, tasks=tasks).trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == text
    events = json.loads(text)["traceEvents"]
    bars = [event for event in events if event["ph"] == "X"]
    assert len(bars) == 2 * len(tasks)
    assert {bar["name"] for bar in bars} == {"wait", "norm", "k7"}
    wait = next(b for b in bars if b["args"]["task"] == 1 and b["cat"] == "wait" and b["tid"] == 0)
    assert np.allclose([wait["ts"], wait["dur"]], [4.1, 1.0])
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {0: "group 0, unit 5", 1: "group 1, unit 6"}
