"""Gradients of PyTorch's OpInfo samples: `python -m tests.autograd.opinfo_gradients`.

A name passes if in every float64 sample of every variant the gradients of all inputs that PyTorch
differentiates are PyTorch's. Each op runs in a process of its own, as in `tests.conformance`.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import luminal as lm
from luminal.frontend.graph import Recorder
from tests.conformance import opinfo_map
from tests.conformance.opinfo_run import (
    Outcome,
    by_name,
    database,
    described,
    full_name,
    parser_of,
    run_all,
)
from tests.conformance.opinfo_samples import Inputs, Unequal, array_of, computed, leaves

LIST = Path(__file__).with_name("opinfo.txt")

# Relative and absolute, by the bytes of a float: gradients of ill-conditioned samples (inverses,
# norms near 0) lose half of float64's digits; some samples have float32 tensors too.
TOLERANCES = {8: (1e-6, 1e-8), 4: (1e-5, 1e-5)}

# What draws random numbers has no derivative to compare.
RANDOM = "random numbers: the library's own"


class Wanted(NamedTuple):
    """What PyTorch gives for a sample: the cotangents of its results by position, and gradients."""

    cotangents: dict[int, np.ndarray[Any, Any]]
    gradients: list[np.ndarray[Any, Any]]


class Variables(Inputs):
    """The Inputs of a sample, and those of them that are differentiated."""

    def __init__(self, graph: Recorder, *, constant: bool = False, stem: str = "x") -> None:
        super().__init__(graph, constant=constant, stem=stem)
        self.variables: list[lm.Tensor] = []

    def _tensor(self, x: torch.Tensor) -> Any:
        found = super()._tensor(x)
        if x.requires_grad:
            self.variables.append(found)
        return found


def differentiable() -> list[Any]:
    """The OpInfos with gradients in float64."""
    return [
        op
        for op in database()
        if op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")
    ]


def samples(op: Any) -> Iterator[Any]:
    """The float64 samples in which something is differentiated."""
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
        if any(x.requires_grad for x in _tensors((sample.input, sample.args, sample.kwargs))):
            yield sample


def torch_gradients(op: Any, sample: Any) -> Wanted | None:
    """PyTorch's gradients of the sum of results times random cotangents; None: it has none."""
    copies: list[torch.Tensor] = []
    args = _copied((sample.input, *sample.args), copies)
    kwargs = _copied(sample.kwargs, copies)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        results = leaves(_processed(sample, op.op(*args, **kwargs)))
    draw = np.random.default_rng(0).standard_normal
    flowing = {
        k: y for k, y in enumerate(results) if isinstance(y, torch.Tensor) and y.requires_grad
    }
    if not flowing or any(y.is_complex() for y in flowing.values()):
        return None
    cotangents = {k: np.asarray(draw(tuple(y.shape))) for k, y in flowing.items()}
    total = sum((y * torch.from_numpy(cotangents[k])).sum() for k, y in flowing.items())
    found = torch.autograd.grad(total, copies, allow_unused=True, materialize_grads=True)
    return Wanted(cotangents, [_array(g) for g in found])


def _array(g: torch.Tensor) -> np.ndarray[Any, Any]:
    """A gradient's values; PyTorch has zeros without memory."""
    return np.zeros(g.shape) if g._is_zerotensor() else array_of(g)


