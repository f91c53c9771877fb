"""Calls that PyTorch's kernels refuse, which its decompositions and tensors without data let pass.

They are left to PyTorch, which raises for them as in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any

import torch

Operator = Any
"""An OpOverload, which PyTorch does not type."""

# Numbers that kernels convert to the dtype of their tensor; `other`, `exponent` and the like are
# computed with, and may be anything.
_CONVERTED = frozenset(
    "alpha beta value fill fill_value s min max min_val max_val lambd negative_slope weight margin "
    "lower upper threshold scale input_scale".split()
)

Rule = Callable[..., str]
"""Why a kernel refuses these tensors, or nothing."""


def _of_no_pixels(x: torch.Tensor, *_: torch.Tensor) -> str:
    return "of no pixels" if any(n == 0 for n in x.shape[1:]) else ""


def _of_dtypes(*tensors: torch.Tensor) -> str:
    """What is wrong with the dtypes of products and the like, which promote none."""
    dtypes = {str(x.dtype) for x in tensors}
    return f"of {' and '.join(sorted(dtypes))}" if len(dtypes) > 1 else ""


def _of_parameters(x: torch.Tensor, *parameters: torch.Tensor) -> str:
    """What is wrong with the parameters of norms; what has 16 bits may have parameters of 32."""
    if x.dtype.itemsize == 2 and all(parameter.dtype is torch.float32 for parameter in parameters):
        return ""
    return _of_dtypes(x, *parameters)


def _of_mask(_: torch.Tensor, mask: torch.Tensor, *__: torch.Tensor) -> str:
    return "" if mask.dtype is torch.bool else f"of a mask of {mask.dtype}"


def _of_positions(_: torch.Tensor, positions: torch.Tensor, *__: torch.Tensor) -> str:
    return "" if positions.dtype is torch.int64 else f"of positions of {positions.dtype}"


def _of_bools(*tensors: torch.Tensor) -> str:
    return "of torch.bool" if any(x.dtype is torch.bool for x in tensors) else ""


def _of_integers(x: torch.Tensor, *_: torch.Tensor) -> str:
    return "" if x.dtype.is_floating_point else f"of {x.dtype}"


def _of_weights(table: torch.Tensor, *others: torch.Tensor) -> str:
    """What is wrong with the weights of samples, which stand behind ids and offsets."""
    return _of_dtypes(table, *others[2:])


def _of_rank(x: torch.Tensor, *others: torch.Tensor) -> str:
    return "" if others[-1].ndim == x.ndim else f"of {x.ndim} and {others[-1].ndim} dims"


def _of_source(x: torch.Tensor, *others: torch.Tensor) -> str:
    """What is wrong with what is written at positions, which stand before it."""
    return _of_dtypes(x, others[-1]) if len(others) == 2 else ""


def _of_values(x: torch.Tensor, *others: torch.Tensor) -> str:
    """What is wrong with the values that are put at positions: a single one is converted where a
    mask says which.
    """
    *positions, values = others
    by_mask = [position.dtype for position in positions] == [torch.bool] and values.numel() == 1
    return "" if by_mask else _of_dtypes(x, values)


def _widened(x: torch.Tensor, y: torch.Tensor) -> str:
    shape = torch.broadcast_shapes(x.shape, y.shape)  # type: ignore[no-untyped-call]
    return "" if shape == x.shape else f"widens {x.shape}"


def _added(shape: Callable[[torch.Size, torch.Size], Sequence[int]]) -> Rule:
    """To a product, whose shape follows from those of its factors."""

    def rule(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> str:
        wanted = shape(a.shape, b.shape)
        extents = x.shape[::-1]
        fits = len(extents) <= len(wanted) and all(
            n == 1 or n == m for n, m in zip(extents, wanted[::-1], strict=False)
        )
        return "" if fits else f"adds {tuple(x.shape)} to {tuple(wanted)}"

    return rule


_RULES: dict[str, tuple[Rule, ...]] = {
    "multinomial": (_of_integers,),
    **dict.fromkeys(
        "_adaptive_avg_pool2d _adaptive_avg_pool3d grid_sampler_2d grid_sampler_3d".split(),
        (_of_no_pixels,),
    ),
    **dict.fromkeys(
        "mm bmm mv dot vdot convolution heaviside linalg_cross _cdist_forward "
        "_euclidean_dist".split(),
        (_of_dtypes,),
    ),
    **dict.fromkeys(
        "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit "
        "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training".split(),
        (_of_parameters,),
    ),
    "addmm": (_of_dtypes, _added(lambda a, b: (a[0], b[1]))),
    "addbmm": (_of_dtypes, _added(lambda a, b: (a[1], b[2]))),
    "baddbmm": (_of_dtypes, _added(lambda a, b: (a[0], a[1], b[2]))),
    "addmv": (_of_dtypes, _added(lambda a, b: a[:1])),
    "addr": (_added(lambda a, b: (a[0], b[0])),),
    **dict.fromkeys(("sub", "rsub"), (_of_bools,)),
    "masked_scatter": (_of_mask,),
    **dict.fromkeys(
        "index_add index_copy scatter scatter_add scatter_reduce".split(), (_of_source,)
    ),
    "index_put": (_of_values,),
    "index_fill": (_of_positions,),
    "index_reduce": (_of_source, _of_rank),
    "soft_margin_loss": (_of_integers, _widened),
    "binary_cross_entropy": (_of_dtypes,),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), (_of_weights,)),
}
"""The rules of each operator: they are called with its tensors."""


def refusal(op: Operator, args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Why the kernel refuses a call, as far as it is known before a run; empty if nothing is."""
    flat = [x for arg in args for x in (arg if isinstance(arg, list | tuple) else (arg,))]
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    for rule in _RULES.get(_name(op), ()):
        if reason := rule(*tensors):
            return f"{op}: {reason}"
    for position, name in _numbers(op):
        number = args[position] if position < len(args) else named.get(name)
        dtype = named.get("dtype") or _dtype(op, tensors[0] if tensors else None, number)
        if _is_beyond(number, dtype):
            return f"{op}: {name} {number} is beyond {dtype}"
    return ""


