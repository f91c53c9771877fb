"""PyTorch's OpInfo samples through torch.compile: `python -m tests.torch_backend.opinfo_sweep`.

A name passes if every float32 sample of every variant does, as it is and with strided tensors, with
fullgraph=True and nothing left to PyTorch. `--gradients` compares gradients instead, `--dtypes` the
first sample of every dtype. Of a variant of many samples some are taken, evenly over their order;
the ledger says of how many. Samples are compiled some at a time, as one function; where that fails,
its halves tell which did. Each op runs in a process of its own; Ctrl-C ends a run, and the ledger
has what was found until then.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
    Check,
    Unequal,
    array_of,
    equal,
    leaves,
    same_type,
)

LISTS = {
    kind: Path(__file__).with_name(f"opinfo_{kind}.txt")
    for kind in ("values", "gradients", "dtypes")
}

BATCH = {"values": 16, "gradients": 4, "dtypes": 16}  # samples compiled as one function
LIMITS = {"values": 600, "gradients": 16}  # samples of a variant


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


def samples(op: Any, kind: str) -> list[tuple[str, Any]]:
    """All samples of a variant, by name, with always the same values; of each dtype, the first."""
    torch.manual_seed(0)
    if kind != "dtypes":
        given = op.sample_inputs("cpu", torch.float32, requires_grad=kind == "gradients")
        return [(f"sample {number}", sample) for number, sample in enumerate(given)]
    dtypes = sorted((op.dtypes - {torch.float32}) & DTYPES.keys(), key=str)
    return [
        (str(dtype).removeprefix("torch."), sample)
        for dtype in dtypes
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 1)
    ]


def cases(given: Sequence[tuple[str, Any]], op: Any, kind: str) -> list[Case]:
    """Calls of samples, those for values also with strided tensors."""
    found = []
    for name, sample in given:
        case = case_of(op, sample, name)
        if kind == "gradients" and not any(x.requires_grad for x in case.tensors):
            continue
        found.append(case)
        if kind == "values" and not any(map(_is_sparse, case.tensors)):
            found.append(case_of(op, sample.noncontiguous(), f"{name} strided"))
    return found


def spread(given: Sequence[Any], limit: int) -> list[Any]:
    """At most so many, evenly over their order."""
    count = min(limit, len(given))
    return [given[k * len(given) // count] for k in range(count)]


def _is_sparse(x: torch.Tensor) -> bool:
    return x.layout is not torch.strided


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
    """What is compared: results, or gradients of their sum times fixed numbers; complex ones as
    pairs.
    """
    if kind != "gradients":
        found = map(_real, leaves(results))
        return [x.clone() if isinstance(x, torch.Tensor) else x for x in found]
    flowing = _flowing([*map(_real, leaves(case.sample.output_process_fn_grad(results)))])
    wanted = [x for x in tensors if x.requires_grad]
    if not flowing or not wanted:
        return []
    total = sum((y * torch.linspace(-1, 2, y.numel()).reshape(y.shape)).sum() for y in flowing)
    return list(torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True))


def _real(x: Any) -> Any:
    """A complex tensor as one of pairs; anything else itself."""
    is_complex = isinstance(x, torch.Tensor) and x.is_complex()
    return torch.view_as_real(x.resolve_conj()) if is_complex else x


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
    torch.manual_seed(0)
    if kind == "gradients":
        wanted, check = _eager(case, kind, _copies(case)), _gradient_check(case)
    else:
        try:
            with torch.no_grad():
                wanted = _eager(case, kind, _copies(case))
        except RuntimeError:
            return  # PyTorch itself refuses the strided tensors
        check = _value_check(case)
    found = [array_of(x) if isinstance(x, torch.Tensor) else x for x in found]
    try:
        check(found, wanted)
    except (Unequal, AssertionError):
        if check is same_type or not _as_exact(case, found, wanted, kind):
            raise


def _eager(case: Case, kind: str, tensors: Sequence[torch.Tensor]) -> list[Any]:
    return values(case, case.call(tensors), tensors, kind)


def _gradient_check(case: Case) -> Check:
    is_random = case.op.name in opinfo_map.CHECKS and "linalg" not in case.op.name
    if (is_random and case.op.name != "svd") or case.sample.kwargs.get("dropout_p"):
        return same_type
    return equal_gradients


def _value_check(case: Case) -> Check:
    name = case.op.name
    if name == "rand_like" or case.sample.kwargs.get("dropout_p"):
        return same_type  # (what the database calls rand_like is randn_like)
    if name in TIED and not case.sample.kwargs.get("stable"):
        return partial(equal_but_for_ties, case)
    of_variant = opinfo_map.CHECKS.get(f"{name}/{case.op.variant_test_name}")
    return of_variant or opinfo_map.CHECKS.get(name) or equal


# Which of equal elements is taken PyTorch does not say: positions along the dim of this argument.
TIED = {"argsort": 0, "kthvalue": 1, "median": 0, "mode": 0, "nanmedian": 0, "sort": 0, "topk": 1}


def equal_but_for_ties(case: Case, found: Sequence[Any], wanted: Any) -> None:
    """As `equal`; positions are as good that hold equal elements, each but once."""
    has_positions = len(found) == 2 or case.op.name == "argsort"
    if not has_positions or not case.tensors[0].ndim:
        equal(found, wanted)
        return
    same_type(found, wanted)
    *values_, positions = found
    equal(values_, wanted[:-1])
    args = case.sample.args[TIED[case.op.name] :]
    dim = case.sample.kwargs.get("dim", args[0] if args else -1)
    x, places, own = array_of(case.tensors[0]), positions, array_of(wanted[-1])
    if places.ndim < x.ndim:
        places, own = np.expand_dims(places, dim), np.expand_dims(own, dim)
    held, wanted_there = (np.take_along_axis(x, each, dim) for each in (places, own))
    if not np.array_equal(held, wanted_there, equal_nan=True):
        raise Unequal("positions hold other elements than PyTorch's")
    if (np.diff(np.sort(places, dim), axis=dim) == 0).any():
        raise Unequal("positions repeat")


# How much farther from float64's results than PyTorch's own float32 ones results may be, where
# the sample is so ill-conditioned that those differ: other orders of the same sums.
FARTHER = 4
NARROW = (torch.float32, torch.float16, torch.bfloat16)


def _as_exact(case: Case, found: Sequence[Any], wanted: Sequence[Any], kind: str) -> bool:
    """Are the results about as near to those of float64 as PyTorch's are?"""
    try:
        same_type(found, wanted)
        exact = _eager(case, kind, [_wide(x) for x in _copies(case)])
    except Exception:  # the op does not take float64
        return False
    return all(map(_is_as_near, found, wanted, exact))


