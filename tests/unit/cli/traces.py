"""A trace that is written by hand, and what a page of one shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

KERNELS = (
    ("Contract", "layers.*.mlp: up (model.py:4)", [["/x/model.py", 4], ["/x/model.py", 5]]),
    ("Add", "[red]norm[/] (model.py:9)", [["/x/model.py", 9]]),
)
US = 1000


def written(path: Path, host: str = "elsewhere", first: int = 60, second: int = 20) -> Path:
    """A trace of three runs of 100 us and one with clocks, whose launches take `first` and `second`
    us after 5 us of preparing and 10 of waking two threads.
    """
    kernels = [
        {
            "label": label, "kernel": k, "trips": 1, "chunks": 4, "flops": 10**6, "bytes": 10**4,
            "origin": origin, "lines": lines,
        }
        for k, (label, origin, lines) in enumerate(KERNELS)
    ]  # fmt: skip
    start = 1000 * US
    bars = [
        [0, 0, 0, start + 15 * US, first * US, 2],
        [1, 0, 0, start + 15 * US, (first - 10) * US, 2],
        [0, 1, 0, start + (15 + first) * US, second * US, 4],
    ]
    end = 15 + first + second
    lines: list[dict[str, Any]] = [
        {"format": 1, "parent": 1, "command": ["python", "a.py"], "host": host, "luminal": "0",
         "wall": 10**18, "clock": 0},
        {"begin": "compile m for cpu", "at": 10 * US}, {"begin": "search", "at": 20 * US},
        {"end": "search", "at": 50 * US}, {"end": "compile m for cpu", "at": 110 * US},
        {"program": 1, "title": "m, cpu, fast", "dims": {"s": 3}, "kernels": kernels,
         "prologue": [], "dispatch": None},
        *({"run": 1, "at": (200 + 200 * k) * US, "ns": 100 * US} for k in range(3)),
        {"clocked": 1, "at": start, "ns": (end + 2) * US, "called": start + 5 * US,
         "returned": start + (end + 1) * US, "whole": True, "tracks": ["thread 0", "thread 1"],
         "bars": bars},
        {"memory": 1, "arena": 4096, "scratch": 0, "derived": 0, "at": start + 200 * US},
    ]  # fmt: skip
    path.write_text("".join(json.dumps({"pid": 7, "thread": 7, **line}) + "\n" for line in lines))
    return path


def document(page: Path) -> dict[str, Any]:
    """What a page of the viewer shows."""
    found = re.search(r'id="document">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))