def left_if_refused(op: Operator, function: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves whole what the kernel refuses."""
    if not may_refuse(op):
        return function

    @wraps(function)
    def taken_apart(*args: Any, **named: Any) -> Any:
        return NotImplemented if refusal(op, args, named) else function(*args, **named)

    return taken_apart


@cache
def may_refuse(op: Operator) -> bool:
    """Is there anything to look at?"""
    return isinstance(op, torch._ops.OpOverload) and bool(_numbers(op) or _name(op) in _RULES)


def _name(op: Operator) -> str:
    return str(op._schema.name).rpartition("::")[2]


@cache
def _numbers(op: Operator) -> tuple[tuple[int, str], ...]:
    """The numbers that are converted: where they stand, and their names."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(op._schema.arguments)
        if argument.name in _CONVERTED and str(argument.type) in ("number", "Optional[number]")
    )


def _dtype(op: Operator, first: torch.Tensor | None, number: Any) -> torch.dtype:
    if first is None:
        return torch.int64 if isinstance(number, int) else torch.get_default_dtype()
    if _name(op).startswith("clamp") and isinstance(number, int | float):
        return torch.result_type(first, number)
    return first.dtype


def _is_beyond(number: Any, dtype: torch.dtype) -> bool:
    """Whether a number is beyond a dtype's range; negative ones wrap in unsigned integers."""
    if not isinstance(number, int | float) or dtype is torch.bool or dtype.is_complex:
        return False
    if dtype.is_floating_point:
        return math.isfinite(number) and abs(number) > torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    return not (limits.min or -limits.max) <= number <= limits.max  # NaN is beyond, too
