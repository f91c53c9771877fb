"""A small model that sees behind a server, and what clients send it."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import luminal as lm
from luminal.loaders.fields import Fields
from luminal.loaders.tokenizer import HuggingFaceTokenizer
from luminal.models import LanguageModel, PromptLookup
from luminal.models.chat_template import ChatTemplate, parted
from luminal.models.decoder import Decoder
from luminal.models.decoder_config import DecoderConfig, LayerConfig, Rotary
from luminal.models.seeing.llava import LLAVA
from luminal.models.seeing.processor import Processor
from luminal.models.seeing.sight import Sight
from luminal.models.text import Completion
from luminal.serve.engine import EngineOptions
from luminal.serve.served import Served
from tests.models.small_seeing import picture
from tests.serve.running import Running, running

Image = pytest.importorskip("PIL.Image")

CONTEXT = 192
NEW = 8
WORDS = 60
TEMPLATE = (
    "{% for m in messages %}w1 {% for p in m.content %}{% if p.type == 'image' %}<image>"
    "{% else %} {{ p.text }} {% endif %}{% endfor %}w2 {% endfor %}"
)
SIDE = 16
VISION = {
    "model_type": "clip_vision_model",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": 4,
}


def invented() -> LanguageModel:
    """LLaVA's parts with random values, and images whose tokens see all of theirs."""
    words = {f"w{number}": number for number in range(WORDS)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens([tokenizers.AddedToken("<image>", normalized=False, special=True)])
    tokenizer = HuggingFaceTokenizer(inner, None, frozenset(), Path("words"))
    config = DecoderConfig(
        vocab_size=WORDS + 1,
        hidden_size=32,
        intermediate_size=48,
        layers=tuple(LayerConfig(window, Rotary()) for window in (None, 7)),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=CONTEXT,
    )
    lm.manual_seed(5)
    model = LanguageModel(Decoder(config), tokenizer, backend="reference", context=CONTEXT)
    model.chat_template = ChatTemplate(TEMPLATE)
    path = Path("config.json")
    fields = Fields({"image_token_index": WORDS, "vision_config": VISION}, path)
    settings = Fields({"size": {"shortest_edge": SIDE}, "crop_size": SIDE}, path)
    tower = LLAVA.tower(fields, config.hidden_size).eval()
    processor = Processor("llava:LLAVA", fields, settings, tokenizer, WORDS, "<image>")
    runs: dict[str, Any] = {"mode": model.mode, "backend": model.backend}
    model.sight = Sight(tower, processor, source=path, whole=True, places=None, **runs)
    return model


@contextmanager
def seeing(
    model: LanguageModel, draft: PromptLookup | None = None, **options: Any
) -> Iterator[Running]:
    """A server of it, whose cache has room for three texts of full length."""
    chosen: dict[str, Any] = {
        "rows": 8,
        "chunk": 48,  # an image lies in two pieces of a chunk, and may lie in two chunks
        "size": 4,
        "cache": 3 * CONTEXT,
        "backend": model.backend,
    }
    with running(Served("tiny", model, EngineOptions(**(chosen | options)), draft)) as server:
        yield server


def encoded(image: Any, kind: str = "PNG") -> str:
    """An image's file as base64."""
    file = io.BytesIO()
    image.save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def url_of(image: Any, kind: str = "PNG") -> str:
    return f"data:image/{kind.lower()};base64,{encoded(image, kind)}"


def messages(*parts: Any) -> list[dict[str, Any]]:
    """A message of the user as OpenAI's API has it: texts, and images."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": url_of(part)}}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def wanted(model: LanguageModel, *parts: Any, new: int = NEW) -> Completion:
    """What the model writes alone, in one process."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": part}
        for part in parts
    ]
    said, images = parted([{"role": "user", "content": content}], ())
    assert model.chat_template is not None
    prompt = model.chat_template.render(said)
    (found,) = model.complete([prompt], new, images=[images], logprobs=True)
    return found


def chats() -> list[list[Any]]:
    """Conversations with no image, with one, with three, and with others of the same sizes."""
    one, other = (picture(60, 33, seed) for seed in (1, 4))
    further = [picture(9, 12, 2), picture(20, 50, 3)]
    return [
        ["w1 w2"],
        [one, "w7"],
        [other, "w7"],
        ["w3", one, "w4", *further, "w5"],
        ["w1 w2 w3 w4 w5 w6"],
        ["w3", other, "w4", *further, "w5"],
    ]
