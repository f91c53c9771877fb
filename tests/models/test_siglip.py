"""SigLIP and SigLIP 2: vectors, logits and labels as transformers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import LoadError
from luminal.loaders.image import read_image
from luminal.models.image_model import ImageEncoder
from luminal.models.image_text import ImageTextModel
from tests.models.small_vision import picture, random, torch, transformers, with_tokenizer

PATCH, SIDE, WORDS = 8, 3, 40
LAYERS = {"intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {
    **LAYERS, "hidden_size": 24, "vocab_size": WORDS, "max_position_embeddings": 7,
    "pad_token_id": 3, "bos_token_id": 38, "eos_token_id": 39, "projection_size": 32,
}  # fmt: skip
IMAGE = {**LAYERS, "hidden_size": 32, "patch_size": PATCH}
SIZES = {
    "Siglip": {"image_size": PATCH * SIDE},
    "Siglip2": {"num_patches": SIDE**2},
}
TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11 w12 w13"]
"""One is longer than the model takes."""


def saved(folder: Path, kind: str, suffix: str = "Model", **more: Any) -> Any:
    """A random model with its tokenizer and preparation."""
    torch.manual_seed(0)
    images = {**IMAGE, **SIZES[kind], **more.pop("vision", {})}
    if suffix == "Model":
        config = getattr(transformers, f"{kind}Config")(
            text_config={**TEXT, **more}, vision_config=images
        )
    else:
        config = getattr(transformers, f"{kind}VisionConfig")(**images)
    model = random(getattr(transformers, f"{kind}{suffix}")(config))
    model.save_pretrained(folder)
    side = PATCH * SIDE
    half: dict[str, Any] = {"image_mean": [0.5] * 3, "image_std": [0.4] * 3, "resample": 2}
    size = {"size": {"height": side, "width": side}} if kind == "Siglip" else {}
    flat = {} if kind == "Siglip" else {"max_num_patches": SIDE**2, "patch_size": PATCH}
    settings = {"image_processor_type": f"{kind}ImageProcessor", **half, **size, **flat}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    with_tokenizer(folder, WORDS)
    return model


def of_pixels(kind: str, pixels: Any) -> dict[str, Any]:
    """What a model of transformers takes for images (b, 3, height, width)."""
    if kind == "Siglip":
        return {"pixel_values": pixels}
    rows = pixels.unflatten(2, (SIDE, PATCH)).unflatten(4, (SIDE, PATCH))
    flat = rows.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    count = len(pixels)
    return {
        "pixel_values": flat,
        "pixel_attention_mask": torch.ones(count, SIDE**2, dtype=torch.long),
        "spatial_shapes": torch.tensor([[SIDE, SIDE]] * count),
    }


def ids_of(filler: int) -> Any:
    """TEXTS as the tokenizer writes them, cut and filled up."""
    rows = []
    for text in TEXTS:
        words = [int(word[1:]) for word in text.split()]
        row = [38, *words, 39] if len(words) <= 5 else [38, *words[:5], 39]
        rows.append(row + [filler] * (7 - len(row)))
    return torch.tensor(rows)


def check(folder: Path, kind: str, backend: str, filler: int = 3) -> ImageTextModel:
    theirs = saved(folder, kind)
    if filler != 3:
        (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": f"w{filler}"}))
    loaded = lm.models.load(folder, backend=backend)
    assert isinstance(loaded, ImageTextModel)
    files = [picture(30, 20 + 9 * n, folder, f"{n}.png") for n in range(2)]
    pixels = torch.from_numpy(np.stack([loaded.prepare(read_image(file)) for file in files]))
    with torch.no_grad():
        wanted = theirs(input_ids=ids_of(filler), **of_pixels(kind, pixels))
    # Sums of a small tower in float32, in another order.
    np.testing.assert_allclose(loaded.embed_images(files), wanted.image_embeds, 1e-4, 1e-5)
    # Sums of a small tower in float32, in another order.
    np.testing.assert_allclose(loaded.embed_texts(TEXTS), wanted.text_embeds, 1e-4, 1e-5)
    logits = wanted.logits_per_image.numpy()
    # Sums in float32 in another order, times the learned scale.
    np.testing.assert_allclose(loaded.similarity(files, TEXTS), logits, 1e-4, 1e-4)
    for guesses, row in zip(loaded.classify(files, TEXTS), logits, strict=True):
        shares = {guess.label: guess.probability for guess in guesses}
        for text, logit in zip(TEXTS, row, strict=True):
            # A logit's error, times the slope.
            assert shares[text] == pytest.approx(1 / (1 + np.exp(-float(logit))), rel=1e-3)
    return loaded


@pytest.mark.parametrize("kind", SIZES)
def test_similarity_of_images_and_texts(kind: str, tmp_path: Path) -> None:
    check(tmp_path, kind, "reference", 3 if kind == "Siglip" else 5)


@pytest.mark.long
@pytest.mark.parametrize("kind", SIZES)
def test_compiled(kind: str, tmp_path: Path) -> None:
    check(tmp_path, kind, "cpu")


@pytest.mark.parametrize("kind", SIZES)
def test_vectors_of_images_alone(kind: str, tmp_path: Path) -> None:
    theirs = saved(tmp_path, kind, "VisionModel")
    loaded = lm.models.load(tmp_path, backend="reference")
    assert isinstance(loaded, ImageEncoder)
    pixels = loaded.prepare(read_image(picture(30, 20, tmp_path)))
    assert pixels.shape == (3, PATCH * SIDE, PATCH * SIDE)
    with torch.no_grad():
        wanted = theirs(**of_pixels(kind, torch.from_numpy(pixels)[None])).pooler_output
    # Sums of a small tower in float32, in another order.
    np.testing.assert_allclose(loaded.embed([tmp_path / "a.png"]), wanted, 1e-4, 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_drawn_sizes(seed: int, tmp_path: Path) -> None:
    """The modules themselves, of drawn sizes."""
    rng = np.random.default_rng(seed)
    kind = [*SIZES][seed % 2]
    heads, width = int(rng.choice([1, 2, 4])), int(rng.choice([8, 16, 24]))
    layers = {
        "num_attention_heads": heads, "num_hidden_layers": int(rng.integers(1, 4)),
        "intermediate_size": int(rng.integers(9, 40)),
        "hidden_act": str(rng.choice(["gelu_pytorch_tanh", "gelu", "relu"])),
    }  # fmt: skip
    theirs = saved(
        tmp_path, kind, projection_size=width, vision={**layers, "hidden_size": width},
        max_position_embeddings=int(rng.integers(3, 9)),
    )  # fmt: skip
    loaded = lm.models.load(tmp_path, backend="reference")
    pixels = rng.normal(0, 1, (2, 3, PATCH * SIDE, PATCH * SIDE)).astype(np.float32)
    count = loaded.model.config.max_position_embeddings
    ids = rng.integers(0, WORDS, (3, count)).astype(np.int32)
    cx = lm.Graph()
    inputs = cx.tensor(pixels.shape, name="x"), cx.tensor(ids.shape, "int32", "ids")
    lengths = cx.constant(np.full(3, count, np.int32))
    loaded.model(*inputs, lengths).output("y")
    found = lm.compile(cx, "reference")({"x": pixels, "ids": ids})["y"]
    with torch.no_grad():
        wanted = theirs(
            input_ids=torch.from_numpy(ids).long(), **of_pixels(kind, torch.from_numpy(pixels))
        ).logits_per_image
    # Sums of a small tower in float32, in another order.
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text_config": {**TEXT, "projection_size": 31}}, "projection_size of texts is 31, hid"),
        ({"vision_config": {**IMAGE, "vision_use_head": False}}, "vision_use_head is False"),
        ({"vision_config": {**IMAGE, "num_patches": 8}}, "num_patches is 8, which is no square"),
        ({"text_config": {**TEXT, "pad_token_id": 40}}, "pad_token_id is 40"),
    ],
    ids=["widths", "head", "patches", "filler"],
)  # fmt: skip
def test_what_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    saved(tmp_path, "Siglip2")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(LoadError, match=words):
        lm.models.load(tmp_path)


def test_a_filler_that_is_no_token(tmp_path: Path) -> None:
    saved(tmp_path, "Siglip")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<none>"}))
    with pytest.raises(LoadError, match=r"pad_token is '<none>', which is none of the tokens"):
        lm.models.load(tmp_path)
