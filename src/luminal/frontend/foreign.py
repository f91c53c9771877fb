"""What users of PyTorch write and Luminal has not: taken where it means nothing, else explained."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from luminal.base import dtypes
from luminal.base.errors import DTypeError, InputError
from luminal.base.near_names import suggestion
from luminal.memory.arrays import MemorySpace

P = ParamSpec("P")
R = TypeVar("R")

PYTORCHS_DEVICES = ("cuda", "mps", "xpu", "meta")
"""Names that PyTorch has for devices, beside ours."""
HOSTS = ("cpu", "cpu:0")
NO_DEVICES = "arrays are computed on the CPU; leave it out (a graph may be for another: graph.to)"
ONE_DEVICE = "a graph is compiled for one device: graph.to(...), exe.to(...) or lm.device(...)"
GRADIENTS = "gradients are Tensors that lm.grad(loss, variables) gives; see docs/training.md"

DTYPES = {
    "bool": dtypes.bool_,
    "float": dtypes.float32,
    "double": dtypes.float64,
    "half": dtypes.float16,
    "short": dtypes.int16,
    "int": dtypes.int32,
    "long": dtypes.int64,
}
"""PyTorch's older names of dtypes: attributes of `luminal`, left out of `from luminal import *`."""

FILLS = {"uniform_": "lm.rand", "normal_": "lm.randn", "random_": "lm.randint"}
"""Methods that fill a tensor of PyTorch with random numbers, and what makes one of them here."""

WHY = {
    **dict.fromkeys(("grad_fn", "retain_grad"), GRADIENTS),
    "func": "lm.grad, vjp, jvp, jacrev, jacfwd, hessian and vmap are functions of lm itself",
    "amp": 'products in 16 bits are fit(..., amp="bfloat16") and lm.autocast; the scaler of losses '
    "is lm.training.GradScaler",
    "utils": "lm.training.Batches is what a DataLoader is; fit takes any iterable of batches; "
    "torch.nn.utils is lm.nn.utils",
    **dict.fromkeys(("cuda", "mps", "xpu", "get_device", "pin_memory"), ONE_DEVICE),
    "Size": "shapes are plain tuples",
    "Generator": "there are lm.manual_seed, and keys of lm.random",
    "set_default_dtype": "name the dtype where a tensor is made; numbers are float32",
    "data_ptr": "a Tensor has no memory of its own; x.numpy() has",
    "storage": "a Tensor has no memory of its own; x.numpy() has",
    "copy_": "Tensors do not change; a State does: lm.assign(state, value), or state.set(array)",
}


def is_device(x: Any) -> bool:
    """Does `x` name a device, there or not, as "auto", "cuda:1" or a torch.device?"""
    if not isinstance(x, str) and type(x).__name__ != "device":
        return False
    kind = str(x).partition(":")[0]
    return kind in ("auto", *MemorySpace.names, *PYTORCHS_DEVICES)


def check_device(what: str, device: Any) -> None:
    """Raises InputError for any device but the CPU; None is the CPU."""
    if device is not None and not (is_device(device) and str(device) in HOSTS):
        raise InputError(f"{what}: device {str(device)!r}: {NO_DEVICES}")


def type_and_device(targets: Sequence[Any], dtype: Any, device: Any) -> tuple[Any, Any]:
    """What `to(...)` asks for: a dtype, or what holds one, and a device; None for either.

    Raises DTypeError for a text that names neither.
    """
    for target in targets:
        if is_device(target):
            device = target
        elif isinstance(target, str):
            dtype = _named(target)
        else:
            dtype = target if isinstance(target, type) else getattr(target, "dtype", target)
    return dtype, device


def _named(text: str) -> dtypes.DType:
    try:
        return dtypes.dtype_of(text)
    except DTypeError as error:
        raise DTypeError(f"{error}; nor is it a device: see lm.devices()") from None


KEYWORDS = {"end": "stop", "steps": "num", "fill_value": "value", "n": "rows", "m": "columns"}
"""Names of parameters of PyTorch's functions that make tensors, and ours, which are NumPy's."""


def placed(function: Callable[P, R]) -> Callable[P, R]:
    """Lets a function that makes a Tensor take PyTorch's names of its parameters, `size` as a
    keyword, `device`, for its graph, and `requires_grad`, by which `requires_grad_` is called.
    """
    names = signature(function).parameters
    renamed = {theirs: ours for theirs, ours in KEYWORDS.items() if ours in names}
    takes_size = "size" not in names

    @wraps(function)
    def making(*args: P.args, **kwargs: P.kwargs) -> R:
        device, requires_grad = None, False
        if kwargs:
            for theirs in renamed.keys() & kwargs.keys():
                kwargs[renamed[theirs]] = kwargs.pop(theirs)
            if takes_size and "size" in kwargs:
                args = (kwargs.pop("size"), *args)  # type: ignore[assignment]
            device = kwargs.pop("device", None)
            kwargs.pop("pin_memory", None)
            requires_grad = bool(kwargs.pop("requires_grad", False))
        tensor: Any = function(*args, **kwargs)
        if requires_grad:
            tensor.requires_grad_()
        if device is not None:
            tensor.graph.place(function.__name__, device)
        return tensor  # type: ignore[no-any-return]

    return making


def in_place(function: Callable[P, R]) -> Callable[P, R]:
    """Lets a function take `inplace`, which changes nothing: Tensors are values."""

    @wraps(function)
    def accepting(*args: P.args, **kwargs: P.kwargs) -> R:
        kwargs.pop("inplace", None)
        return function(*args, **kwargs)

    return accepting


class AbsentError(AttributeError):
    """An attribute that is not there. What is like it is looked for when somebody reads the text:
    most often code only asks whether it is there.
    """

    def __init__(self, text: str, owner: Any, name: str) -> None:
        super().__init__(text, name=name)
        self.owner = owner

    def __str__(self) -> str:
        owner = sys.modules.get(self.owner) if isinstance(self.owner, str) else self.owner
        return f"{self.args[0]}{suggestion(self.name, dir(owner))}"


def absent(owner: Any, name: str, has: Callable[[str], bool]) -> AttributeError:
    """The error for an attribute that is not there; `has` says which names are."""
    kind = owner if isinstance(owner, str) else f"a {type(owner).__name__}"
    why = WHY.get(name)
    if why is None and name in FILLS:
        why = f"Tensors do not change; {FILLS[name]} draws"
    if why is None and name.endswith("_") and has(name[:-1]):
        why = f"Tensors do not change; write x = x.{name[:-1]}(...)"
    text = f"{kind} has no attribute {name!r}"
    if why:
        return AttributeError(f"{text}: {why}", name=name)
    return AbsentError(text, owner, name)
