"""What newer releases of the peers change, told from records of both."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import peers
from bench.peers import NEWEST, PINNED, compared, said


def record(torch: str, ratio: float, peer: float, *missing: str) -> dict[str, Any]:
    sides = {"ours": {"median": 0.001}, "PyTorch": {"median": peer}, "JAX": {"median": 0.002}}
    kept = {name: each for name, each in sides.items() if name not in missing}
    rows = [{"name": "a", "unit": "x", "measured": ratio, "sides": kept},
            {"name": "memory", "unit": "MiB", "measured": 1.0, "sides": {}},
            {"name": "b", "reason": "no data"}]  # fmt: skip
    return {"versions": {"torch": torch, "numpy": "2.4"}, "rows": rows}


def test_versions_times_and_ratios_that_changed_are_told() -> None:
    pinned = [record("2.13", ratio, peer) for ratio, peer in ((2.0, 0.002), (2.2, 0.0022))]
    newest = [record("2.14", ratio, peer) for ratio, peer in ((1.0, 0.001), (1.1, 0.0011))]
    found = compared(pinned, newest)
    assert found.versions == {"torch": ("2.13", "2.14")}
    assert found.ratios.keys() == {"a"}
    assert found.ratios["a"] == pytest.approx((2.1, 1.05))
    assert found.sides["a", "PyTorch"] == pytest.approx((0.0021, 0.00105))
    assert found.failures == []
    text = "\n".join(said(found))
    assert "torch: 2.13 -> 2.14" in text
    assert "a: our ratio 2.10 -> 1.05" in text
    (line,) = (line for line in text.splitlines() if "PyTorch" in line)
    assert line.split()[-2:] == ["0.50", "*"]
    assert json.loads(json.dumps(found.record()))["sides"][1][:2] == ["a", "PyTorch"]


def test_what_went_away_is_a_failure() -> None:
    found = compared([record("2.13", 2.0, 0.002)], [record("2.13", 2.0, 0.002, "JAX")])
    assert found.versions == {}
    assert found.failures == ["a: JAX is missing with the newest releases"]
    assert compared([record("2.13", 2.0, 0.002)], []).failures == [
        "a: no row with the newest releases"
    ]


def test_a_release_that_fails_is_named_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def measured(python: str, subject: str) -> Mapping[str, Any] | str:
        asked.append(NEWEST if python == "new" else PINNED)
        if python == "new" and subject == "blocks":
            return "status 1: AttributeError: gone"
        return record("2.13" if python == sys.executable else "2.14", 2.0, 0.002)

    failed = ["jax did not install: status 1: no wheel"]
    monkeypatch.setattr(peers, "installed", lambda place, packages: ("new", list(failed)))
    monkeypatch.setattr(peers, "measured", measured)
    out = tmp_path / "found.json"
    assert peers.main(["--only", "matmul", "blocks", "--out", str(out)]) == 1
    assert asked == [PINNED, PINNED, NEWEST, NEWEST, NEWEST, NEWEST, PINNED, PINNED]
    text = capsys.readouterr().out
    assert "failed: jax did not install: status 1: no wheel" in text
    assert "failed: blocks with the newest releases: status 1: AttributeError: gone" in text
    assert json.loads(out.read_text("utf-8"))["versions"] == {"torch": ["2.13", "2.14"]}


PIP = """#!/bin/sh
plan='{"install": [{"metadata": {"name": "onnx"}}]}'
cuda='{"install": [{"metadata": {"name": "nvidia-nccl"}}, {"metadata": {"name": "nvidia-cufft"}}]}'
case $* in
  *torch*--report*) plan=$cuda;;
  *jax*--report*) echo a; echo 'no wheel' >&2; exit 3;;
esac
case $* in
  *--report*) for last; do :; done; echo "$plan" > "$last";;
  *numpy) exec truncate -s 700M FOLDER/large;;
  *) echo onnx >> FOLDER/done;;
esac
"""
"""What answers as pip: with plans, and by installing."""


def test_an_installation_that_fails_says_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(PIP.replace("FOLDER", str(tmp_path)))
    python.chmod(0o755)
    found, failures = peers.installed(tmp_path, ["onnx", "jax", "numpy", "torch"])
    assert found == python
    assert failures == [
        "jax did not install: status 3: no wheel",
        "numpy did not install: status -25: it said nothing",  # SIGXFSZ: a file of 700 MB
        "torch did not install: it would bring nvidia-nccl and 1 more for a GPU, gigabytes that no "
        "row uses; set PIP_INDEX_URL to an index of builds for CPUs",
    ]
    assert (tmp_path / "done").read_text("utf-8").split() == ["onnx"]
    monkeypatch.setattr(peers, "RUN_LIMIT", 0.01)
    python.write_text("#!/bin/sh\nexec sleep 5\n")
    assert peers.measured(str(python), "matmul") == "took more than 0 s"
