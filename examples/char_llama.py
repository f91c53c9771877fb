"""A Llama that learns a text letter by letter, then writes some.

    python examples/char_llama.py TEXT.txt
    python examples/char_llama.py TEXT.txt --steps 2000 --checkpoint runs/char

`luminal train` does the same with a tokenizer, settings in a file, and a folder to generate from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import luminal as lm
from luminal import optim
from luminal.models import Llama, LlamaConfig
from luminal.models.train import next_token_loss
from luminal.training import Batches, Record, TextDataset, fit


class Letters:
    """The letters of a text, numbered in their order."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        self._number = {letter: k for k, letter in enumerate(self.letters)}

    def encode(self, text: str) -> list[int]:
        """The letters' numbers."""
        return [self._number[letter] for letter in text]

    def decode(self, ids: list[int]) -> str:
        """The text again."""
        return "".join(self.letters[k] for k in ids)


def new_model(letters: int, width: int = 64, layers: int = 3, context: int = 128) -> Llama:
    """A Llama for so many letters, with small first embeddings."""
    config = LlamaConfig(
        hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=4, head_dim=width // 4, vocab_size=letters,
        max_position_embeddings=context,
    )  # fmt: skip
    model = Llama(config)
    lm.nn.init.normal_(model.model.embed_tokens.weight, 0.0, 0.1)
    return model


def train(
    model: Llama, ids: list[int], steps: int, length: int = 64, checkpoint: Path | None = None
) -> Record:
    """Trains on windows of `length` letters."""
    data = Batches(TextDataset(ids, length, stride=1), 16, seed=0, drop_last=True)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    return fit(
        model, next_token_loss, data, optimizer, steps=steps, clip_norm=1.0, checkpoint=checkpoint
    )


def write(model: Llama, start: list[int], count: int, temperature: float = 0.7) -> list[int]:
    """`count` letters after `start`; each time the whole context is read anew."""
    context = model.config.max_position_embeddings
    cx = lm.Graph("next letter")
    ids = cx.tensor((cx.dim("s", 1, context),), lm.int32, "ids")
    model(ids, last_only=True).squeeze(0).output("logits")
    following = lm.compile(cx)
    rng, text = np.random.default_rng(0), [*start]
    for _ in range(count):
        logits = following({"ids": np.array(text[-context:], np.int32)})["logits"]
        noise = temperature * rng.gumbel(size=logits.shape)  # the greatest sum is a draw
        text.append(int(np.argmax(logits + noise)))
    return text


def main() -> None:
    """Trains and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--letters", type=int, default=400, help="how many to write")
    parser.add_argument("--checkpoint", type=Path, help="folder to write, and to go on from")
    options = parser.parse_args()
    text = options.text.read_text("utf-8")
    letters = Letters(text)
    lm.manual_seed(0)
    model = new_model(len(letters.letters))
    train(model, letters.encode(text), options.steps, checkpoint=options.checkpoint)
    print(letters.decode(write(model, letters.encode(text[:1]), options.letters)))


if __name__ == "__main__":
    main()
