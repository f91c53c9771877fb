"""`luminal bench` of decoders: what is timed, peers in processes of their own, extrapolation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from luminal.base.errors import InputError, LuminalError
from luminal.cli import bench_decoder
from luminal.cli.main import app
from luminal.models import shapes
from luminal.models.architectures import records
from luminal.models.peer import Peer
from luminal.models.shapes import SHAPES, shape
from luminal.models.speed import Interval, Speed, Work, extrapolated

TINY = {
    **SHAPES["llama"]["1b"],
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SHAPES", {"llama": {"tiny": TINY}})


def bench(*options: str) -> Any:
    asked = ["bench", "--blocks", "1", "--prompt", "8", *options]
    return CliRunner().invoke(app, asked, catch_exceptions=False)


@pytest.mark.long
def test_a_shape_as_json(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peer, "installed", staticmethod(lambda name: False))
    facts = json.loads(bench("--arch", "llama", "--shape", "tiny", "--json").stdout)
    assert (facts["model"], facts["layers"]) == ("llama tiny", 2)
    layer = 32 * (32 + 2 * 16 + 32 + 3 * 48) + 2 * 32
    assert facts["parameters"] == 64 * 32 + 2 * layer + 32
    assert facts["memory"]["weights"] == 2 * facts["parameters"]  # of 16 bits
    assert facts["memory"]["caches"] == 2 * 2 * 2 * 9 * 8 * 4
    assert [row["work"] for row in facts["rows"]] == ["prefill 8", "decode at 8"]
    for row in facts["rows"]:
        assert row["tokens_per_second"] == row["tokens"] / row["seconds"]
        assert row["whole"]["layers"] == 6
        if row["whole"]["seconds"] is not None:
            low, high = row["whole"]["seconds_between"]
            assert row["seconds"] < low <= row["whole"]["seconds"] <= high <= 1.5 * low
        assert row["roofline"] is None or 0 < row["roofline"] < 1.3


def test_facts_are_printed_as_json_where_that_is_asked(
    tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_decoder, "_of_shape", lambda asked: {"model": asked.shape})
    printed = bench("--arch", "llama", "--shape", "tiny", "--json").stdout
    assert json.loads(printed) == {"model": "tiny"}


@pytest.mark.long
def test_a_table_beside_transformers(tiny: None) -> None:
    printed = bench("--arch", "llama", "--shape", "tiny").stdout
    for word in ("transformers", "prefill 8", "decode at 8", "GFLOP/s", "all 6"):
        assert word in printed


def test_prompts_are_shorter_than_the_context(tiny: None) -> None:
    asked = ["bench", "--arch", "llama", "--shape", "tiny", "--prompt", "1000000"]
    with pytest.raises(InputError, match=r"of 1000000 tokens or more; .* of 8192: give a shorter"):
        CliRunner().invoke(app, asked, catch_exceptions=False)


@pytest.mark.long
def test_a_folder_beside_transformers(shared_data: Path) -> None:
    printed = bench("--model", str(shared_data / "tinystories-656k")).stdout
    assert "transformers" in printed


def test_seconds_of_all_layers() -> None:
    work = Work(1, 8)

    def speed(layers: int, taken: Sequence[float], least: float = math.nan) -> Speed:
        return Speed(layers, {work: Interval.of(taken)}, {work: least}, {}, {}, None, {})

    (whole,) = extrapolated(speed(1, [3.0]), speed(2, [5.0]), 32).values()
    assert whole == (65, 65, 65)
    (whole,) = extrapolated(speed(1, [2.98, 3, 3.02]), speed(2, [4.98, 5, 5.02]), 32).values()
    assert whole is not None
    low, middle, high = whole
    assert 64 < low < middle == 65 < high < 66
    for few, many in (([5.0], [4.0]), ([5, 6, 7], [6, 7, 8])):  # layers take no time less
        assert extrapolated(speed(1, few), speed(2, many), 32) == {work: None}
    fast = extrapolated(speed(1, [3.0], 2.0), speed(2, [3.1], 3.0), 32)
    assert fast == {work: None}  # 32 layers take 33 s at least, and not 6


def test_a_peer_in_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama_cpp.py").write_text(
        "import time\n"
        "class Llama:\n"
        "    def __init__(self, path, **options): assert path == 'm.gguf', path\n"
        "    def reset(self): pass\n"
        "    def eval(self, ids): time.sleep(0.01 * len(ids))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert Peer.is_installed("llama.cpp")
    spec = {"path": "m.gguf", "threads": 1, "context": 16}
    with Peer("llama.cpp", spec) as peer:
        (taken,) = peer.seconds(3, 2, 0)
        assert taken >= 0.03
        assert len(peer.seconds(1, 0, 0.1)) > 1
    with pytest.raises(LuminalError, match=r"process of llama.cpp ended; it said: .*other.gguf"):
        Peer("llama.cpp", spec | {"path": "other.gguf"})


def test_every_shape_has_an_architecture() -> None:
    names = {record.name for record in records()}
    for sizes in SHAPES.values():
        for keys in sizes.values():
            assert keys["architectures"][0] in names
    with pytest.raises(InputError, match="no shape '9b' of 'llama'; there are llama: 1b, 3b, 8b"):
        shape("llama", "9b")


def test_one_model_is_given() -> None:
    with pytest.raises(InputError, match=r"give MODEL.onnx, --model or --arch"):
        bench("--arch", "llama", "--model", "folder")
