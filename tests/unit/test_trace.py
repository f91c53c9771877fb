"""Timing spans and debug printing."""

from __future__ import annotations

import pytest

from luminal import config, trace


def test_spans_nest_in_the_order_they_began() -> None:
    with trace.record() as spans:
        with trace.span("compile"):
            with trace.span("lower"):
                pass
            with trace.span("render"):
                pass
        with trace.span("load"):
            pass
    assert [(s.name, s.depth) for s in spans] == [
        ("compile", 0),
        ("lower", 1),
        ("render", 1),
        ("load", 0),
    ]
    assert 0 <= spans[1].seconds + spans[2].seconds <= spans[0].seconds
    names = [line.rstrip("0123456789. ms") for line in trace.summary(spans).splitlines()]
    assert names == ["compile", "  lower", "  render", "load"]


def test_a_span_that_raises_still_ends() -> None:
    with trace.record() as spans:
        with pytest.raises(KeyError), trace.span("outer"), trace.span("inner"):
            raise KeyError
        with trace.span("next"):
            pass
    assert [s.depth for s in spans] == [0, 1, 0]
    assert spans[0].seconds > 0


def test_without_record_nothing_is_kept() -> None:
    with trace.span("alone"):
        pass
    with trace.record() as spans:
        pass
    assert spans == []
    assert trace.summary(spans) == ""


def test_debug_prints_from_its_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(LUMINAL_DEBUG=2):
        trace.debug(2, "kernels")
        trace.debug(3, "program")
    assert capsys.readouterr() == ("", "kernels\n")
