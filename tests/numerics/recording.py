"""Records a function of Tensors, runs it on a backend (the reference by default): NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from luminal.backends.reference import evaluate
from luminal.frontend.graph import Recorder
from luminal.frontend.scan import flatten
from luminal.hlir.attributes import InputAttrs
from luminal.hlir.graph import Graph
from luminal.hlir.verify import verify
from luminal.session.graph import compile

Array = np.ndarray[Any, Any]

_backend: ContextVar[str] = ContextVar("backend", default="reference")


@contextmanager
def on(backend: str) -> Iterator[None]:
    """Runs what is recorded inside the block on `backend`."""
    token = _backend.set(backend)
    try:
        yield
    finally:
        _backend.reset(token)


def run(fn: Callable[..., Any], *arrays: Any, shapes: Any = None, dims: Any = None) -> Any:
    """`fn` of Tensors with the values `arrays`; the result has the structure that fn returns.

    `shapes` gives the inputs symbolic shapes, `dims` the dims' values.
    """
    cx = Recorder()
    given = [np.asarray(a) for a in arrays]
    symbolic = shapes or [a.shape for a in given]
    tensors = [
        cx.tensor(tuple(s), a.dtype, f"x{k}")
        for k, (a, s) in enumerate(zip(given, symbolic, strict=True))
    ]
    leaves, tree = flatten(fn(*tensors))
    for leaf in leaves:
        leaf.graph.output(leaf)
    return tree.build(results(cx, leaves, {f"x{k}": a for k, a in enumerate(given)}, dims))


def results(
    cx: Recorder, leaves: list[Any], inputs: Mapping[str, Array], dims: Any = None
) -> list[Array]:
    """The values of `leaves`, which are outputs of `cx`."""
    graph = cx.graph()
    verify(graph)
    found = _computed(cx, graph, {**cx.values, **inputs}, dims or {})
    names = {sink.value: sink.name for sink in graph.sinks if hasattr(sink, "name")}
    return [found[names[leaf.value]] for leaf in leaves]


def _computed(
    cx: Recorder, graph: Graph, inputs: Mapping[str, Array], dims: Mapping[str, int]
) -> Mapping[str, Array]:
    """Every output by name."""
    if _backend.get() == "reference":
        return evaluate(graph, inputs, dims)
    exe = compile(cx, backend=_backend.get())
    used = {node.attrs.name for node in graph.nodes() if isinstance(node.attrs, InputAttrs)}
    return exe({name: array for name, array in inputs.items() if name in used}, dims=dims)
