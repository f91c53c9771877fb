"""What `luminal launch` makes of its options, and says where it cannot start anything."""

import sys

import pytest

from luminal.base.errors import InputError
from luminal.cli.main import main
from luminal.runtime.collectives import launcher
from luminal.runtime.collectives.launcher import Ranks
from luminal.runtime.collectives.membership import Fits


def test_counts_of_ranks() -> None:
    assert Ranks.parse("4") == (4, 4)
    assert Ranks.parse("2:4") == (2, 4)
    for text in ("0", "4:2", "two", "", "1:2:3"):
        with pytest.raises(InputError, match=f"-n {text}: takes a count of ranks"):
            Ranks.parse(text)


def test_as_many_ranks_as_divide_the_batches() -> None:
    anything, of_16, in_pairs = Fits(0, 1), Fits(16, 1), Fits(16, 2)
    assert Ranks(2, 8).near(7, anything) == 7
    assert Ranks(2, 8).near(7, of_16) == 4
    assert Ranks(2, 8).near(7, in_pairs) == 4  # 6 would be three parts
    assert Ranks(6, 8).near(6, of_16) == 8  # nothing below
    assert Ranks(5, 7).near(6, of_16) is None
    assert Ranks(2, 8).near(7, of_16, {4}) == 2
    assert Ranks(3, 3).first() == 3  # more than cores, where it is asked for
    assert Ranks(1, 10**6).first() < 10**6


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-n", "2"], "luminal launch: no program; name a script, or a module after -m"),
        (["-n", "0", "x.py"], "-n 0: takes a count of ranks >= 1"),
        (["-n", "2", "x.py"], "luminal launch: there is no mpiexec; install it by"),
    ],
)
def test_refusals(arguments: list[str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "mpiexec", lambda: None)
    monkeypatch.setattr(sys, "argv", ["luminal", "launch", *arguments])
    monkeypatch.setenv("LUMINAL_COLLECTIVE_TIMEOUT", "")
    with pytest.raises(SystemExit) as end:
        main()
    assert text in str(end.value.code)
