"""Small models of images, and CLIP, made by transformers and saved to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
SIZE = 24


class Tiny(NamedTuple):
    """A small configuration: the names of transformers' classes, options, and the image's size."""

    name: str
    options: dict[str, Any]
    suffix: str = "ForImageClassification"
    size: int = SIZE


LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
PATCHES = {"image_size": SIZE, "patch_size": 8}
LABELS = {"id2label": {0: "cat", 1: "dog", 2: "cow"}}
VIT = {**LAYERS, **PATCHES, **LABELS, "intermediate_size": 48}
TINY = {
    "vit": Tiny("ViT", VIT),
    "dinov2": Tiny("Dinov2", {**LAYERS, **PATCHES, **LABELS}, size=40),
    "dinov2_gated": Tiny("Dinov2", {**LAYERS, **PATCHES, "use_swiglu_ffn": True}, "Model"),
    "resnet": Tiny(
        "ResNet", {"embedding_size": 8, "hidden_sizes": [16, 24], "depths": [1, 2], **LABELS}
    ),
    "resnet_basic": Tiny(
        "ResNet",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 12],
            "depths": [1, 2],
            "layer_type": "basic",
            "downsample_in_first_stage": True,
        },
    ),
    "mobilenet_v1": Tiny("MobileNetV1", {"depth_multiplier": 0.1, **LABELS}, size=36),
    "mobilenet_v2": Tiny("MobileNetV2", {"depth_multiplier": 0.1, **LABELS}, size=36),
    "convnext": Tiny(
        "ConvNext", {"hidden_sizes": [8, 12, 16], "depths": [1, 2, 1], "num_stages": 3, **LABELS}
    ),
}
VARIANTS = {
    "vit_without_biases": Tiny(
        "ViT", {**VIT, "qkv_bias": False, "hidden_act": "gelu_new"}, "Model"
    ),
    "resnet_early": Tiny(
        "ResNet",
        {
            "embedding_size": 8,
            "hidden_sizes": [16, 24],
            "depths": [1, 2],
            "downsample_in_bottleneck": True,
        },
    ),
    "mobilenet_v1_padded": Tiny("MobileNetV1", {"depth_multiplier": 0.1, "tf_padding": False}),
    "mobilenet_v2_dilated": Tiny(
        "MobileNetV2",
        {
            "depth_multiplier": 0.2,
            "output_stride": 8,
            "first_layer_is_expansion": False,
            "tf_padding": False,
        },
        size=32,
    ),
    "mobilenet_v2_dilated_same": Tiny(
        "MobileNetV2", {"depth_multiplier": 0.1, "output_stride": 8}, size=36
    ),
}


def random(model: Any) -> Any:
    """The model with no weight and no statistic left at 0 or 1; images still tell at its end."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 4:
                torch.nn.init.normal_(parameter, std=1.5 * parameter[0].numel() ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn_like(buffer) * 0.1)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    return model.eval()


def saved(name: str, folder: Path) -> Any:
    """A random model of transformers, also written to the folder."""
    tiny = (TINY | VARIANTS)[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{tiny.name}Config")(**tiny.options)
    model = random(getattr(transformers, f"{tiny.name}{tiny.suffix}")(config))
    model.save_pretrained(folder)
    return model


def with_preparation(folder: Path, size: int = SIZE) -> None:
    settings = transformers.ViTImageProcessorPil(size={"height": size, "width": size})
    settings.save_pretrained(folder)


def picture(width: int, height: int, folder: Path, name: str = "a.png") -> Path:
    """A file with a smooth random image."""
    small = np.random.default_rng(0).integers(0, 256, (5, 6, 3), np.uint8)
    Image.fromarray(small).resize((width, height), 3).save(folder / name)
    return folder / name


CLIP: dict[str, Any] = {
    "projection_dim": 20,
    "vision_config": {**LAYERS, **PATCHES, "intermediate_size": 48},
    "text_config": {
        **LAYERS,
        "vocab_size": 40,
        "hidden_size": 24,
        "intermediate_size": 40,
        "max_position_embeddings": 10,
        "bos_token_id": 38,
        "eos_token_id": 39,
    },
}


def saved_clip(folder: Path, end: int = 39) -> Any:
    """A random CLIP with its tokenizer and preparation."""
    torch.manual_seed(0)
    texts = {**CLIP["text_config"], "eos_token_id": end}
    model = random(
        transformers.CLIPModel(transformers.CLIPConfig(**{**CLIP, "text_config": texts}))
    )
    model.save_pretrained(folder)
    with_preparation(folder)
    with_tokenizer(folder, 40)
    return model


def with_tokenizer(folder: Path, count: int) -> None:
    """Words w0, w1, ..., between the last but one and the last of them."""
    tokenizer = Tokenizer(WordLevel({f"w{n}": n for n in range(count)}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    first, last = f"w{count - 2}", f"w{count - 1}"
    tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, count - 2), (last, count - 1)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
