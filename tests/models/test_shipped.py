"""The model that comes with Luminal: its size, its record, and that it is the one it says it is."""

from __future__ import annotations

import json
import time
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from luminal import models, optim
from luminal.models.train import TextRun, held_out, next_token_loss
from luminal.training import Batches, TextDataset
from luminal.training.program import Losses, Recipe
from luminal.training.settings import read_settings

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "examples/shakespeare.toml"
MOST = 6_000_000  # bytes of all files together


def outcome() -> dict[str, object]:
    found: dict[str, object] = json.loads((models.SHIPPED / "training.json").read_text("utf-8"))
    return found


def test_it_is_small_and_made_as_its_settings_say() -> None:
    assert sum(path.stat().st_size for path in models.SHIPPED.iterdir()) <= MOST
    assert outcome()["run"] == asdict(read_settings(CONFIG, TextRun))


def test_it_writes_what_its_record_shows() -> None:
    start = time.perf_counter()
    loaded = models.load(models.SHIPPED)
    sample = tomllib.loads(CONFIG.read_text())["sample"]
    text = loaded.generate(sample["prompt"], 30, temperature=sample["temperature"])
    assert str(outcome()["sample"]).startswith(sample["prompt"] + text)
    assert time.perf_counter() - start < 60


@pytest.mark.long
def test_its_loss_is_the_one_recorded(shared_data: Path) -> None:
    run = read_settings(CONFIG, TextRun)
    text = (shared_data / "text/tinyshakespeare.txt").read_text("utf-8")
    loaded = models.load(models.SHIPPED)
    ids = loaded.tokenizer.encode(held_out(text, run.training.held_out)[1])
    data = Batches(TextDataset(ids, run.training.length), run.training.batch, shuffle=False)
    recipe = Recipe(loaded.model, next_token_loss, optim.SGD(loaded.model.parameters(), lr=0.0))
    # the record is training's own, whose program sums in another order
    assert Losses(recipe).mean(data) == pytest.approx(outcome()["validation_loss"], 1e-3)