def _is_as_near(x: Any, y: Any, exact: Any) -> bool:
    if not isinstance(y, torch.Tensor) or y.dtype not in NARROW:
        return bool(np.array_equal(x, array_of(y) if isinstance(y, torch.Tensor) else y))
    x, own, center = (np.asarray(each, np.float64) for each in (x, array_of(y), array_of(exact)))
    finite = np.isfinite(own)
    same = np.array_equal(x[~finite], own[~finite], equal_nan=True)
    error, own_error = (abs(each - center)[finite].max(initial=0) for each in (x, own))
    return same and bool(error <= FARTHER * own_error)


def _wide(x: torch.Tensor) -> torch.Tensor:
    """As float64, a leaf of its own."""
    if x.dtype not in NARROW:
        return x
    return x.detach().double().requires_grad_(x.requires_grad)


def equal_gradients(found: Sequence[Any], wanted: Any) -> None:
    """As `equal`; gradients of float32 lose some digits more."""
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        largest = float(y.abs().nan_to_num(0, 0, 0).max()) if y.numel() else 0.0
        # gradients of float32 lose some digits more than values: 5e-5 of them
        torch.testing.assert_close(
            torch.from_numpy(x), y.detach(), rtol=1e-4, atol=max(5e-5, 1e-5 * largest),
            equal_nan=True,
        )  # fmt: skip


# Why results are not PyTorch's, where that is known.
REASONS = {
    "nn.functional.interpolate": "PyTorch's decomposition of uint8 is not its kernel's arithmetic",
    "nn.functional.upsample_bilinear": "PyTorch's decomposition of uint8 is not its kernel's",
    "nn.functional.multi_head_attention_forward": "dropout draws",
    "polygamma": "PyTorch's poles are finite: its sine of a multiple of pi is not 0",
    "special.polygamma": "PyTorch's poles are finite: its sine of a multiple of pi is not 0",
    "matrix_exp": "PyTorch's overflows in 16 bits",
    "pca_lowrank": "PyTorch draws the signs",
    "svd_lowrank": "PyTorch draws the signs",
}


def _line(case: Case, error: Exception) -> str:
    cause = error.__cause__ or error
    text = " ".join(str(cause).split()).removeprefix("backend='luminal_backend' raised: ")
    text = text.split(" Set TORCHDYNAMO_VERBOSE")[0][:200]
    if isinstance(error, Unequal | AssertionError) and case.op.name in REASONS:
        text = REASONS[case.op.name]
    return f"{case.name}: {type(cause).__name__}: {text}; {described(case.sample)}"


def unseeded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Instead of the database's guard around random operators, which is not what is compiled."""
    return function(*args, **kwargs)


def run_variant(kind: str, op: Any, backend: str, limit: int | None) -> Outcome:
    """Every sample of one variant; the reason is the first failure's, or those of all dtypes."""
    start = time.perf_counter()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    common_methods_invocations.wrapper_set_seed = unseeded
    given = samples(op, kind)
    chosen = given if kind == "dtypes" else spread(given, limit or LIMITS[kind])
    every = cases(chosen, op, kind)
    reasons: list[str] = []
    tried = 0
    # a batch that fails is slow, and reason enough
    while tried < len(every) and (kind == "dtypes" or not reasons):
        batch = every[tried : tried + BATCH[kind]]
        reasons += failures(batch, kind)
        tried += len(batch)
    reason = _joined(reasons) if kind == "dtypes" else reasons[0] if reasons else ""
    if not every:
        reason = "PyTorch has no samples"
    return Outcome(
        full_name(op), tried - len(reasons), len(every), reason, time.perf_counter() - start,
        len(given) - len(chosen),
    )  # fmt: skip


