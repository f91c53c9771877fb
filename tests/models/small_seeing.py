"""Small language models that see, made by transformers, saved with their processors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.models.tiny_architectures import SIZES

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")

VOCABULARY = 96
TEXT = {**SIZES, "vocab_size": VOCABULARY, "max_position_embeddings": 512}
TOWER = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
}
PARTED = (
    "{% for m in messages %}w1 {% for p in m.content %}{% if p.type == 'image' %}IMAGE"
    "{% else %} {{ p.text }} {% endif %}{% endfor %}w2 {% endfor %}"
)
"""A chat template of parts, as those of models that see: a content that is a text would be cut
into its letters."""


class Small(NamedTuple):
    """A seeing model: `special` tokens of its own, the first of which stands for an image; from
    these and their ids follow the configuration of the model `name`, and the processor.
    """

    name: str
    special: tuple[str, ...]
    config: Callable[[dict[str, int]], Any]
    processor: Callable[[Any], Any]


def _idefics3(ids: dict[str, int]) -> Any:
    return transformers.Idefics3Config(
        text_config={**TEXT, "model_type": "llama"},
        vision_config=TOWER,
        image_token_id=ids["<image>"],
        scale_factor=2,
    )


def _smolvlm(ids: dict[str, int]) -> Any:
    vision = {**TOWER, "image_size": 24}
    text = {**TEXT, "model_type": "llama"}
    return transformers.SmolVLMConfig(
        text_config=text, vision_config=vision, image_token_id=ids["<image>"], scale_factor=3
    )


def _idefics3_processor(tokenizer: Any, kind: str = "Idefics3", tile: int = 16) -> Any:
    images = getattr(transformers, f"{kind}ImageProcessorPil")(
        size={"longest_edge": 40}, max_image_size={"longest_edge": tile}
    )
    return transformers.Idefics3Processor(images, tokenizer, image_seq_len=4)


_AROUND = ("<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
_TILES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))

SMALL = {
    "idefics3": Small(
        "Idefics3ForConditionalGeneration",
        ("<image>", *_AROUND, *_TILES),
        _idefics3,
        _idefics3_processor,
    ),
    # Its own processor needs a package more, for videos.
    "smolvlm": Small(
        "SmolVLMForConditionalGeneration",
        ("<image>", *_AROUND, *_TILES),
        _smolvlm,
        lambda tokenizer: _idefics3_processor(tokenizer, "SmolVLM", 24),
    ),
}


def saved(name: str, folder: Path) -> tuple[Any, Any]:
    """A random model of transformers and its processor, also written to the folder."""
    small = SMALL[name]
    words = {f"w{number}": number for number in range(40)}
    inner = Tokenizer(WordLevel({**words, "\n": len(words)}, unk_token="w0"))
    inner.pre_tokenizer = Whitespace()
    special = [AddedToken(each, normalized=False, special=True) for each in small.special]
    inner.add_special_tokens(special)
    ids = {each: inner.token_to_id(each) for each in small.special}
    path = folder / "tokenizer.json"
    inner.save(str(path))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), pad_token="w0")
    processor = small.processor(tokenizer)
    processor.save_pretrained(folder)
    inner.save(str(path))  # as it was: ours reads no more than that
    torch.manual_seed(0)
    model = getattr(transformers, small.name)(small.config(ids)).eval()
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(torch.randn_like(value) * 0.2)
    model.save_pretrained(folder)
    template = PARTED.replace("IMAGE", small.special[0])
    (folder / "chat_template.jinja").write_text(template)
    return model, processor


def picture(width: int, height: int, seed: int = 0) -> Any:
    """A smooth random image."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), 3)


def texts_of(name: str) -> list[tuple[str, list[Any]]]:
    """Prompts with one image, with three of other sizes, and without any."""
    one = SMALL[name].special[0]
    pictures = [picture(60, 33, 1), picture(9, 12, 2), picture(20, 50, 3)]
    return [
        (f"w1 {one} w2 w3", pictures[:1]),
        (f"w1 {one} w2 {one} w3 {one} w4", pictures),
        ("w5 w6", []),
    ]
