"""Ten small models: how each is compared with another library's on a backend, and the graphs of it
that are compiled for chips that are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

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

Check = Callable[[Path, str], None]


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


def check_decoder(name: str) -> Check:
    """Of logits, whole texts and further tokens."""

    def check(folder: Path, backend: str) -> None:
        theirs = decoder_checks.saved(name, folder)
        decoder_checks.check_logits(theirs, read_decoder(folder), backend)

    return check


def check_bert(folder: Path, backend: str) -> None:
    theirs = small_encoders.saved("bert", folder)
    encoder_checks.check_hidden_states(theirs, folder, backend)


DECODERS = ("llama", "qwen3", "gemma3", "mixtral", "phi3")
OTHERS: dict[str, Check] = {
    "whisper": whisper_checks.check_logits,
    "yolo": partial(yolo_checks.check_outputs, "v11"),
    "resnet": partial(vision_checks.check_outputs, "resnet"),
    "vit": partial(vision_checks.check_outputs, "vit"),
    "bert": check_bert,
}
CHECKS: dict[str, Check] = {**{name: check_decoder(name) for name in DECODERS}, **OTHERS}
"""What compares a model, saved in a folder, with that of transformers or PyTorch on a backend."""


def compiled_by(check: Check) -> Callable[[Path], list[Graph]]:
    """What the check of a model compiles first."""
    return lambda folder: [graph_of(lambda: check(folder, "cpu"))]


MODELS = {
    **{name: decoder(name) for name in DECODERS},
    **{name: compiled_by(check) for name, check in OTHERS.items()},
}
