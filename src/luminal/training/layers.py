"""What every layer of a module gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from luminal.frontend.graph import Recorder
from luminal.frontend.handle import is_tensor
from luminal.frontend.tensor import Tensor
from luminal.nn.module import Module


@contextmanager
def noted_results(
    model: Module, graph: Recorder, wanted: bool = True
) -> Iterator[dict[str, Tensor]]:
    """Notes the first result of each layer by its path, of what is recorded inside the block; where
    they are not wanted, none.
    """
    results: dict[str, Tensor] = {}
    wrapped: list[tuple[Module, Any]] = []
    # Reversed, so that of a module with several paths the first one is left.
    modules = [*model.named_modules()] if wanted else []
    paths = {module: path for path, module in reversed(modules)}
    for module, path in paths.items():
        wrapped.append((module, vars(module).get("forward")))
        vars(module)["forward"] = partial(_forward, results, graph, path, module.forward)
    try:
        yield results
    finally:
        for module, before in wrapped:
            if before is None:
                del vars(module)["forward"]
            else:
                vars(module)["forward"] = before


def _forward(
    results: dict[str, Tensor],
    graph: Recorder,
    path: str,
    forward: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    result = forward(*args, **kwargs)
    if is_tensor(result) and result.graph is graph:
        results.setdefault(path, result)
    return result
