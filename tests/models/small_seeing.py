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


def _qwen(kind: str, vision: dict[str, Any]) -> Callable[[dict[str, int]], Any]:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 2, 1]}

    def made(ids: dict[str, int]) -> Any:
        return getattr(transformers, f"{kind}Config")(
            text_config={**TEXT, "rope_parameters": rope},
            vision_config={**vision, "depth": 3, "num_heads": 2, "patch_size": 4},
            image_token_id=ids["<|image_pad|>"],
            video_token_id=ids["<|video_pad|>"],
            vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"],
        )

    return made


class QwenProcessor:
    """What the class of transformers does with texts; that one needs torchvision, for videos."""

    def __init__(self, tokenizer: Any) -> None:
        size = {"shortest_edge": 256, "longest_edge": 2048}
        self.image_processor = transformers.Qwen2VLImageProcessorPil(size=size, patch_size=4)
        self.tokenizer = tokenizer

    def save_pretrained(self, folder: Path) -> None:
        self.image_processor.save_pretrained(folder)

    def __call__(self, text: str, images: Any, return_tensors: str) -> dict[str, Any]:
        prepared: Any = {}
        if images:
            prepared = dict(self.image_processor(images, return_tensors=return_tensors))
            pad, *others = "<|image_pad|>", *text.split("<|image_pad|>")
            counts = (prepared["image_grid_thw"].prod(-1) // 4).tolist()
            text = others[0] + "".join(
                pad * count + after for count, after in zip(counts, others[1:], strict=True)
            )
        tokens = dict(self.tokenizer(text, return_tensors=return_tensors))
        tokens.pop("token_type_ids", None)
        is_image = tokens["input_ids"] == self.tokenizer.convert_tokens_to_ids("<|image_pad|>")
        return {**tokens, **prepared, "mm_token_type_ids": is_image.int()}


_PADS = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
_WINDOWED = {
    "hidden_size": 16,
    "out_hidden_size": 32,
    "intermediate_size": 24,
    "window_size": 16,
    "fullatt_block_indexes": [1],
}


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
    "qwen2_vl": Small(
        "Qwen2VLForConditionalGeneration",
        _PADS,
        _qwen("Qwen2VL", {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}),
        QwenProcessor,
    ),
    # As all published ones are, since mmproj files do not say how wide feed-forward parts are.
    "qwen2_vl_four_times": Small(
        "Qwen2VLForConditionalGeneration",
        _PADS,
        _qwen("Qwen2VL", {"embed_dim": 16, "hidden_size": 32}),
        QwenProcessor,
    ),
    "qwen2_5_vl": Small(
        "Qwen2_5_VLForConditionalGeneration",
        _PADS,
        _qwen("Qwen2_5_VL", _WINDOWED),
        QwenProcessor,
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
