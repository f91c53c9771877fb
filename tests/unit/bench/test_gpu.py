"""`python -m bench gpu`: what fails costs one row, what is done is kept, what is wrong is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import worker
from bench.gpu.command import RESULTS, Session, Worker, earlier, main, options, table
from bench.gpu.programs import PROGRAMS, Work
from luminal.backends.registry import BACKENDS
from luminal.base import config
from luminal.base.errors import InputError
from tests.long_share import mostly_long

ROWS = ("sum of rows 4096^2 f32", "gelu 4096^2 f32", "16 x 4096 x 4096 bf16")
STUBBORN = """
import json, os, sys, time
for line in sys.stdin:
    what = json.loads(line)["what"]
    if what == "hang":
        time.sleep(60)
    if what == "die":
        os._exit(3)
    print(json.dumps({"pid": os.getpid(), "what": what}), flush=True)
"""
WITHOUT = """
import sys
for name in ("egglog", "torch"):
    sys.modules[name] = None
from bench.gpu.worker import row
print(row("interpreted", "sum of rows 4096^2 f32", 0.0, True, True)["error"])
"""


@pytest.fixture
def stubborn() -> Any:
    """A worker whose process hangs, or dies, where it is asked to."""
    held = Worker((sys.executable, "-u", "-c", STUBBORN))
    yield held
    held.close()


def test_a_process_that_hangs_is_ended_and_the_next_row_gets_another(stubborn: Worker) -> None:
    first = stubborn.ask({"what": "row"}, 20.0)
    assert stubborn.ask({"what": "again"}, 20.0)["pid"] == first["pid"]
    assert stubborn.ask({"what": "hang"}, 0.2) == {"failed": "took more than 0 s and was ended"}
    assert stubborn.ask({"what": "row"}, 20.0)["pid"] != first["pid"]


def test_a_process_that_dies_says_with_what_status(stubborn: Worker) -> None:
    assert stubborn.ask({"what": "die"}, 20.0) == {"failed": "its process ended with status 3"}
    assert stubborn.ask({"what": "row"}, 20.0)["what"] == "row"


@pytest.mark.long
def test_it_needs_neither_egglog_nor_pytorch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        check=False,
        env=config.child_environment(),
    )
    assert not done.returncode, done.stderr
    assert float(done.stdout) < 1e-5


@pytest.mark.parametrize("name", PROGRAMS)
def test_small_programs_are_right(name: str) -> None:
    """By the CPU's kernels, against the reference."""
    if "ResNet" in name:
        pytest.skip("the reference takes minutes; the device's row compares it with PyTorch")
    assert worker.row("cpu", name, 0.0, True, False)["launches"] > 0


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    work = PROGRAMS[ROWS[0]](True)
    doubled = Work(work.inputs, lambda x: {"y": 2 * x.sum(-1)}, work.torch, work.bound)
    monkeypatch.setattr(worker, "_reference", lambda *_: _results(work))
    monkeypatch.setitem(PROGRAMS, ROWS[0], lambda small: doubled)
    with pytest.raises(AssertionError, match=r"wrong: 1 of the norm, 0\.001 is taken"):
        worker.row("cpu", ROWS[0], 0.0, True, False)


def _results(work: Work) -> list[Any]:
    return [next(iter(work.inputs.values())).sum(-1)]


@pytest.mark.long
def test_what_is_measured_is_kept_until_the_sources_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = BACKENDS["opencl"].unavailable()
    if reason is not None:
        pytest.skip(reason)
    pattern = "|".join(map(str, ROWS)).replace("^", r"\^")
    arguments = ["--device", "opencl", "--small", "--seconds", "0", "--out", str(tmp_path)]
    assert main([*arguments, "--only", pattern]) == 0
    place = tmp_path / RESULTS
    first = json.loads(place.read_text("utf-8"))
    assert {*first} == {"facts", *ROWS}
    assert len([*table(first)]) == 1 + len(ROWS)
    capsys.readouterr()
    assert main([*arguments, "--only", pattern]) == 0
    assert "ours" not in capsys.readouterr().out  # nothing was measured anew
    first["facts"]["sources"] = "others"
    place.write_text(json.dumps(first), "utf-8")
    assert main([*arguments, "--only", ROWS[0].replace("^", r"\^")]) == 0
    assert "sources changed" in capsys.readouterr().out
    assert {*json.loads(place.read_text("utf-8"))} == {"facts", ROWS[0]}
    assert len([*tmp_path.glob("results-*.json")]) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "\xff", "[]", '"facts"', '{"facts": 3}', '{"facts": {}}',
             '{"facts": {"small": true}, "x": []}', '{"facts": {"small": true}, "x": {"us": 3}}',
             '{"facts": {"small": true}, "x": {"us": {"ours": []}}}',
             '{"facts": {"small": true}, "decode": {"ms": ["x"], "launches": 1}}'],
)  # fmt: skip
def test_damaged_results_are_kept_aside(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / RESULTS).write_bytes(text.encode("latin-1"))
    command = options("--out", str(tmp_path), "--device", "cpu")
    assert earlier(command, {"device": "cpu"}) == {}
    assert "results.json is damaged" in capsys.readouterr().out
    (aside,) = tmp_path.iterdir()
    assert aside.read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--only", "f32("), "'f32(' is no pattern: missing ), unterminated subpattern"),
        (("--only", "f33"), "no step matches 'f33'; there are ceilings, softmax"),
        (("--minutes", "-1"), "'-1' is no time; takes a number from 0 on"),
        (("--minutes", "nan"), "'nan' is no time"),
        (("--seconds", "soon"), "'soon' is no time"),
    ],
)
def test_bad_options_are_refused(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        options("--out", "results", *arguments)
    assert complaint in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["--device", "cpu", "--out", str(out)]) == 2
        complaint = capsys.readouterr().err
        assert complaint.startswith(f"bench gpu: --out {out}: ")
        assert complaint.endswith("; takes a folder that can be written\n")
    (tmp_path / RESULTS).mkdir()  # found when the first step is kept
    session = Session(options("--out", str(tmp_path)), 0.0, {})
    with pytest.raises(InputError, match="Is a directory"):
        session.keep("facts", {"small": True})


def test_a_device_that_is_absent_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if BACKENDS["metal"].unavailable() is None:
        pytest.skip("there is a Metal device here")
    assert main(["--device", "metal", "--out", str(tmp_path)]) == 2
    assert "backend 'metal' is not usable: Metal is a part of macOS" in capsys.readouterr().err


@pytest.mark.long
def test_a_chip_that_only_compiles_is_refused_before_the_first_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--device", "metal:apple8", "--out", str(tmp_path)]) == 2
    assert "metal:apple8: this chip is not here" in capsys.readouterr().err


@pytest.mark.parametrize("name", mostly_long([*PROGRAMS], 12))
def test_pytorch_computes_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peers of the rows, on the CPU, since a card is seldom here: a row compares results."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(worker, "GPU", "cpu")
    monkeypatch.setattr(worker, "pytorch", lambda: torch)
    monkeypatch.setattr(worker, "timer", lambda _, call: lambda: float(call() is None))
    monkeypatch.setattr(torch, "compile", lambda function: function)
    with torch.no_grad():
        answer = worker.row("cpu", name, 0.0, True, True)
    assert {*answer["us"]} == {"ours", "eager", "torch.compile"}
    assert answer["error"] is not None
