"""The backend that Dynamo calls: options, AOTAutograd, and a program for each graph it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx import GraphModule

from luminal.torch_backend.decompositions import decompositions
from luminal.torch_backend.options import Options
from luminal.torch_backend.segments import compiled_in_parts


def luminal_backend(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compiles a graph of Dynamo's: `torch.compile(model, backend=luminal_backend)`, or by name.

    `options`: "mode" ("fast", "optimal" or seconds), "search_iterations", "numerics" (as of
    `lm.compile`), and "fallback": "eager" runs what the library has not in PyTorch, with a warning
    that names it, "error" raises UnsupportedError.
    """
    chosen = Options.of(options or {})
    compiler = aot_autograd(
        fw_compiler=partial(_compile_forward, chosen),
        bw_compiler=partial(_compile_backward, chosen),
        inference_compiler=partial(_compile_inference, chosen),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return compiler(module, inputs)


def _compile_forward(
    options: Options, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """Of training: AOTAutograd makes views among results anew, where these say that they lie."""
    return compiled_in_parts(module, (), options, shares=True)


def _compile_backward(
    options: Options, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """Gradients lie apart, as one may be changed where it lies."""
    return compiled_in_parts(module, (), options, shares=False)


def _compile_inference(
    options: Options, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    return compiled_in_parts(module, _static(), options, shares=True)


def _static() -> tuple[int, ...]:
    """The arguments that are parameters and buffers: the same tensors in every call."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return ()
    return tuple(context.fw_metadata.static_input_indices)
