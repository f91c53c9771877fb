"""Names that are nearly right, or right in another library, say what was meant."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import models, nn, optim
from luminal.base.near_names import suggestion
from luminal.training import fit

pytestmark = pytest.mark.usefixtures("new_default_graph")

F: Any = nn.functional
CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "layer": (lambda: nn.Linear(2, 2, bais=False), "bias"),  # type: ignore[call-arg]
    "layer of another name": (lambda: nn.Linear(in_channels=2, out_features=2), "in_features"),  # type: ignore[call-arg]
    "optimizer": (lambda: optim.AdamW([nn.Parameter((2,))], learning_rate=1), "lr"),  # type: ignore[call-arg]
    "function": (lambda: F.softmax(lm.ones(2), dimm=0), "dim"),
    "of lm": (lambda: lm.sum(lm.ones(2), keepdimension=True), "keepdim"),  # type: ignore[call-arg]
    "method": (lambda: lm.ones(2, 2).sum(axs=1), "axis"),  # type: ignore[call-arg]
    "jit": (lambda: lm.jit(lambda x: x, numeric="exact"), "numerics"),
    "compile": (lambda: lm.compile(numeric="exact"), "numerics"),  # type: ignore[call-arg]
    "load": (lambda: models.load("x", quantized=True), "keep_quantized"),  # type: ignore[call-arg]
    "fit": (lambda: fit(max_grad_norm=1.0), "clip_norm"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", CALLS)
def test_a_keyword_argument_that_was_meant(name: str) -> None:
    call, meant = CALLS[name]
    with pytest.raises(TypeError, match=rf"unexpected keyword .*; did you mean '{meant}'\?"):
        call()


def test_what_is_taken_by_position() -> None:
    with pytest.raises(TypeError, match=r"'shape'; pass shape by position, without its name$"):
        lm.ones(2, 3).reshape(shape=(3, 2))  # type: ignore[call-arg]


def test_methods_are_pickled_as_the_class_has_them() -> None:
    for name in ("sum", "silu", "conv2d", "set"):
        method = getattr(lm.Tensor, name)
        assert pickle.loads(pickle.dumps(method)) is method


def test_what_is_like_nothing_stays_as_it_was() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzz'$"):
        nn.Linear(2, 2, zzz=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"missing 1 required positional argument"):
        nn.Linear(2)  # type: ignore[call-arg]
    assert suggestion("zzz", ("lr", "momentum")) == ""
    assert suggestion("max_length", ("context", "prompt")) == "; did you mean 'context'?"
    assert [*inspect.signature(nn.Linear).parameters][:2] == ["in_features", "out_features"]


def test_generate_suggests_max_tokens() -> None:
    model = models.load(models.SHIPPED)
    with pytest.raises(lm.InputError, match=r"max_new_tokens: .*; did you mean 'max_tokens'\?$"):
        model.generate("ROMEO:", max_new_tokens=3)
    assert np.array(model.encode("a")).size
