"""Reports: text, JSON and the HTML page, from made-up times and from a profile."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import luminal as lm
from luminal.base import tracing
from luminal.runtime.report import (
    Best,
    Change,
    CompileSummary,
    Dispatched,
    Foresight,
    KernelRow,
    LibraryPrice,
    Rejected,
    Report,
    RuleUse,
    SearchSummary,
    SideSummary,
    Trial,
    search_of,
)
from luminal.runtime.report_text import amount, duration
from luminal.runtime.roofline import Peaks

PEAKS = Peaks(flops=100e9, memory=10e9, cache=50e9, cache_bytes=1000)
SEARCH = SearchSummary(
    mode="optimal",
    seed=7,
    candidates=1234,
    kernels_built=321,
    rejected=(Rejected("does <not> & will not compile", 12, '"k3"'), Rejected("slow", 700, "k9")),
    history=(Best(0.5, 0, 7e-4), Best(2.0, 600, 5e-4), Best(30.0, 1234, 5e-4)),
    fast_seconds=7e-4,
    best_seconds=5e-4,
    decision="found 1.40x over fast",
    structure=SideSummary(234, 12.0),
    schedules=SideSummary(1000, 15.0),
    libraries=(LibraryPrice("Contract", "blas", 2e-5, 3e-5),),
    dispatches=(Dispatched("one", 5e-4), Dispatched("graph", 6e-4), Dispatched("list", 9e-4)),
    rules=(RuleUse("mul-one", "exact", 3, 4, 0.001), RuleUse("sum-over", "rounding", 9, 50, 0.02)),
)


def made(search: SearchSummary | None = SEARCH) -> Report:
    kernels = (
        KernelRow("Contract", 0, 1, 4, 2_000_000, 800, origin="<i>: up (a&.py:3)"),
        KernelRow("Sum<b>&", 1, 10, 1, 5_000, 5_000, distinct=500),
        KernelRow("Copy", 2, 1, 1, 0, 40_000),
        KernelRow("Empty", 3, 0, 0, 0, 0),
    )
    prologue = (KernelRow("Pack", 4, 1, 1, 0, 64),)
    compiled = CompileSummary({"lower": 0.5, "compile": 1.5}, search)
    report = Report({"s": 3}, kernels, prologue, compiled)
    return report.timed([40e-6, 1e-6, 8e-6, 0.0], 50e-6, PEAKS)


def test_the_roofline_takes_the_dearest_of_arithmetic_and_bytes() -> None:
    assert PEAKS.limit(2_000_000, 800) == ("compute", 20e-6)
    assert PEAKS.limit(5, 500) == ("cache", 500 / 50e9)
    assert PEAKS.limit(5, 5000) == ("memory", 5000 / 10e9)
    assert PEAKS.limit(5, 5000, distinct=500) == ("cache", 5000 / 50e9)  # ten trips move the same
    assert PEAKS.limit(5, 5000, distinct=4000) == ("memory", 5000 / 10e9)  # each has its own


def test_rows_know_their_share_and_their_distance_to_the_roof() -> None:
    report = made()
    assert report.seconds == pytest.approx(49e-6)
    assert [report.share(row) for row in report.kernels] == pytest.approx(
        [40 / 49, 1 / 49, 8 / 49, 0]
    )
    roofs = [row.roofline(report.peaks) for row in report.kernels]
    assert roofs[:3] == pytest.approx([0.5, 0.1, 0.5])
    assert roofs[3] is None  # no work, no time


def test_peaks_are_not_below_what_a_launch_reached() -> None:
    copy = KernelRow("Copy", 0, 1, 1, 0, 40_000)  # 4 us at 10 GB/s
    faster = Report({}, (copy,)).timed([3.6e-6], 4e-6, PEAKS)
    assert faster.peaks is not None
    assert faster.peaks.memory == pytest.approx(PEAKS.memory / 0.9)
    assert faster.kernels[0].roofline(faster.peaks) == pytest.approx(1.0)
    assert not faster.doubts


def test_impossible_figures_are_said_and_not_printed() -> None:
    rows = (KernelRow("Gather", 0, 1, 1, 0, 40_000), KernelRow("Copy", 1, 1, 1, 0, 40_000))
    skips = Report({}, rows).timed([0.1e-6, 8e-6], 9e-6, PEAKS)
    assert skips.peaks == PEAKS
    assert [row.roofline(PEAKS) for row in skips.kernels] == [None, pytest.approx(0.5)]
    text = str(skips)
    assert "4000%" not in text
    assert "\n! Gather: less time than the counted work can take" in text
    assert json.loads(skips.to_json())["doubts"] == skips.doubts
    slower = Report({}, rows).timed([400e-3, 367e-3], 287e-3, PEAKS)
    text = str(slower)
    assert "767" not in text
    assert "\n! the launches, timed one by one, add up to more than a run takes" in text


def test_text_shows_times_compile_and_search() -> None:
    text = str(made())
    assert "4 launches" in text.splitlines()[0]
    assert "a run takes 50 us, its launches 49 us" in text
    assert re.search(r"0  Contract .* 40\.00 +81\.6% +50%  compute", text)
    assert "compiled in 2 s: compile 1.5 s, lower 500 ms" in text
    assert "optimal, seed 7: searched 30 s, 1,234 candidates, 321 kernels built" in text
    assert "of these structure 234 in 12 s, schedules 1,000 in 15 s" in text
    assert "fast 700 us, best 500 us: found 1.40x over fast" in text
    assert re.search(r"700  slow +k9", text)
    assert re.search(r"sum-over  rounding +9 +50", text)


def test_text_without_a_profile_is_short() -> None:
    text = str(Report({}, made().kernels))
    assert "roofline" not in text
    assert "compiled" not in text
    assert str(Report({}, made().kernels[:1])).startswith("1 launch,")


def test_json_has_stable_keys() -> None:
    facts = json.loads(made().to_json())
    assert list(facts) == [
        "format", "dims", "flops", "bytes", "run_seconds", "peaks", "kernels", "prologue",
        "compile_seconds", "search", "doubts", "gap", "dispatch", "predicted", "tasks",
    ]  # fmt: skip
    assert set(facts["kernels"][0]) == {
        "label", "kernel", "trips", "chunks", "flops", "bytes", "seconds", "share", "bound",
        "roofline", "origin", "lines", "distinct",
    }  # fmt: skip
    assert facts["kernels"][1]["bound"] == "cache"
    assert facts["kernels"][2]["seconds"] == 8e-6
    assert facts["peaks"]["memory"] == 10e9
    assert facts["search"]["rejected"][1] == {"reason": "slow", "candidates": 700, "example": "k9"}
    assert facts["search"]["history"][-1]["best_seconds"] == 5e-4
    assert facts["search"]["rules"][0]["kind"] == "exact"
    assert facts["search"]["schedules"] == {"candidates": 1000, "seconds": 15.0}
    assert facts["search"]["structure"] == {"candidates": 234, "seconds": 12.0}
    assert json.loads(made(None).to_json())["search"] is None


def test_a_search_is_read_back_from_its_json() -> None:
    search = replace(
        SEARCH,
        trials=(Trial(0.5, "structure", "Sum stored", 4e-4, 5e-4, "kept"),),
        changes=(Change("Sum is stored", 1.25), Change("and another")),
        foresight=Foresight(3, 1, 0.5, 0.6, 7),
    )
    facts = json.loads(made(search).to_json())["search"]
    assert search_of(facts) == search
    assert facts["changes"][0] == {"text": "Sum is stored", "without": 1.25}
    assert facts["foresight"]["known"] == 7
    with pytest.raises(KeyError):
        search_of({"mode": "optimal"})
    assert "- Sum is stored (without it 1.25x the time)" in str(made(search)).splitlines()
    assert "- and another" in str(made(search)).splitlines()


def test_what_a_library_takes_is_said() -> None:
    report, line = made(), "Contract: blas 20 us, our own kernel 30 us (1.50x by it)"
    assert line in str(report).splitlines()
    assert json.loads(report.to_json())["search"]["libraries"][0]["library"] == "blas"


def test_units() -> None:
    seconds = (0.0, 3e-9, 1.5e-6, 0.0321, 12.0)
    assert [duration(s) for s in seconds] == ["0", "3 ns", "1.5 us", "32.1 ms", "12 s"]
    assert [amount(n, "B") for n in (7, 2e3, 3.21e9)] == ["7 B", "2 kB", "3.21 GB"]


def test_self_seconds_add_up() -> None:
    spans = [tracing.Span("a", 0, 5.0), tracing.Span("b", 1, 2.0), tracing.Span("c", 2, 0.5)]
    spans += [tracing.Span("b", 1, 1.0), tracing.Span("d", 0, 1.0)]
    assert tracing.self_seconds(spans) == {"a": 2.0, "b": 2.5, "c": 0.5, "d": 1.0}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_profile_of_an_executable(backend: str) -> None:
    cx = lm.Graph()
    s = cx.dim("s", 1, 64)
    x = cx.tensor((s, 16), name="x")
    w = cx.weight((16, 16), name="w")
    count = lm.State((1,), init=np.zeros(1, np.float32), name="count")
    cx.assign(count, cx.read(count) + 1)
    (x @ w).softmax(-1).output("y")
    exe = lm.compile(cx, backend)
    assert exe.report().seconds is None
    assert ("build" in exe.report().compile_seconds) == (backend == "cpu")
    given = {"x": np.ones((8, 16), np.float32), "w": np.ones((16, 16), np.float32)}
    report = exe.profile(given, runs=3)
    assert report.dims == {"s": 8}
    assert report.seconds is not None
    assert report.run_seconds is not None
    assert all(row.seconds is not None and row.seconds > 0 for row in report.kernels)
    assert count.numpy()[0] == 0
    assert exe.report() == report
    assert exe.report({"s": 9}).seconds is None
    assert (report.peaks is not None) == (backend == "cpu")
    exe(given)
    assert count.numpy()[0] == 1
    with pytest.raises(lm.InputError, match="profile: runs = 0; takes an int >= 1"):
        exe.profile(given, runs=0)


def test_what_trips_share_counts_once() -> None:
    """The matrix of a scan is the same for each of its trips; layers have weights of their own."""
    cx = lm.Graph()
    x = cx.tensor((48, 64), name="x")
    w = cx.weight((64, 64), name="w")
    h, _ = lm.scan(lambda c, row: ((c @ w + row).tanh(), c), cx.zeros(64), x)
    for k in range(12):
        h = (h @ cx.weight((64, 64), name=f"w{k}")).tanh()
    h.output("y")
    products = [row for row in lm.compile(cx).report().kernels if row.flops > 64 * 64 * 12]
    distinct = {row.trips: (row.distinct or 0, row.bytes) for row in products}
    matrix = 64 * 64 * 4
    assert distinct[48][1] > 48 * matrix
    assert matrix <= distinct[48][0] < 2 * matrix
    assert 12 * matrix <= distinct[12][0] <= distinct[12][1] < 13 * matrix


def test_three_digits_never_round_up_to_a_thousand() -> None:
    for digits in (0.9994, 0.9995, 0.9996, 0.99999, 1.0, 9.996, 99.96, 999.4, 999.5, 999.6):
        for power in range(-9, 1):
            told = duration(digits * 10.0**power)
            assert "e+" not in told
            assert power == 0 or not told.startswith("1,000")  # of seconds there is no more
        for power in range(-9, 13):
            told = amount(digits * 10.0**power, "B")
            assert "e" not in told
            # amounts are written in three digits
            assert power > -3 or float(told[:-2]) == pytest.approx(digits * 10.0**power, rel=5e-3)
    assert duration(0.9996) == "1 s"
    assert duration(99960e-9) == "100 us"
    assert amount(999.7e9, "FLOP/s") == "1 TFLOP/s"
    assert amount(12_345e12, "B") == "12,345 TB"