def _joined(reasons: Sequence[str]) -> str:
    """Reasons of dtypes, those alike together: `float16, float64: reason; bool: reason`."""
    dtypes: dict[str, list[str]] = {}
    for line in reasons:
        dtype, _, reason = line.partition(": ")
        dtypes.setdefault(reason.rpartition("; ")[0], []).append(dtype)
    return "; ".join(f"{', '.join(of)}: {reason}" for reason, of in dtypes.items())


def passing(text: str) -> dict[str, str]:
    """The names that a ledger says pass, each with its line."""
    return {line.split()[0]: line for line in _part(text, "passes:", "fails:")}


def failing(text: str) -> dict[str, list[str]]:
    """The names that a ledger says fail, each with the lines of its variants."""
    found: dict[str, list[str]] = {}
    for line in _part(text, "fails:", "the end"):
        found.setdefault(line.split()[0].rstrip(":").split("/")[0], []).append(line)
    return found


def _part(text: str, start: str, end: str) -> list[str]:
    found = text.partition(f"{start}\n")[2].partition(f"\n{end}\n")[0]
    return [line for line in found.splitlines() if line]


# --- report ---------------------------------------------------------------------------------------


def text_of(outcomes: Sequence[Outcome], kind: str, old: str = "") -> str:
    """The ledger: the counts, what passes, what does not and why; of other names, as in `old`."""
    good, bad = passing(old), failing(old)
    for name, parts in by_name(outcomes).items():
        good.pop(name, None), bad.pop(name, None)
        reasons = [f"  {p.name}: {p.passed}/{p.total}: {p.reason}" for p in parts if p.reason]
        if reasons:
            bad[name] = reasons
        else:
            good[name] = f"  {name} {_left(parts)}".rstrip()
    notes = sum("not tried" in line for line in good.values())
    some = f"; {notes} with a note some of theirs, spread over their order" if notes else ""
    share = "the first sample of every dtype" if kind == "dtypes" else "all samples"
    lines = [
        f"{len(good)} of {len(good) + len(bad)} op names pass {share} of PyTorch "
        f"{torch.__version__} through torch.compile ({kind}){some}.",
        "",
        "passes:",
        *(good[name] for name in sorted(good)),
        "",
        "fails:",
        *sorted(itertools.chain.from_iterable(bad.values())),
    ]
    return "\n".join(lines) + "\n"


def _left(parts: Sequence[Outcome]) -> str:
    left = sum(part.left for part in parts)
    return f"({left} samples not tried)" if left else ""


def keep(path: Path, outcome: Outcome) -> None:
    """Writes an outcome behind others."""
    with path.open("ab") as file:
        pickle.dump(outcome, file)


def read(path: Path) -> list[Outcome]:
    """The outcomes in a file, which may break off."""
    found = []
    with path.open("rb") as file, contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            found.append(pickle.load(file))
    return found


def _warm(x: torch.Tensor) -> torch.Tensor:
    """Compiled before processes are forked, so that each finds all modules imported."""
    return x.sin().sum()


def main() -> None:
    parser = parser_of("PyTorch's OpInfo samples through torch.compile")
    parser.add_argument("--gradients", action="store_true", help="compare gradients")
    parser.add_argument("--dtypes", action="store_true", help="the first sample of every dtype")
    parser.add_argument("--part", help="used by itself: which share of the ops")
    parser.add_argument("--out", type=Path, help="used by itself: the file for that share")
    parser.add_argument(
        "--again",
        action="store_true",
        help="run what the list says fails, or the named ops, and keep its other lines",
    )
    options = parser.parse_args()
    kind = "gradients" if options.gradients else "dtypes" if options.dtypes else "values"
    ops = [op for op in database() if not options.ops or op.name in options.ops]
    if kind == "gradients":
        ops = [op for op in ops if op.supports_autograd]
    old = options.list.read_text() if options.again else ""
    if old and not options.ops:
        ops = [op for op in ops if op.name not in passing(old)]

    def report(outcome: Outcome) -> None:
        if options.out:
            keep(options.out, outcome)
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
        run_all(ops[number::count], options, report, partial(run_variant, kind))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(k) for k in range(options.jobs)]
        command = [sys.executable, "-m", "tests.torch_backend.opinfo_sweep", *sys.argv[1:]]
        parts = [
            subprocess.Popen([*command, "--part", f"{k}/{len(files)}", "--out", str(file)])
            for k, file in enumerate(files)
        ]
        with contextlib.suppress(KeyboardInterrupt):  # the ledger is of what has been found
            for part in parts:
                part.wait()
        found = [each for file in files if file.exists() for each in read(file)]
    left = {op.name for op in ops if full_name(op) not in {each.name for each in found}}
    text = text_of([each for each in found if each.name.split("/")[0] not in left], kind, old)
    if options.list:
        options.list.write_text(text)
    print(text.split("\n\n")[0])


if __name__ == "__main__":
    main()
