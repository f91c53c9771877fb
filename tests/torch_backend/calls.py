"""Calls near those of PyTorch's operator database, compared with eager mode in values and errors:
`python -m tests.torch_backend.calls --cases 2000 --seed 0`.

A case is one of the database's own calls that must fail, or a sample of an operator with an
argument or two changed: a tensor's sizes, dtype or elements, a number, a dim, a list. Where eager
mode raises the compiled call has to, else the values have to be the same; but for what `KNOWN`
lists, each of which docs/torch.md explains.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from random import Random
from typing import Any, NamedTuple

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.opinfo.core import SampleInput

from luminal import luminal_backend
from tests.conformance.opinfo_run import database, described, full_name
from tests.conformance.opinfo_samples import Unequal, Unsupported
from tests.torch_backend.opinfo_sweep import (
    LISTS,
    Case,
    _compare,
    _copies,
    case_of,
    passing,
    unseeded,
    values,
)

SAMPLES = 24  # of an operator, from which one is drawn
ERRORS = (RuntimeError, IndexError, ValueError, TypeError)

NUMBERS: tuple[float, ...] = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1.05, 2.0, 3.0, 1e-300, 1e30, 1e300, -1e300, math.inf, -math.inf,
    math.nan,
)  # fmt: skip
INTEGERS = (-3, -2, -1, 0, 1, 2, 3, 5, 100)
DTYPES = (
    torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip
WORDS = "none mean sum nearest bilinear trilinear bicubic area zeros border tanh trunc amax".split()


PRIVATE = frozenset(
    ["native_batch_norm", "native_layer_norm", "grid_sampler_2d", "grid_sampler_3d"]
)  # by other names
CRASHES = frozenset(["lu_unpack"])  # PyTorch itself, which reads factors where they have no row


class Drawn(NamedTuple):
    """`change`: what was changed of a sample, or that it is one that must fail."""

    case: Case
    change: str

    def __str__(self) -> str:
        return f"{full_name(self.case.op)}: {self.change}: {described(self.case.sample)}"


# --- drawing -----------------------------------------------------------------------------------


@cache
def operators() -> list[Any]:
    """Those that the library has, but PyTorch's private ones, which check little."""
    known = passing(LISTS["values"].read_text())
    return [op for op in database() if op.name in known and _is_public(op)]


def _is_public(op: Any) -> bool:
    is_private = op.name.startswith("_") and not op.name.startswith("__")
    return torch.float32 in op.dtypes and not is_private and op.name not in PRIVATE | CRASHES


@cache
def _errors(name: str) -> list[Any]:
    """Calls of a variant that must fail, and can be told from others by their arguments."""
    op = next(each for each in operators() if full_name(each) == name)
    torch.manual_seed(0)
    if op.error_inputs_func is None:
        return []
    given = [each.sample_input for each in op.error_inputs("cpu")]
    return [each for each in given if not any(_is_elsewhere(x) for x in _leaves(each))]


def _is_elsewhere(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and (x.layout is not torch.strided or x.is_complex())


@cache
def _samples(name: str) -> list[Any]:
    op = next(each for each in operators() if full_name(each) == name)
    torch.manual_seed(0)
    dtype = torch.float32
    return list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES))


def drawn(seed: int) -> Drawn:
    """A case; the same one for the same seed."""
    with ThreadPoolExecutor(1) as pool:  # its stack is short: each SampleInput looks at all of it
        return pool.submit(_drawn, Random(seed)).result()


def _drawn(draw: Random) -> Drawn:
    if draw.random() < 0.2:
        named = [op for op in operators() if op.error_inputs_func is not None]
        op = draw.choice(named)
        given = _errors(full_name(op))
        if given:
            return Drawn(case_of(op, draw.choice(given), "must fail"), "must fail")
    while True:
        op = draw.choice(operators())
        given = _samples(full_name(op))
        if not given:
            continue
        sample = draw.choice(given)
        change, changed = _changed(draw, sample)
        if change and draw.random() < 0.3:
            other, again = _changed(draw, changed)
            change, changed = (f"{change}, {other}", again) if other else (change, changed)
        if change:
            return Drawn(case_of(op, changed, change), change)


