"""The examples of the reference give what they show, and what PyTorch or NumPy give for them."""

from __future__ import annotations

import inspect
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
SAMPLE = [each for each in ALL if each.module not in examples.NEEDED][::80]

OURS = {
    "luminal": (
        "all_gather all_reduce all_to_all assign astype autocast checkpoint CompilationMode "
        "compile compile_count CompileError ComplexTensor constant cumulative_prod "
        "cumulative_sum custom_kernel custom_vjp default_graph DeviceError devices DimError "
        "DType DTypeBoundaryError DTypeError Executable execute Expression Graph GraphError "
        "GraphTensor InputError instance_norm iota jit load load_exported LoadError "
        "LuminalError Mesh Parameter permute_ranks promote_types quantize rank_along read "
        "recording reduce_scatter require reset result_type Run save save_gguf scan "
        "SearchOptions ShapeError shard spmd State stop_gradient TimeBudget to_dlpack tri "
        "unique value_and_grad VerifyError weight"
    ),
    "luminal.Tensor": (
        "bitcast cast cbrt device dtype extents keep merge_dims output parameter retrieve set "
        "shard slice split_dims state"
    ),
    "luminal.linalg": "matrix_transpose outer",
    "luminal.nn": (
        "alibi_slopes Attention Cache causal_mask FeedForward FocalLoss GatedFeedForward "
        "keyed KVCache MaskedAttention MoE RelativeBias RMSELoss RotaryEmbedding "
        "SigmoidFocalLoss SwiGLU"
    ),
    "luminal.nn.functional": "focal_loss rmse_loss sigmoid_focal_loss",
    "luminal.nn.init": (
        "constant dirac drawn DrawnParameter eye fans kaiming_normal kaiming_uniform normal "
        "ones orthogonal parameter sparse trunc_normal uniform xavier_normal xavier_uniform "
        "zeros"
    ),
    "luminal.optim": (
        "adadelta_on_graph adagrad_on_graph adam_on_graph adamax_on_graph clip_grad_norm "
        "clip_grad_value grad_norm LAMB lamb_on_graph Lion lion_on_graph muon_on_graph "
        "nadam_on_graph radam_on_graph rmsprop_on_graph sgd_momentum_on_graph sgd_on_graph"
    ),
    **dict.fromkeys(
        (f"luminal.{name}" for name in (
            "array_api", "distributed", "models", "onnx", "random", "torch_backend", "training",
        )),
        "all",
    ),
}  # fmt: skip
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
@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of PyTorch's own modules
@pytest.mark.parametrize("module", examples.modules())
def test_all_give_what_they_show(module: str) -> None:
    if module in examples.NEEDED:
        pytest.importorskip(examples.NEEDED[module])
    assert [*faults([*examples.read(module).values()])] == []


def test_they_are_of_public_names() -> None:
    for module in examples.modules():
        assert set(examples.read(module)) <= offered(module), module


@pytest.mark.long
def test_every_public_name_has_one() -> None:
    for home in (*reference.MODULES, "luminal.Tensor"):
        names = {name for name in offered(home) if not reference.example_of(name, home)}
        modules = {name for name in names if inspect.ismodule(reference.held(f"{home}.{name}"))}
        assert names - modules <= PLAIN, home


PLAIN = {"P", "WandB"}
"""What types are written with, and what logs elsewhere."""


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
            warnings.simplefilter("ignore")  # PyTorch says what is beta, or deprecated
            expected = example.given(names)
        found = example.given(ours)
        assert same(found, expected), f"{example.module}.{example.name}: {found}, not {expected}"
        compared += 1
    assert compared > 750


@pytest.mark.long
def test_numpy_gives_the_same_arrays() -> None:
    """NumPy's own namespace is of the array API, but for bfloat16 and what says which dtype."""
    theirs, ours = {"np": np, "xp": np}, examples.known()
    for example in examples.read("luminal.array_api").values():
        if example.name not in ("Array", "bfloat16"):
            found, expected = (listed(example.given(names)) for names in (ours, theirs))
            assert same(found, expected), f"{example.name}: {found}, not {expected}"


def listed(shown: Any) -> Any:
    return np.asarray(shown).tolist() if hasattr(shown, "__array_namespace__") else shown


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if type(expected).__name__ == "dtype":
        return bool(found.name == str(expected).removeprefix("torch."))
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(found)
    if isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-6)
    return bool(found == expected)
