"""Small encoders with a head, made by transformers and saved with a tokenizer of letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from tests.models.small_encoders import TINY, torch, transformers

WORDS = ("[PAD]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz")
OFF = 0.2  # what is added to each weight, so that none is left at 0 or 1


def with_pair_tokenizer(folder: Path) -> None:
    """A tokenizer of single letters: [CLS] a [SEP] b [SEP], with two segments."""
    tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def headed(name: str, suffix: str, folder: Path, **options: Any) -> Any:
    """A random model of transformers with a head, also written to the folder."""
    tiny = TINY[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{tiny.name}Config")(**tiny.options, **options)
    model = getattr(transformers, f"{tiny.name}For{suffix}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * OFF)
    model.save_pretrained(folder)
    with_pair_tokenizer(folder)
    return model
