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

from tests.models.tiny_architectures import SIZES, TINY

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


def _llava(ids: dict[str, int], kind: str = "llama", **options: Any) -> Any:
    return transformers.LlavaConfig(
        text_config={**TEXT, "model_type": kind},
        vision_config={**TOWER, "model_type": "clip_vision_model"},
        image_token_index=ids["<image>"],
        **options,
    )


def _llava_of_siglip(ids: dict[str, int]) -> Any:
    return transformers.LlavaConfig(
        text_config={**TEXT, "model_type": "qwen2"},
        vision_config={**TOWER, "model_type": "siglip_vision_model"},
        image_token_index=ids["<image>"],
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )


def _llava_processor(tokenizer: Any, strategy: str = "default") -> Any:
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 18}, crop_size=16)
    return transformers.LlavaProcessor(
        images, tokenizer, 4, strategy, num_additional_image_tokens=int(strategy == "default")
    )


def _gemma3(ids: dict[str, int]) -> Any:
    options = TINY["gemma3"].options
    return transformers.Gemma3Config(
        text_config={**options, "vocab_size": VOCABULARY, "max_position_embeddings": 512},
        vision_config={**TOWER, "image_size": 32, "vision_use_head": False},
        mm_tokens_per_image=16,  # more than the window
        boi_token_index=ids["<start_of_image>"],
        eoi_token_index=ids["<end_of_image>"],
        image_token_index=ids["<image_soft_token>"],
    )


def _gemma3_processor(tokenizer: Any) -> Any:
    images = transformers.Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    names = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        extra_special_tokens={**names, "image_token": "<image_soft_token>"},
        pad_token="w0",
    )
    return transformers.Gemma3Processor(images, tokenizer, image_seq_length=16)


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
    "llava": Small("LlavaForConditionalGeneration", ("<image>",), _llava, _llava_processor),
    "llava_of_mistral": Small(
        "LlavaForConditionalGeneration",
        ("<image>",),
        lambda ids: _llava(ids, "mistral", vision_feature_layer=1),
        _llava_processor,
    ),
    "llava_of_siglip": Small(
        "LlavaForConditionalGeneration",
        ("<image>",),
        _llava_of_siglip,
        lambda tokenizer: _llava_processor(tokenizer, "full"),
    ),
    "gemma3": Small(
        "Gemma3ForConditionalGeneration",
        ("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
        _gemma3,
        _gemma3_processor,
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