def record(
    graph: Recorder, entry: opinfo_map.Entry, sample: Any, wanted: Wanted, stem: str
) -> list[str]:
    """The gradients of a sample as outputs of `graph`: their names."""
    inputs = Variables(graph, constant=entry.constant, stem=stem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = inputs.convert((sample.input, *sample.args))
        found = entry.call(*args, **inputs.convert(sample.kwargs))
        results = leaves(_processed(sample, found))
    total = graph.constant(0.0, "float64")
    for k, cotangent in wanted.cotangents.items():
        total = total + (results[k] * graph.constant(cotangent)).sum()
    names = []
    for k, g in enumerate(lm.grad(total, inputs.variables)):
        names.append(f"{stem}g{k}")
        graph.output(g, names[-1])
    return names


def compare(found: Sequence[np.ndarray[Any, Any]], wanted: Wanted) -> None:
    """Raises Unequal where a gradient is not PyTorch's."""
    for k, (x, y) in enumerate(zip(found, wanted.gradients, strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype:
            raise Unequal(f"gradient {k}: {x.dtype}{x.shape}, PyTorch has {y.dtype}{y.shape}")
        largest = float(np.max(np.abs(y), where=np.isfinite(y), initial=0))
        relative, absolute = TOLERANCES[y.dtype.itemsize]
        margin = max(absolute, relative * largest)
        wrong = ~np.isclose(x, y, rtol=relative, atol=margin, equal_nan=True)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise Unequal(
                f"gradient {k}: {int(wrong.sum())} of {wrong.size} values differ; "
                f"at {list(at)} {x[at]!s}, PyTorch has {y[at]!s}"
            )


class Case(NamedTuple):
    """One sample of one op, and what PyTorch gives for it."""

    name: str
    entry: opinfo_map.Entry
    sample: Any
    wanted: Wanted


def cases(op: Any, entry: opinfo_map.Entry, limit: int | None) -> Iterator[Case]:
    """The first samples of a variant for which PyTorch has gradients."""
    for number, sample in enumerate(itertools.islice(samples(op), limit)):
        wanted = torch_gradients(op, sample)
        if wanted is not None:
            yield Case(f"{full_name(op)} sample {number}", entry, sample, wanted)


def failures(batch: Sequence[Case], backend: str) -> list[str]:
    """What fails of cases recorded into one graph, a line each."""
    lm.reset()
    graph = lm.default_graph()
    failed, found = [], {}
    for k, case in enumerate(batch):
        try:
            found[k] = record(graph, case.entry, case.sample, case.wanted, f"case{k}_")
        except Exception as error:  # whatever it raises, it is a line of the report
            failed.append(_line(case, error))
    arrays = computed(graph, backend) if graph.sinks else {}
    for k, names in found.items():
        try:
            compare([arrays[name] for name in names], batch[k].wanted)
        except Unequal as error:
            failed.append(_line(batch[k], error))
    return failed


def _line(case: Case, error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{case.name}: {type(error).__name__}: {text}; {described(case.sample)}"


def run_variant(op: Any, backend: str, limit: int | None) -> Outcome:
    """Every sample of one variant; the reason is the first failure's."""
    name, start = full_name(op), time.perf_counter()
    entry = opinfo_map.entry(op.name, op.variant_test_name)
    if isinstance(entry, str):
        return Outcome(name, 0, 0, entry, 0.0)
    if entry.check is not None and op.name not in KNOWN_BY_PROCESSING:
        return Outcome(name, 0, 0, RANDOM, 0.0)
    passed, total, reasons = 0, 0, []
    for case in cases(op, entry, limit):
        lines = failures([case], backend)
        total, passed = total + 1, passed + (not lines)
        reasons += [line.removeprefix(f"{name} ") for line in lines]
    reason = reasons[0] if reasons else "" if total else "PyTorch has no gradient"
    if reasons and name in REASONS:
        reason = REASONS[name]
    return Outcome(name, passed, total, reason, time.perf_counter() - start)


# Where PyTorch's gradient is not what we want, or a sample is not for us.
REASONS = {
    "as_strided_scatter": "PyTorch's gradient flows to what was overwritten",
    "as_strided/partial_views": "a sample that PyTorch refuses with a copy's memory",
    "cholesky_inverse": "PyTorch's gradient flows to the triangle that is not read",
    "cholesky_solve": "PyTorch's gradient flows to the triangle that is not read",
    "cov": "beside float32 weights PyTorch rounds to float32",
    "linalg.norm/subgradients_at_zero": "equal singular values share",
    "linalg.pinv/singular": "the sample is a function of two factors",
    **dict.fromkeys(
        (f"nn.functional.max_unpool{n}d" for n in (1, 2, 3)),
        "PyTorch's gradient flows to what was overwritten",
    ),
    "nn.functional.ctc_loss": "PyTorch's gradient is that of the logits before log_softmax",
    "nn.functional.scaled_dot_product_attention": "samples with dropout draw random numbers",
    "nn.functional.triplet_margin_with_distance_loss": "samples pass modules of PyTorch",
}

# Their results are vectors with signs of their own; the samples compare what does not depend on it.
KNOWN_BY_PROCESSING = frozenset(["svd", "linalg.svd", "linalg.eigh"])


def _processed(sample: Any, result: Any) -> Any:
    process: Callable[[Any], Any] = sample.output_process_fn_grad
    return process(result)


def _tensors(x: Any) -> Iterator[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, dict):
        yield from _tensors(tuple(x.values()))
    elif isinstance(x, list | tuple):
        for each in x:
            yield from _tensors(each)


def _copied(x: Any, variables: list[torch.Tensor]) -> Any:
    """`x` with tensors of its own; those to differentiate are listed."""
    if isinstance(x, torch.Tensor):
        copy = x.detach().clone().requires_grad_(x.requires_grad)
        if x.requires_grad:
            variables.append(copy)
        return copy
    if isinstance(x, torch.Size):
        return x
    if isinstance(x, list | tuple):
        parts = [_copied(each, variables) for each in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if isinstance(x, dict):
        return {key: _copied(each, variables) for key, each in x.items()}
    return x


def text_of(outcomes: list[Outcome], limit: int | None, backend: str) -> str:
    """The report: the counts, what passes, what does not and why."""
    names = by_name(outcomes)
    good = [name for name, parts in names.items() if not any(part.reason for part in parts)]
    passed = sum(part.passed for part in outcomes)
    share = "every" if limit is None else f"the first {limit}"
    lines = [
        f"{len(good)} of {len(names)} op names with gradients have PyTorch {torch.__version__}'s "
        f"in {share} float64 sample on {backend} ({passed} samples pass).",
        "",
        "passes:",
        *(f"  {name}" for name in good),
        "",
        "fails:",
        *(
            f"  {part.name}: {part.passed}/{part.total}: {part.reason}"
            for parts in names.values()
            for part in parts
            if part.reason
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    options = parser_of("Gradients of PyTorch's OpInfo samples").parse_args()
    ops = [op for op in differentiable() if not options.ops or op.name in options.ops]

    def report(outcome: Outcome) -> None:
        if options.ops:
            print(f"{outcome.name}: {outcome.passed}/{outcome.total} {outcome.reason}")

    outcomes = run_all(ops, options, report, run_variant)
    text = text_of(outcomes, options.limit, options.backend)
    if options.list:
        options.list.write_text(text)
    print(text if not options.list else text.split("\n\n")[0])


if __name__ == "__main__":
    main()
