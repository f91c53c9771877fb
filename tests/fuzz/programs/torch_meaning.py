"""What a Program means in PyTorch.

Floats are computed in float64 and rounded to their dtype after each step: closer to the true value
than PyTorch's own float32, and the dtype is PyTorch's all the same. A single +, -, *, / or square
root is rounded as IEEE asks for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from luminal.base import dtypes
from tests.fuzz.programs.form import Array, Leaf, Node, Program, code_of

ALIKE = 0.1  # relative; a float16 step of several operations stays well below
NARROW = (torch.float16, torch.bfloat16, torch.float32)


def to_torch(array: Array) -> torch.Tensor:
    array = array.copy(order="C")  # PyTorch would write through to it, or warn
    if dtypes.dtype_of(array) is dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor) -> Array:
    tensor = tensor.detach().contiguous().resolve_conj()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtypes.bfloat16.numpy)
    return np.asarray(tensor.numpy())


def evaluate(program: Program, run: int, states: Mapping[int, Array]) -> list[torch.Tensor]:
    """The value of every node in a run; `states`: what State leaves hold, by number."""
    env = program.env(run)
    values: list[torch.Tensor] = []
    for number, node in enumerate(program.nodes):
        given = states.get(number)
        values.append(meaning(node, values, env, run, given))
    return values


def meaning(
    node: Node,
    values: Sequence[torch.Tensor],
    env: Mapping[str, int],
    run: int,
    given: Array | None = None,
) -> torch.Tensor:
    """The value of a node; PyTorch's errors pass through.

    ArithmeticError where its own dtype is too narrow for what the step computes on the way.
    """
    if isinstance(node, Leaf):
        return to_torch(node.array(env, run) if given is None else given)
    code = code_of(node.torch or node.text)
    operands = [values[arg] for arg in node.args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = _evaluated(code, operands, env)
        if node.by_bits or (not plain.is_floating_point() and not any(map(_narrow, operands))):
            return plain
        wide = _evaluated(code, [x.double() if _narrow(x) else x for x in operands], env)
    found = wide.to(plain.dtype)
    if found.is_floating_point() and not _alike(plain.double(), found.double()):
        raise ArithmeticError("PyTorch's own precision is not enough, or it overflows on the way")
    return found


def _alike(plain: torch.Tensor, wide: torch.Tensor) -> bool:
    """Whether float64 gives what PyTorch gives by itself, roughly."""
    finite = wide.isfinite()
    if not torch.equal(plain.isfinite(), finite):
        return False
    return bool(((plain - wide).abs()[finite] <= ALIKE * (wide.abs()[finite] + 0.1)).all())


def _narrow(x: torch.Tensor) -> bool:
    return x.dtype in NARROW


def _evaluated(code: Any, operands: Sequence[torch.Tensor], env: Mapping[str, int]) -> torch.Tensor:
    names = {f"_{k}": operand for k, operand in enumerate(operands)}
    found = eval(code, {"lm": LM, "F": torch.nn.functional, "cx": LM, **env, **names})
    assert isinstance(found, torch.Tensor)
    return found


class _Names:
    """Stands for `lm` and for a Graph: torch's functions, and Luminal's own under their names."""

    bool_ = torch.bool

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def scan(
        fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: int = 0
    ) -> tuple[Any, Any]:
        trips = length if xs is None else len(xs)
        carry, ys = init, []
        for trip in range(trips):
            carry, y = fn(carry, None if xs is None else xs[trip])
            ys.append(y)
        return carry, torch.stack(ys)

    @staticmethod
    def first_max(x: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
        """The first position of the greatest element; NaN is greater than all."""
        found = to_numpy(x.double() if x.is_floating_point() else x)
        return torch.from_numpy(np.asarray(np.argmax(found, dim, keepdims=keepdim)))

    @staticmethod
    def first_min(x: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
        found = to_numpy(x.double() if x.is_floating_point() else x)
        return torch.from_numpy(np.asarray(np.argmin(found, dim, keepdims=keepdim)))

    @staticmethod
    def top(x: torch.Tensor, k: int, dim: int, part: int) -> torch.Tensor:
        """Values (part 0) or positions (part 1) of the k greatest, the first of equals first."""
        return x.sort(dim=dim, descending=True, stable=True)[part].narrow(dim, 0, k)


LM = _Names()
