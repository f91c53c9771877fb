"""The examples of the reference give what they show, and what PyTorch gives where it has them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manual import examples, reference
from manual.examples import Example

ALL = [example for module in examples.modules() for example in examples.read(module).values()]
SAMPLE = ALL[::40]

OURS = {
    "luminal": "autocast checkpoint compile custom_vjp devices Graph iota jit load Parameter "
    "promote_types result_type save scan State stop_gradient value_and_grad",
    "luminal.linalg": "outer",
    "luminal.nn": "alibi_slopes FocalLoss keyed MoE SwiGLU",
    "luminal.optim": "clip_grad_norm clip_grad_value grad_norm LAMB Lion",
    "luminal.Tensor": "cast dtype merge_dims split_dims",
    **{f"luminal.{name}": "all" for name in ("models", "random", "training")},
}
"""By module the examples that PyTorch does not run, or answers with an object of its own."""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # for the files that they write


def faults(chosen: list[Example]) -> Iterator[str]:
    names = examples.known()
    for example in chosen:
        shown = repr(example.given(names))
        if not example.result or not example.agrees(shown):
            yield f"{example.module}.{example.name}: {shown}, not {example.result!r}"


def test_some_give_what_they_show() -> None:
    assert [*faults(SAMPLE)] == []


@pytest.mark.long
def test_all_give_what_they_show() -> None:
    assert [*faults(ALL)] == []


def test_they_are_of_public_names() -> None:
    for module in examples.modules():
        assert set(examples.read(module)) <= offered(module), module


def offered(module: str) -> set[str]:
    if module in reference.MODULES:
        return set(reference.public(import_module(module)))
    return {member.name for member in reference.members(reference.held(module))}


@pytest.mark.parametrize(("result", "agrees"), [
    ("[1.0, 2.0]", True), ("[1.0, 2...]", True), ("[1.0, 2.1]", False), ("[1.0", False),
    ("[0.99..., 2.0]", True), ("[0.97..., 2.0]", False), ("[..., 2.0]", True), ("[...", True),
])  # fmt: skip
def test_a_result_is_compared(result: str, agrees: bool) -> None:
    assert Example("luminal", "name", "lm.ones(2)", result).agrees("[1.0, 2.0]") is agrees


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch's own modules
def test_pytorch_gives_the_same() -> None:
    torch = pytest.importorskip("torch")
    theirs = SimpleNamespace(**{**vars(torch.func), **vars(torch)})
    names = {"np": np, "lm": theirs, "nn": torch.nn, "optim": torch.optim, "F": torch.nn.functional}
    ours, compared = examples.known(), 0
    for example in ALL:
        if {example.name, "all"} & set(OURS.get(example.module, "").split()):
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected call of .lr_scheduler.step")
            expected = example.given(names)
        found = example.given(ours)
        assert same(found, expected), f"{example.module}.{example.name}: {found}, not {expected}"
        compared += 1
    assert compared > 500


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-6)
    return bool(found == expected)
