"""PyTorch's OpInfo samples through torch.compile: `python -m tests.torch_backend.opinfo_sweep`.

A name passes if every float32 sample of every variant does, as it is and with strided tensors, with
fullgraph=True and nothing left to PyTorch. `--gradients` compares gradients instead, `--dtypes` the
first sample of every dtype. Samples are compiled some at a time, as one function; where that fails,
its halves tell which did. Each op runs in a process of its own.
"""

from __future__ import annotations

import itertools
import logging
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.testing._internal import common_methods_invocations

from luminal import luminal_backend
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
from tests.conformance.opinfo_samples import (
    DTYPES,
    array_of,
    equal,
    leaves,
    same_type,
)

LISTS = {kind: Path(__file__).with_name(f"opinfo_{kind}.txt") for kind in ("values", "gradients")}

BATCH = 16  # samples compiled as one function


class Case(NamedTuple):
    """One sample: its tensors in order, the call on such tensors, and how results are compared."""

    op: Any
    name: str
    sample: Any
    tensors: list[torch.Tensor]
    call: Callable[[Sequence[torch.Tensor]], Any]


def case_of(op: Any, sample: Any, name: str) -> Case:
    """A call of the op's function with the sample's tensors taken out."""
    tensors: list[torch.Tensor] = []

    def taken(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            tensors.append(x)
            return _Place(len(tensors) - 1)
        if isinstance(x, torch.Size):
            return x
        if isinstance(x, list | tuple):
            parts = [taken(each) for each in x]
            return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        return {key: taken(each) for key, each in x.items()} if isinstance(x, dict) else x

    args, kwargs = taken((sample.input, *sample.args)), taken(sample.kwargs)
    function = op.op

    def call(given: Sequence[torch.Tensor]) -> Any:
        return function(*_filled(args, given), **_filled(kwargs, given))

    return Case(op, name, sample, tensors, call)


class _Place(NamedTuple):
    """Stands for a tensor of the sample."""

    number: int


def _filled(x: Any, given: Sequence[torch.Tensor]) -> Any:
    if isinstance(x, _Place):
        return given[x.number]
    if isinstance(x, torch.Size):
        return x
    if isinstance(x, list):
        return [_filled(each, given) for each in x]
    if isinstance(x, tuple):
        parts = [_filled(each, given) for each in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    return {key: _filled(each, given) for key, each in x.items()} if isinstance(x, dict) else x


def cases(op: Any, limit: int | None, kind: str) -> Iterator[Case]:
    """The first samples of a variant, each also with strided tensors."""
    if kind == "dtypes":
        for dtype in sorted(op.dtypes - {torch.float32}, key=str):
            if dtype in DTYPES:
                given = op.sample_inputs("cpu", dtype, requires_grad=False)
                for sample in itertools.islice(given, 1):
                    yield case_of(op, sample, f"{full_name(op)} {dtype}")
        return
    given = op.sample_inputs("cpu", torch.float32, requires_grad=kind == "gradients")
    for number, sample in enumerate(itertools.islice(given, limit)):
        yield case_of(op, sample, f"sample {number}")
        if kind == "values":
            yield case_of(op, sample.noncontiguous(), f"sample {number} strided")


# --- running --------------------------------------------------------------------------------------


def _copies(case: Case) -> list[torch.Tensor]:
    """Tensors of the same strides in copies of their storages, that are leaves of their own."""
    return [_copy(x).requires_grad_(x.requires_grad) for x in case.tensors]


def _copy(x: torch.Tensor) -> torch.Tensor:
    if x.layout is not torch.strided:
        return x.detach().clone()
    whole = x.detach()
    storage = whole.untyped_storage().clone()
    empty = torch.empty(0, dtype=x.dtype)
    return empty.set_(storage, whole.storage_offset(), whole.size(), whole.stride())


def _flowing(results: Sequence[Any]) -> list[torch.Tensor]:
    return [y for y in results if isinstance(y, torch.Tensor) and y.requires_grad]


def values(case: Case, results: Any, tensors: Sequence[torch.Tensor], kind: str) -> list[Any]:
    """What is compared: results, or gradients of their sum times fixed numbers."""
    found = leaves(results)
    if kind != "gradients":
        return [x.clone() if isinstance(x, torch.Tensor) else x for x in found]
    flowing = _flowing(leaves(case.sample.output_process_fn_grad(results)))
    wanted = [x for x in tensors if x.requires_grad]
    if not flowing or not wanted:
        return []
    total = sum((y * torch.linspace(-1, 2, y.numel()).reshape(y.shape)).sum() for y in flowing)
    return list(torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True))


def failures(batch: Sequence[Case], kind: str) -> list[str]:
    """A line for each case that fails."""
    torch._dynamo.reset()
    given = [_copies(case) for case in batch]

    def together(given: Sequence[Sequence[torch.Tensor]]) -> list[Any]:
        return [case.call(tensors) for case, tensors in zip(batch, given, strict=True)]

    fast = torch.compile(
        together, backend=luminal_backend, fullgraph=True, dynamic=False,
        options={"fallback": "error"},
    )  # fmt: skip
    try:
        results = fast(given)
        found = [values(case, y, x, kind) for case, y, x in zip(batch, results, given, strict=True)]
    except Exception as error:
        if len(batch) == 1:
            return [_line(batch[0], error)]
        middle = len(batch) // 2
        return [*failures(batch[:middle], kind), *failures(batch[middle:], kind)]
    failed = []
    for case, values_ in zip(batch, found, strict=True):
        try:
            _compare(case, values_, kind)
        except Exception as error:
            failed.append(_line(case, error))
    return failed


def _compare(case: Case, found: Sequence[Any], kind: str) -> None:
    op = case.op
    if kind == "gradients":
        tensors = _copies(case)
        wanted: Any = values(case, case.call(tensors), tensors, kind)
        is_random = op.name in opinfo_map.CHECKS and "linalg" not in op.name
        check = equal_gradients
        if (is_random and op.name != "svd") or case.sample.kwargs.get("dropout_p"):
            check = same_type
    else:
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                wanted = case.call(_copies(case))
        except RuntimeError:
            return  # PyTorch itself refuses the strided tensors
        name = f"{op.name}/{op.variant_test_name}"
        check = opinfo_map.CHECKS.get(name) or opinfo_map.CHECKS.get(op.name) or equal
        if op.name == "rand_like" or case.sample.kwargs.get("dropout_p"):
            check = same_type  # (what the database calls rand_like is randn_like)
    check([array_of(x) if isinstance(x, torch.Tensor) else x for x in found], wanted)


def equal_gradients(found: Sequence[Any], wanted: Any) -> None:
    """As `equal`; gradients of float32 lose some digits more."""
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        largest = float(y.abs().nan_to_num(0, 0, 0).max()) if y.numel() else 0.0
        torch.testing.assert_close(
            torch.from_numpy(x), y.detach(), rtol=1e-4, atol=max(5e-5, 1e-5 * largest),
            equal_nan=True,
        )  # fmt: skip


def _line(case: Case, error: Exception) -> str:
    cause = error.__cause__ or error
    text = " ".join(str(cause).split()).removeprefix("backend='luminal_backend' raised: ")
    text = text.split(" Set TORCHDYNAMO_VERBOSE")[0][:200]
    return f"{case.name}: {type(cause).__name__}: {text}; {described(case.sample)}"


def unseeded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Instead of the database's guard around random operators, which is not what is compiled."""
    return function(*args, **kwargs)


def run_variant(kind: str, op: Any, backend: str, limit: int | None) -> Outcome:
    """Every sample of one variant; the reason is the first failure's."""
    start = time.perf_counter()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    common_methods_invocations.wrapper_set_seed = unseeded
    every = [
        case
        for case in cases(op, limit, kind)
        if kind != "gradients" or any(x.requires_grad for x in case.tensors)
    ]
    reasons: list[str] = []
    tried = 0
    while tried < len(every) and not reasons:  # a batch that fails is slow, and reason enough
        batch = every[tried : tried + BATCH]
        reasons += failures(batch, kind)
        tried += len(batch)
    reason = reasons[0] if reasons else "" if every else "PyTorch has no samples"
    seconds = time.perf_counter() - start
    return Outcome(full_name(op), tried - len(reasons), len(every), reason, seconds)


def passing(text: str) -> frozenset[str]:
    """The names that a ledger says pass."""
    passes = text.split("passes:\n")[1].split("\nfails:")[0]
    return frozenset(line.strip() for line in passes.splitlines() if line.strip())


# --- report ---------------------------------------------------------------------------------------


def text_of(outcomes: Sequence[Outcome], limit: int | None, kind: str) -> str:
    """The ledger: the counts, what passes, what does not and why."""
    names = by_name(outcomes)
    good = sorted(name for name, parts in names.items() if not any(p.reason for p in parts))
    share = "all samples" if limit is None else f"the first {limit} samples"
    lines = [
        f"{len(good)} of {len(names)} op names pass {share} of PyTorch {torch.__version__} "
        f"through torch.compile ({kind}).",
        "",
        "passes:",
        *(f"  {name}" for name in good),
        "",
        "fails:",
        *sorted(
            f"  {part.name}: {part.passed}/{part.total}: {part.reason}"
            for parts in names.values()
            for part in parts
            if part.reason
        ),
    ]
    return "\n".join(lines) + "\n"


def _warm(x: torch.Tensor) -> torch.Tensor:
    """Compiled before processes are forked, so that each finds all modules imported."""
    return x.sin().sum()


def main() -> None:
    parser = parser_of("PyTorch's OpInfo samples through torch.compile")
    parser.add_argument("--gradients", action="store_true", help="compare gradients")
    parser.add_argument("--dtypes", action="store_true", help="the first sample of every dtype")
    parser.add_argument("--part", help="used by itself: which share of the ops")
    parser.add_argument("--out", type=Path, help="used by itself: the file for that share")
    parser.add_argument("--again", action="store_true", help="run what the list says fails")
    options = parser.parse_args()
    kind = "gradients" if options.gradients else "dtypes" if options.dtypes else "values"
    ops = [op for op in database() if not options.ops or op.name in options.ops]
    if kind == "gradients":
        ops = [op for op in ops if op.supports_autograd]
    kept: list[Outcome] = []
    if options.again:
        good = passing(options.list.read_text())
        kept = [Outcome(full_name(op), 0, 0, "", 0.0) for op in ops if op.name in good]
        ops = [op for op in ops if op.name not in good]

    def report(outcome: Outcome) -> None:
        if options.ops or outcome.reason:
            print(
                f"{outcome.name}: {outcome.passed}/{outcome.total} {outcome.seconds:.0f}s "
                f"{outcome.reason}", flush=True,
            )  # fmt: skip

    if options.part:  # one of some processes, each of which forks from one thread only
        number, count = map(int, options.part.split("/"))
        options.jobs = 1
        torch.set_num_threads(1)
        torch.compile(_warm, backend=luminal_backend)(torch.ones(2, requires_grad=True)).backward()
        found = run_all(ops[number::count], options, report, partial(run_variant, kind))
        options.out.write_bytes(pickle.dumps(found))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(k) for k in range(options.jobs)]
        command = [sys.executable, "-m", "tests.torch_backend.opinfo_sweep", *sys.argv[1:]]
        parts = [
            subprocess.Popen([*command, "--part", f"{k}/{len(files)}", "--out", str(file)])
            for k, file in enumerate(files)
        ]
        for part in parts:
            part.wait()
        found = [each for file in files for each in pickle.loads(file.read_bytes())]
    by = {each.name: each for each in found}
    outcomes = [*kept, *(by[full_name(op)] for op in ops)]
    text = text_of(outcomes, options.limit, kind)
    if options.list:
        options.list.write_text(text)
    print(text.split("\n\n")[0])


if __name__ == "__main__":
    main()
