"""Timing spans and debug printing."""

from __future__ import annotations

import pytest

from luminal.base import config, tracing


def test_spans_nest_in_the_order_they_began() -> None:
    with tracing.record() as spans:
        with tracing.span("compile"):
            with tracing.span("lower"):
                pass
            with tracing.span("render"):
                pass
        with tracing.span("load"):
            pass
    assert [(s.name, s.depth) for s in spans] == [
        ("compile", 0),
        ("lower", 1),
        ("render", 1),
        ("load", 0),
    ]
    assert 0 <= spans[1].seconds + spans[2].seconds <= spans[0].seconds
    names = [line.rstrip("0123456789. ms") for line in tracing.summary(spans).splitlines()]
    assert names == ["compile", "  lower", "  render", "load"]


def test_a_span_that_raises_still_ends() -> None:
    with tracing.record() as spans:
        with pytest.raises(KeyError), tracing.span("outer"), tracing.span("inner"):
            raise KeyError
        with tracing.span("next"):
            pass
    assert [s.depth for s in spans] == [0, 1, 0]
    assert spans[0].seconds > 0


def test_without_record_nothing_is_kept() -> None:
    with tracing.span("alone"):
        pass
    with tracing.record() as spans:
        pass
    assert spans == []
    assert tracing.summary(spans) == ""


def test_debug_prints_from_its_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(LUMINAL_DEBUG=2):
        tracing.debug(2, "kernels")
        tracing.debug(3, "program")
    assert capsys.readouterr() == ("", "kernels\n")
