"""The model that comes with Luminal, trained on by several ranks on a text of yours.

luminal launch -n 2 examples/train_on_ranks.py text.txt --plan zero1 --leaves 8

Stopped and started again it goes on from its newest checkpoint; with leaves on any number of ranks
that divides them, and to the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import luminal as lm
from luminal import nn, optim
from luminal.models.shipped import SHIPPED
from luminal.models.train import next_token_loss
from luminal.training import Batches, Record, TextDataset, fit


def train(
    text: str,
    folder: str | Path | None = None,
    *,
    steps: int = 50,
    batch: int = 16,
    length: int = 64,
    plan: str = "data",
    leaves: int | None = None,
    progress: bool = True,
) -> tuple[nn.Module, Record]:
    """The model after so many steps, on the ranks that were launched, and how it went."""
    lm.distributed.init()
    mesh = lm.Mesh((lm.distributed.size(),), ("data",))
    loaded = lm.models.load(SHIPPED)
    model, ids = loaded.model, loaded.tokenizer.encode(text)
    model.to("float32")  # small steps would be lost in bfloat16
    data = Batches(TextDataset(ids, length, stride=1), batch, seed=0, drop_last=True)
    record = fit(
        model, next_token_loss, data, optim.AdamW(model.named_parameters(), lr=1e-4),
        steps=steps, clip_norm=1.0, checkpoint=folder, progress=progress,
        mesh=mesh, plan=plan, leaves=leaves,
    )  # fmt: skip
    return model, record


def main(arguments: list[str] | None = None) -> None:
    """Trains, and prints a digest of the model on the first rank."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", help="a text file")
    parser.add_argument("--folder", help="where checkpoints are written, and gone on from")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--plan", default="data", help="data, zero1, zero3")
    parser.add_argument("--leaves", type=int, help="a power of two: bits for any number of ranks")
    options = parser.parse_args(arguments)
    model, record = train(
        Path(options.text).read_text(), options.folder, steps=options.steps, plan=options.plan,
        leaves=options.leaves,
    )  # fmt: skip
    digest = hashlib.blake2b(digest_size=8)
    for parameter in model.parameters():
        digest.update(parameter.whole().tobytes())  # all ranks ask
    if lm.distributed.rank() == 0:
        print(record)
        print("parameters", digest.hexdigest())


if __name__ == "__main__":
    main()
