"""Ten small models, whose kernels are compiled for chips that are not here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from luminal.hlir.graph import Graph
from luminal.models.architectures import read_decoder
from luminal.session.graph import narrowed
from tests.backends.c_family.offline import graph_of
from tests.models import (
    decoder_checks,
    encoder_checks,
    small_encoders,
    vision_checks,
    whisper_checks,
    yolo_checks,
)  # fmt: skip


def decoder(name: str) -> Callable[[Path], list[Graph]]:
    """Whole texts, and further tokens with caches."""

    def made(folder: Path) -> list[Graph]:
        decoder_checks.saved(name, folder)
        model = read_decoder(folder)
        return [
            narrowed(decoder_checks.whole(model)),
            narrowed(decoder_checks.cached(model)),
        ]

    return made


def compiled_by(check: Callable[..., Any], *names: str) -> Callable[[Path], list[Graph]]:
    """What a test of a model compiles first."""
    return lambda folder: [graph_of(lambda: check(*names, folder, "cpu"))]


def bert(folder: Path) -> list[Graph]:
    theirs = small_encoders.saved("bert", folder)
    return [graph_of(lambda: encoder_checks.check_hidden_states(theirs, folder, "cpu"))]


MODELS = {
    **{name: decoder(name) for name in ("llama", "qwen3", "gemma3", "mixtral", "phi3")},
    "whisper": compiled_by(whisper_checks.check_logits),
    "yolo": compiled_by(yolo_checks.check_outputs, "v11"),
    "resnet": compiled_by(vision_checks.check_outputs, "resnet"),
    "vit": compiled_by(vision_checks.check_outputs, "vit"),
    "bert": bert,
}
