"""A small Stable Diffusion made by diffusers and saved to a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")

LENGTH = 9
START, END = "<|startoftext|>", "<|endoftext|>"
LETTERS = "abcdefghijklmnopqrstuvwxyz'!?0123456789"
MERGES = ("c a", "ca t</w>", "d o", "do g</w>", "' s</w>", "t h", "th e</w>")
TEXT = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": LENGTH,
}
UNET = {
    "sample_size": 8,
    "block_out_channels": (16, 24),
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 1,
    "cross_attention_dim": 24,
    "attention_head_dim": 4,
    "norm_num_groups": 8,
}
VAE = {
    "block_out_channels": (8, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_size": 16,
}
SCHEDULER = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "set_alpha_to_one": False,
    "steps_offset": 1,
    "clip_sample": False,
}


def vocabulary() -> dict[str, int]:
    """Letters, letters that end a word, merges, and what begins and ends a text."""
    words = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS)]
    words += [merge.replace(" ", "") for merge in MERGES]
    return {word: number for number, word in enumerate([*words, START, END])}


def with_old_tokenizer(folder: Path) -> None:
    """The files of folders that have no tokenizer.json."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary()))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES, ""]))
    settings = {"bos_token": START, "eos_token": END, "pad_token": "!"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def random(model: Any) -> Any:
    """The model with no weight left at 0 or 1."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def saved(folder: Path, unet: dict[str, Any] | None = None, **scheduler: Any) -> Any:
    """A random pipeline of diffusers, also written to the folder."""
    torch.manual_seed(0)
    tokenizer = transformers.CLIPTokenizer(
        vocab=vocabulary(),
        merges=[tuple(merge.split()) for merge in MERGES],
        model_max_length=LENGTH,
    )
    text = transformers.CLIPTextConfig(**TEXT, vocab_size=len(vocabulary()))
    pipeline = diffusers.StableDiffusionPipeline(
        vae=random(diffusers.AutoencoderKL(**VAE)),
        text_encoder=random(transformers.CLIPTextModel(text)),
        tokenizer=tokenizer,
        unet=random(diffusers.UNet2DConditionModel(**UNET | (unet or {}))),
        scheduler=diffusers.DDIMScheduler(**SCHEDULER | scheduler),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    pipeline.save_pretrained(folder)
    return pipeline
