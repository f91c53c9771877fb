"""`python -m bench.peers`: what the newest releases of the others change, once a quarter.

An environment of its own stands before the one that this runs in, from which it has all that it
does not hold itself. It gets the newest release of each peer, one after the other: what does not
install, or would bring libraries of CUDA, is named and left out. Then a few rows run with the
pinned releases and with the newest, in turns. The answer says which versions changed, how the times
of each side and our ratios moved, and what failed; it is printed and written as JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.machine import ROOT
from bench.record import read
from bench.row import OURS
from bench.table import SUBJECTS
from luminal.base import config
from luminal.base.errors import LoadError
from luminal.runtime.report_text import table_lines

PEERS = ("numpy", "torch", "transformers", "onnx", "onnxruntime", "jax", "llama-cpp-python")
ROWS = ("matmul", "attention", "blocks", "convolution")
FOLDER = ROOT / "build/peers"
PINNED, NEWEST = "pinned", "newest"
INSTALL_LIMIT, RUN_LIMIT = 1200.0, 3600.0  # seconds
LARGEST = (
    600 << 20
)  # bytes of a file: PyTorch's library for CPUs has 440 MB, its wheel for CUDA 900
GPU = "nvidia-"  # what the packages are called that are gigabytes, and that no row uses
HEAD = ("what", "side", "pinned, ms", "newest, ms", "newest takes")
NOTED = 0.1  # a side's time that moves by less says nothing


@dataclass(slots=True)
class Findings:
    """What changed: versions by package, rows by name and side, ratios, failures in words."""

    versions: dict[str, tuple[str, str]] = field(default_factory=dict)
    sides: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    ratios: dict[str, tuple[float, float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """The findings for JSON."""
        return {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": self.versions,
            "sides": [[*key, *times] for key, times in self.sides.items()],
            "ratios": self.ratios,
            "failures": self.failures,
        }


def main(arguments: list[str]) -> int:
    """Installs, measures in turns, says what changed; 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(ROWS))
    parser.add_argument("--packages", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--environment", type=Path, default=FOLDER / "environment")
    parser.add_argument("--out", type=Path, help="the findings as JSON; in build/peers by default")
    options = parser.parse_args(arguments)
    python, failures = installed(options.environment, options.packages)
    pythons = {PINNED: sys.executable, NEWEST: str(python)}
    records: dict[str, list[Mapping[str, Any]]] = {PINNED: [], NEWEST: []}
    for turn in range(options.rounds):
        for name in (PINNED, NEWEST) if turn % 2 == 0 else (NEWEST, PINNED):
            for subject in options.only:
                found = measured(pythons[name], subject)
                if isinstance(found, str):
                    failures.append(f"{subject} with the {name} releases: {found}")
                else:
                    records[name].append(found)
    findings = compared(records[PINNED], records[NEWEST], failures)
    print("\n".join(said(findings)))
    out = options.out or FOLDER / f"{findings.record()['made'].replace(':', '')}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(findings.record(), indent=1) + "\n", "utf-8")
    print(f"wrote {out}")
    return 1 if failures else 0


def installed(place: Path, packages: Sequence[str]) -> tuple[Path, list[str]]:
    """The Python of an environment with the newest releases, and what did not install."""
    python = place / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        (folder,) = place.glob("lib/python*/site-packages")
        (folder / "pinned.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    failures = []
    for package in packages:
        install = [str(python), "-m", "pip", "install", "--quiet", "--upgrade", package]
        if reason := _refused(install) or _failure(install, INSTALL_LIMIT, LARGEST):
            failures.append(f"{package} did not install: {reason}")
    return python, failures


def _refused(install: Sequence[str]) -> str:
    """Why a release is not installed, by the plan of what it would bring; empty where it may be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        if reason := _failure(
            [*install, "--dry-run", "--report", str(path)], INSTALL_LIMIT, LARGEST
        ):
            return reason
        plan = json.loads(path.read_text("utf-8"))["install"]
    names = [each["metadata"]["name"] for each in plan]
    gpu = [name for name in names if name.startswith(GPU)]
    if not gpu:
        return ""
    return (
        f"it would bring {gpu[0]} and {len(gpu) - 1} more for a GPU, gigabytes that no row uses; "
        "set PIP_INDEX_URL to an index of builds for CPUs"
    )


def measured(python: str, subject: str) -> Mapping[str, Any] | str:
    """The record of a subject's quick rows; why there is none, if so."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        command = [python, "-m", "bench", "--quick", "--only", subject, "--json", str(path)]
        if reason := _failure(command, RUN_LIMIT):
            return reason
        try:
            return read(path)
        except LoadError as error:
            return str(error)


def compared(
    pinned: Sequence[Mapping[str, Any]],
    newest: Sequence[Mapping[str, Any]],
    failures: Iterable[str] = (),
) -> Findings:
    """The findings of these records: medians over them of each side's time and of our ratios."""
    findings = Findings(failures=list(failures))
    both = [_versions(records) for records in (pinned, newest)]
    for package in dict.fromkeys((*both[0], *both[1])):
        before, after = (versions.get(package, "not told") for versions in both)
        if before != after:
            findings.versions[package] = before, after
    old_rows, new_rows = _rows(pinned), _rows(newest)
    for name, old in old_rows.items():
        if name not in new_rows:
            findings.failures.append(f"{name}: no row with the newest releases")
            continue
        new = new_rows[name]
        findings.ratios[name] = _median(old, "measured"), _median(new, "measured")
        for side in old[0]["sides"]:
            if all(side in row["sides"] for row in (*old, *new)):
                times = (_side(old, side), _side(new, side))
                findings.sides[name, side] = times
            else:
                findings.failures.append(f"{name}: {side} is missing with the newest releases")
    return findings


def said(findings: Findings) -> list[str]:
    """The findings in lines."""
    lines = [f"{name}: {old} -> {new}" for name, (old, new) in findings.versions.items()]
    lines = lines or ["no version changed"]
    table: list[tuple[str, ...]] = [HEAD]
    for (name, side), (old, new) in findings.sides.items():
        cells = (name, side, f"{old * 1e3:.3g}", f"{new * 1e3:.3g}")
        noted = "" if abs(new / old - 1) < NOTED else " *"
        table.append((*cells, f"{new / old:.2f}{noted}"))
    lines += ["", *table_lines(table), ""]
    lines += [
        f"{name}: our ratio {old:.2f} -> {new:.2f}"
        for name, (old, new) in findings.ratios.items()
        if abs(new / old - 1) >= NOTED
    ]
    return [*lines, *(f"failed: {reason}" for reason in findings.failures)]


def _versions(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return dict(records[0]["versions"]) if records else {}


def _rows(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The rows that are ratios, by name: one of each record that has it."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in (row for record in records for row in record["rows"]):
        if row.get("unit") == "x" and OURS in row["sides"]:
            found.setdefault(row["name"], []).append(row)
    return found


def _median(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(statistics.median(row[key] for row in rows))


def _side(rows: Sequence[Mapping[str, Any]], side: str) -> float:
    return float(statistics.median(row["sides"][side]["median"] for row in rows))


def _failure(command: Sequence[str], limit: float, largest: int | None = None) -> str:
    """The last line that a command said where it failed; empty where it did not. `largest`: the
    most bytes of a file that it may write.
    """

    def bounded() -> None:
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit,
            env=config.child_environment() | {"PYTHONPATH": str(ROOT / "src")},
            preexec_fn=bounded,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {limit:.0f} s"
    lines = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
    return "" if done.returncode == 0 else f"status {done.returncode}: {lines[-1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
