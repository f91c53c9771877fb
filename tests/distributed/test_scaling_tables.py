"""The tables of docs/scaling.md are what the commands above them give."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from luminal.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text("utf-8")
TABLES = dict(
    re.findall(
        r"<!-- luminal (simulate \S+) --devices [\d,]+ --markdown -->\n\n((?:\|.*\n)+)", PAGE
    )
)
RUNS = re.findall(r"^\| `(\S+ .*--plan .*)` \| .* \| ([\d.]+) s \| ([\d.]+) \| .* \|$", PAGE, re.M)


def answer(command: str) -> str:
    """What `luminal` prints for a command."""
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0, result.exception
    return result.output


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "devices"),
    [
        ("7b", 8),
        *(
            pytest.param(model, devices, marks=pytest.mark.long)
            for model in ("7b", "70b", "400b-moe")
            for devices in (8, 16, 64, 256, 1024)
        ),
    ],
)
def test_a_row_of_the_page_is_what_the_command_gives(model: str, devices: int) -> None:
    command = f"simulate {model}"
    head, rule, row = answer(f"{command} --devices {devices} --markdown").splitlines()
    lines = TABLES[command].splitlines()
    assert lines[:2] == [head, rule]
    assert row in lines[2:]


@pytest.mark.parametrize(
    "number", [1, *(pytest.param(k, marks=pytest.mark.long) for k in range(10))]
)
def test_what_is_compared_with_published_runs_is_what_the_command_gives(number: int) -> None:
    command, seconds, share = RUNS[number]
    (row,) = json.loads(answer(f"simulate {command} --json"))
    assert f"{row['seconds']:.4g}" == seconds
    assert f"{row['utilization']:.3f}" == share
