"""What of PyTorch runs here: a list of operators, and what of a model would not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from luminal.torch_backend.decompositions import decompositions
from luminal.torch_backend.ops.registry import ROWS
from luminal.torch_backend.translation import missing


def supported_ops() -> list[str]:
    """The aten operators that are recorded as they are, or that PyTorch takes apart, sorted."""
    apart = {str(op).rpartition(".")[0] for op in decompositions() if op.namespace == "aten"}
    return sorted({".".join(name.split(".")[:2]) for name in ROWS} | apart)


def explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """What a call would leave to PyTorch, and why: a line each, none for a whole graph.

    Python that Dynamo cannot capture is named too.
    """
    from torch._dynamo.backends.common import aot_autograd

    lacking: list[str] = []

    def look(module: GraphModule, _: Any) -> Any:
        lacking.extend(dict.fromkeys(missing(module).values()))
        return module.forward

    backend = aot_autograd(fw_compiler=look, decompositions=decompositions())
    torch._dynamo.reset()
    reasons = torch._dynamo.explain(model)(*args, **kwargs).break_reasons
    torch._dynamo.reset()
    # Each look starts from nothing: what Dynamo has compiled of the model before must not answer
    # for this backend.
    torch.compile(model, backend=backend)(*args, **kwargs)
    torch._dynamo.reset()
    breaks = [f"graph break: {reason.reason.splitlines()[0]}" for reason in reasons]
    return list(dict.fromkeys([*breaks, *lacking]))