def _changed(draw: Random, sample: Any) -> tuple[str, Any]:
    """The sample with one of its arguments changed, and how."""
    parts = [sample.input, *sample.args, *sample.kwargs.values()]
    places = [place for k, part in enumerate(parts) for place in _places(part, (k,))]
    place = draw.choice(places)
    old: Any = parts
    for k in place:
        old = old[k]
    text, new = _another(draw, old)
    if not text:
        return "", None
    first, *others = _replaced(parts, place, new)
    count = len(sample.args)
    named = dict(zip(sample.kwargs, others[count:], strict=True))
    name = ([*map(str, range(1 + count)), *named])[place[0]]
    return f"{name}{list(place[1:]) or ''} {text}", SampleInput(
        first, args=tuple(others[:count]), kwargs=named
    )


def _places(x: Any, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield path
    if isinstance(x, list | tuple) and not isinstance(x, torch.Size):
        for k, each in enumerate(x):
            yield from _places(each, (*path, k))


def _leaves(sample: Any) -> list[Any]:
    found = []
    for part in (sample.input, *sample.args, *sample.kwargs.values()):
        found += part if isinstance(part, list | tuple) else [part]
    return found


def _replaced(x: Any, place: Sequence[int], new: Any) -> Any:
    if not place:
        return new
    parts = [_replaced(each, place[1:], new) if k == place[0] else each for k, each in enumerate(x)]
    return parts if isinstance(x, list) else tuple(parts)


def _another(draw: Random, old: Any) -> tuple[str, Any]:
    """A value in the place of another, and what it is; no text if there is none."""
    if isinstance(old, torch.Tensor):
        text, change = draw.choice(TENSORS)
        try:
            return text, change(draw, old.detach().clone())
        except (RuntimeError, IndexError, ValueError):  # it has no such dim
            return "", None
    if isinstance(old, bool):
        return f"{not old}", not old
    if isinstance(old, float):
        number = draw.choice(NUMBERS)
        return f"{number}", number
    if isinstance(old, int):
        number = draw.choice([*INTEGERS, *INTEGERS, *NUMBERS])
        return f"{number}", number
    if isinstance(old, str):
        word = draw.choice(WORDS)
        return word, word
    if isinstance(old, torch.dtype):
        dtype = draw.choice(DTYPES)
        return f"{dtype}", dtype
    if isinstance(old, list | tuple):
        parts: Any = draw.choice([(), old[:-1], (*old, *old[:1])])
        return f"of {len(parts)}", type(old)(parts) if type(old) in (list, tuple) else tuple(parts)
    return "", None


Change = Callable[[Random, torch.Tensor], torch.Tensor]


def _dim(draw: Random, x: torch.Tensor) -> int:
    if not x.ndim:
        raise IndexError
    return draw.randrange(x.ndim)


def _empty(draw: Random, x: torch.Tensor) -> torch.Tensor:
    return x.narrow(_dim(draw, x), 0, 0).clone()


def _shorter(draw: Random, x: torch.Tensor) -> torch.Tensor:
    dim = _dim(draw, x)
    return x.narrow(dim, 0, x.shape[dim] - 1).clone()


def _longer(draw: Random, x: torch.Tensor) -> torch.Tensor:
    dim = _dim(draw, x)
    return torch.cat([x, x.narrow(dim, 0, 1)], dim)


def _less(draw: Random, x: torch.Tensor) -> torch.Tensor:
    return x.select(_dim(draw, x), 0).clone()


def _more(draw: Random, x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(draw.randrange(x.ndim + 1))


def _typed(draw: Random, x: torch.Tensor) -> torch.Tensor:
    return x.to(draw.choice(DTYPES))


def _special(draw: Random, x: torch.Tensor) -> torch.Tensor:
    """With an element that may be out of range, or NaN."""
    if x.dtype is torch.bool or x.numel() == 0:
        raise ValueError
    numbers = NUMBERS if x.dtype.is_floating_point else (-200, -100, -1, 0, 1, 9, 100, 127)
    number, place = draw.choice(numbers), draw.randrange(x.numel())
    x.view(-1)[place] = number
    return x


def _zeros(_: Random, x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x)


TENSORS: tuple[tuple[str, Change], ...] = (
    ("of no elements", _empty),
    ("shorter", _shorter),
    ("longer", _longer),
    ("of a dim less", _less),
    ("of a dim more", _more),
    ("of another dtype", _typed),
    ("with a special element", _special),
    ("with a special element", _special),
    ("of zeros", _zeros),
)


# --- comparing ---------------------------------------------------------------------------------


def failure(given: Drawn) -> str:
    """What of a case differs from eager mode; empty if nothing does, or that is known."""
    kind, text = judged(given)
    return text if kind == "differs" else ""


def judged(given: Drawn) -> tuple[str, str]:
    """If both raise or are equal, are not compared, differ, or a known difference; and how."""
    case = given.case
    wanted = _called(case, case.call)
    torch._dynamo.reset()
    found = _called(case, torch.compile(case.call, backend=luminal_backend, dynamic=False))
    text = _difference(case, wanted, found)
    if text:
        return known(given, text) or "differs", text[:400]
    if isinstance(wanted, Exception):
        return "raises", ""
    return ("equals" if _is_compared(wanted) else "not compared"), ""


def _is_compared(results: Sequence[Any]) -> bool:
    """Is any result a tensor with elements, of a dtype that is compared, or a number?"""
    return any(
        x.numel() > 0 and not x.is_complex() if isinstance(x, torch.Tensor) else x is not None
        for x in results
    )


def _difference(case: Case, wanted: Any, found: Any) -> str:
    if isinstance(found, Exception):
        cause = found.__cause__ or found
        is_like = isinstance(cause, (*ERRORS, type(wanted)))
        if isinstance(wanted, Exception) and is_like:
            return ""
        return f"ours raises {type(cause).__name__}: {' '.join(str(cause).split())}"
    if isinstance(wanted, Exception):
        return f"eager raises {type(wanted).__name__}: {' '.join(str(wanted).split())}"
    try:
        _compare(case, found, "values")
    except (Unequal, AssertionError) as error:
        return f"differs: {error}"
    except Unsupported:  # a dtype that is not compared
        pass
    return ""


def _called(case: Case, call: Callable[..., Any]) -> Any:
    """The results of a call on copies, or what it raises."""
    torch.manual_seed(0)
    tensors = _copies(case)
    try:
        with torch.no_grad():
            return values(case, call(tensors), tensors, "values")
    except Exception as error:
        return error


KNOWN: dict[str, Callable[[Drawn, str], bool]] = {
    "dtypes that a kernel lacks": lambda _, text: "not implemented for '" in text,
    "refused by tensors without data": lambda _, text: (
        text.startswith("ours raises") and "with fake tensors" in text
    ),
    "singular values of infinities": lambda _, text: "the matrix has no singular values" in text,
    "infinite weights of a norm": lambda given, text: (
        given.case.op.name == "nn.functional.group_norm" and "PyTorch has nan" in text
    ),
    "factors of what is not positive definite": lambda given, text: (
        given.case.op.name.startswith("linalg.cholesky_ex") and "] nan, PyTorch" in text
    ),
    "poles of polygamma": lambda given, text: (
        "polygamma" in given.case.op.name and ("] inf, PyTorch" in text or "] -inf, PyT" in text)
    ),
    "polygamma of infinities": lambda given, text: (
        "polygamma" in given.case.op.name and " 0.0, PyTorch has nan" in text
    ),
    "means of infinities beside a variance": lambda given, text: (
        given.case.op.name in ("var_mean", "std_mean") and "PyTorch has nan" in text
    ),
    "floats outside of a dtype of integers": lambda given, text: (
        given.case.op.name in ("cumsum", "cumprod")
        and text.startswith("differs")
        and "dtype=torch.uint8" in str(given)
    ),
    "a scalar's norm along its dim": lambda given, text: (
        "norm" in given.case.op.name
        and text.startswith("differs: 1 of 1 values")
        and "at []" in text
    ),
    "memory that a kernel leaves as it was": lambda given, text: (
        given.case.op.name == "nn.functional.pad" and "circular" in str(given)
    ),
}
"""Differences that docs/torch.md explains."""


def known(given: Drawn, text: str) -> str:
    """The name of a difference that is known, if it is one."""
    return next((name for name, is_it in KNOWN.items() if is_it(given, text)), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    common_methods_invocations.wrapper_set_seed = unseeded
    kinds = Counter[str]()
    for seed in range(options.seed, options.seed + options.cases):
        given = drawn(seed)
        kind, text = judged(given)
        kinds[kind] += 1
        if kind == "differs":
            print(f"--- seed {seed}: {given}\n    {text}", flush=True)
    print(", ".join(f"{kind}: {count}" for kind, count in kinds.most_common()))
    sys.exit(kinds["differs"] > 0)


if __name__ == "__main__":
    main()
