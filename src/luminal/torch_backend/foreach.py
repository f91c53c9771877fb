"""Operators of lists of tensors, as optimizers use them on GPUs: a call for each tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

_PREFIX = "aten::_foreach_"
_aten = torch.ops.aten


def taken_apart() -> dict[Any, Callable[..., list[torch.Tensor]]]:
    """Decompositions of `_foreach_add` and the like, by operator."""
    schemas = [
        schema
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith(_PREFIX)
        and not schema.name.endswith("_")  # which AOTAutograd writes as one that gives new tensors
        and not schema.overload_name.endswith("out")
        and not any(  # numbers that a tensor holds, which Dynamo refuses
            argument.name == "scalars" and str(argument.type) == "Tensor"
            for argument in schema.arguments
        )
    ]
    decompositions: dict[Any, Callable[..., list[torch.Tensor]]] = {}
    for schema in schemas:
        name = schema.name.removeprefix(_PREFIX)
        single = _SINGLE.get(name) or getattr(_aten, name, None)
        packet = getattr(_aten, schema.name.removeprefix("aten::"))
        if single is not None:
            operator = getattr(packet, schema.overload_name or "default")
            decompositions[operator] = partial(_one_by_one, single)
    return decompositions


def _one_by_one(
    single: Callable[..., torch.Tensor], *args: Any, **named: Any
) -> list[torch.Tensor]:
    """The results of `single` for each tensor of the lists; what is no list is the same for all."""
    columns = [x if isinstance(x, list | tuple) else None for x in args]
    count = next(len(column) for column in columns if column is not None)
    rows = [
        [x if column is None else column[k] for x, column in zip(args, columns, strict=True)]
        for k in range(count)
    ]
    return [single(*row, **named) for row in rows]


def _added(product: Any, x: torch.Tensor, a: Any, b: Any, value: Any = 1) -> torch.Tensor:
    result: torch.Tensor = product(x, a, b, value=value)
    return result


def _extreme(of_two: Any, by_number: Any, x: torch.Tensor, y: Any) -> torch.Tensor:
    result: torch.Tensor = (of_two if isinstance(y, torch.Tensor) else by_number)(x, y)
    return result


def _norm(x: torch.Tensor, order: Any = 2, dtype: Any = None) -> torch.Tensor:
    result: torch.Tensor = _aten.linalg_vector_norm(x, order, dtype=dtype)
    return result


def _copied(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    result: torch.Tensor = _aten.copy(x, source)
    return result


_SINGLE: dict[str, Callable[..., torch.Tensor]] = {
    "addcmul": partial(_added, _aten.addcmul),
    "addcdiv": partial(_added, _aten.addcdiv),
    "maximum": partial(_extreme, _aten.maximum, _aten.clamp_min),
    "minimum": partial(_extreme, _aten.minimum, _aten.clamp_max),
    "norm": _norm,
    "copy": _copied,
    "zero": torch.zeros_like,
}
"""What is not the operator of the same name."""
