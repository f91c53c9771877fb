"""Whole models as one persistent kernel, at their own widths, over the stand-in of CUDA's driver or
of HIP's: run by test_together.py in processes of their own, for the device that DEVICE names. They
give the bits that launch lists give. Texts are compiled for their values alone (`compiling.py`):
the same kinds of programs run with every access checked in together_cases.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import luminal as lm
from luminal import nn, optim
from luminal.backends import registry
from luminal.base import config
from luminal.base.dtypes import DType, int32
from luminal.models.llama import Llama, LlamaConfig
from luminal.runtime.executable import Executable
from luminal.search.genome import Genome, called_by
from luminal.search.space import Space
from tests.backends.c_family.library_products import executable
from tests.backends.c_family.together_cases import DEVICE, DRIVER, HOLDS, STANDS_IN, calls
from tests.simt import stand_in

pytestmark = pytest.mark.long
HOLD = HOLDS[1]
"""Four groups, the later ones first."""


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with STANDS_IN(monkeypatch, tmp_path, checked=False, LUMINAL_POISON=None):
        yield


class Whole(NamedTuple):
    """A model's graph, the inputs of some runs, and its States, as they are at first."""

    graph: lm.Graph
    given: Sequence[dict[str, Any]]
    dims: Sequence[dict[str, int]]
    states: Sequence[lm.State] = ()


def draw(parameters: Sequence[lm.Parameter], rng: np.random.Generator) -> None:
    """Gives them values by which what passes keeps its size."""
    for each in parameters:
        scale = np.sqrt(2 / np.prod(each.shape[1:])) if len(each.shape) > 1 else 1.0
        values = rng.standard_normal(each.shape, np.float32) * np.float32(scale)
        each.set(values.astype(each.dtype.numpy))


def llama(tokens: int, dtype: DType = lm.bfloat16) -> Whole:
    """Two layers of Llama 1B over a cache of 64 places; its vocabulary is cut to 1024 words."""
    rng = np.random.default_rng(0)
    model = Llama(LlamaConfig(2048, 8192, 2, 32, 8, 64, 1024, 64), dtype)
    draw(model.parameters(), rng)
    caches, cx = model.make_caches(64), lm.Graph()
    ids, at = cx.tensor((tokens,), int32, "ids"), cx.dim("past", 0, 63)
    model(ids, caches, at, last_only=True).output("logits")
    given = [{"ids": rng.integers(0, 1024, tokens, np.int32)} for _ in range(2)]
    dims = [{"past": tokens * number} for number in range(2)]
    return Whole(cx, given, dims, [state for c in caches for state in (c.keys, c.values)])


def decode() -> Whole:
    """Two steps, of a token each."""
    return llama(1)


def prompt() -> Whole:
    """Two chunks of a prompt."""
    return llama(8)


def conv(inner: int, outer: int, size: int = 3, stride: int = 1) -> nn.Module:
    """A convolution and its norm."""
    return nn.Sequential(
        nn.Conv2d(inner, outer, size, stride, size // 2, bias=False), nn.BatchNorm2d(outer)
    )


class Residual(nn.Module):
    """Two convolutions, beside which the input passes."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        self.a, self.b = conv(inner, outer, 3, stride), conv(outer, outer)
        is_same = inner == outer and stride == 1
        self.beside = None if is_same else conv(inner, outer, 1, stride)

    def forward(self, x: lm.Tensor) -> lm.Tensor:
        """(n, inner, h, w) to (n, outer, ...)."""
        y = self.b(self.a(x).relu())
        return ((x if self.beside is None else self.beside(x)) + y).relu()


def resnet(size: int = 224) -> Whole:
    """ResNet-18 of one picture: He et al., arXiv 1512.03385."""
    rng, cx = np.random.default_rng(1), lm.Graph()
    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(inner, outer, stride), Residual(outer, outer, 1)]
        inner = outer
    body, head = nn.Sequential(*layers), nn.Linear(512, 1000)
    draw([*body.parameters(), *head.parameters()], rng)
    body.eval()
    head(body(cx.tensor((1, 3, size, size), name="x")).mean((2, 3))).output("y")
    given = [{"x": rng.standard_normal((1, 3, size, size), np.float32)} for _ in range(2)]
    return Whole(cx, given, [{}, {}])


def training() -> Whole:
    """Two steps of a Llama of two layers, 256 wide, by AdamW: 32 tokens."""
    rng, cx = np.random.default_rng(2), lm.Graph()
    model = Llama(LlamaConfig(256, 768, 2, 4, 2, 64, 512, 64), lm.float32)
    parameters = [*model.parameters()]
    draw(parameters, rng)
    ids, wanted = (cx.tensor((32,), int32, name) for name in ("ids", "wanted"))
    with lm.recording(cx):
        loss = lm.nn.functional.cross_entropy(model(ids), wanted).output("loss")
        optimizer = optim.AdamW(parameters, lr=0.01)
        optimizer.step(loss)
    given = [
        {name: rng.integers(0, 512, 32, np.int32) for name in ("ids", "wanted")} for _ in range(2)
    ]
    return Whole(cx, given, [{}, {}], parameters)


MODELS: dict[str, Callable[[], Whole]] = {
    each.__name__: each for each in (decode, prompt, resnet, training)
}


def compile_plainly(whole: Whole) -> Executable:
    return lm.compile(whole.graph, DEVICE)


def compile_calling(whole: Whole) -> Executable:
    """The program whose products the vendor's library computes, as far as it can."""
    name = {"cuda": "cublaslt", "hip": "hipblaslt"}[DEVICE]
    made = registry.find(DEVICE)
    space = Space(whole.graph.graph(), made)
    wished = {
        origin.name: called_by(name)
        for origin in space.decode(Genome()).stages.origins
        if name in made.library_calls(origin.steps[0])
    }
    candidate = space.decode(Genome().with_tuned(wished))
    return executable(space, candidate, made)


def bits(
    name: str,
    dispatch: str,
    hold: tuple[int, int] = (2, 0),
    compile_: Callable[[Whole], Executable] = compile_plainly,
) -> list[bytes]:
    """All outputs of the runs, which are finite and no two alike, and what States hold then."""
    DRIVER.stand_in_hold(*hold)
    with config.override(LUMINAL_DISPATCH=dispatch):
        whole = MODELS[name]()
        exe, found = compile_(whole), list[bytes]()
        for given, dims in zip(whole.given, whole.dims, strict=True):
            for array in map(np.asarray, exe(given, dims=dims).values()):
                assert np.isfinite(array.astype(np.float32)).all()
                found.append(array.tobytes())
        assert len({*found}) == len(found)
        return found + [state.numpy().tobytes() for state in whole.states]


@pytest.mark.parametrize("name", MODELS)
def test_whole_models_have_the_bits_of_the_list(name: str) -> None:
    expected, before = bits(name, "list"), calls("cooperative")
    assert bits(name, "one", HOLD) == expected
    assert calls("cooperative") - before >= 2


def test_calls_of_a_library_between_persistent_kernels() -> None:
    library = ctypes.CDLL(stand_in.LT[{"cuda": stand_in.CUDA, "hip": stand_in.HIP}[DEVICE]])
    expected = bits("training", "list", compile_=compile_calling)
    before = calls("cooperative"), library.stand_in_lt_calls(b"done")
    assert bits("training", "one", HOLD, compile_calling) == expected
    done = library.stand_in_lt_calls(b"done") - before[1]
    assert done > 16
    assert calls("cooperative") - before[0] > 8
