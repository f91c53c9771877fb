"""The backend that Dynamo calls: options, AOTAutograd, and a program for each graph it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.schemas import OutputType
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx import GraphModule

from luminal.torch_backend.decompositions import decompositions
from luminal.torch_backend.devices import device_of
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.functional import (
    copy_kept_sizes,
    has_labels_behind_an_end,
    has_out_of_another_dtype,
    has_refused_call,
)
from luminal.torch_backend.options import Options
from luminal.torch_backend.plans import Results
from luminal.torch_backend.segments import compiled_in_parts
from luminal.torch_backend.separate import (
    Writes,
    falling_back,
    left_to_eager,
    separated,
    writes_shared_places,
    writes_what_may_be_a_copy,
)


def luminal_backend(
    module: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compiles a graph of Dynamo's: `torch.compile(model, backend=luminal_backend)`, or by name.

    `options`: "mode" ("fast", "optimal" or seconds), "search_iterations", "numerics" (as of
    `lm.compile`), and "fallback": "eager" runs what the library has not in PyTorch, with a warning
    that names it, "error" raises UnsupportedError.
    """
    chosen = Options.of(options or {})
    # Asked of Dynamo's graph, before AOTAutograd: that one takes calls apart, and what eager mode
    # would have refused is no longer to be seen.
    for is_eager, reason in _EAGER.items():
        if is_eager(module):
            return left_to_eager(module, reason, falls_back=chosen.falls_back)
    try:
        device_of(module, "example_value")
    except UnsupportedError as error:
        return left_to_eager(module, str(error), falls_back=chosen.falls_back)
    copy_kept_sizes(module)
    writes = Writes()
    compiler = aot_autograd(
        fw_compiler=partial(_compile_forward, chosen, writes),
        bw_compiler=partial(_compile_backward, chosen),
        inference_compiler=partial(_compile_inference, chosen, writes),
        decompositions=decompositions(),
        # The partition with recomputation, as Inductor has it: what is kept between the passes is
        # memory, which costs more than computing cheap values again.
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    call = compiler(module, separated(module, inputs))
    return falling_back(call, module, inputs, writes, falls_back=chosen.falls_back)


_EAGER = {
    writes_shared_places: "a graph that writes one place for several elements of a view",
    writes_what_may_be_a_copy: "a training graph that writes a copy of a view with gaps",
    has_refused_call: "a graph with a call that its kernel refuses",
    has_out_of_another_dtype: "a graph with a call whose `out` has another dtype",
    has_labels_behind_an_end: "a graph with multilabel_margin_loss",
}
"""What is left to PyTorch as a whole, and why."""


def _compile_forward(
    options: Options, writes: Writes, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """Compiles the forward graph of training: AOTAutograd makes views among results anew, where
    these say that they lie. What is kept for the backward pass, behind all other results, lies
    as the program likes.
    """
    metadata = _metadata(writes)
    count = metadata.num_forward_returns if metadata else None
    return compiled_in_parts(module, (), options, Results(count, of_arguments=_aliases(metadata)))


def _compile_backward(
    options: Options, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """Gradients lie apart, as one may be changed where it lies."""
    return compiled_in_parts(module, (), options, Results(0, share=False))


def _compile_inference(
    options: Options, writes: Writes, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    metadata = _metadata(writes)
    static = metadata.static_input_indices if metadata else ()  # the same tensors in every call
    return compiled_in_parts(module, static, options, Results(of_arguments=_aliases(metadata)))


def _metadata(writes: Writes) -> Any:
    """What AOTAutograd knows of the arguments and results of the graph that is compiled."""
    context = TracingContext.try_get()
    metadata = context and context.fw_metadata
    if metadata:
        writes.written = {k for k, info in enumerate(metadata.input_info) if info.mutates_data}
        writes.by_offset = writes.written & {
            info.base_idx
            for info in metadata.output_info
            if info.output_type is OutputType.alias_of_input
            and (info.view_meta_sequence is None or _is_open(info.view_meta_sequence))
        }
    return metadata


def _is_open(views: Any) -> bool:
    return any(view.has_symbolic_inputs for view in views.sequence)


def _aliases(metadata: Any) -> frozenset[int]:
    """The numbers of the results that are views of arguments."""
    if not metadata:
        return frozenset()
    first = metadata.num_mutated_inp_runtime_indices
    kinds = (OutputType.alias_of_input, OutputType.is_input)
    return frozenset(
        first + k for k, info in enumerate(metadata.output_info) if info.output_type in kinds
    )
