"""Random functions over views of shared memory, compared with eager mode in all that can be seen:
`python -m tests.torch_backend.aliasing --cases 2000 --seed 0`.

A case draws arguments that are views of one or two tensors, a body of views, computations and
writes, and results of all kinds; then it calls the function that was compiled for the first
arguments with others that lie over each other in another way. Values, strides, dtypes, what shares
memory with what, the whole memory of the arguments, and errors must be eager mode's.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from luminal import luminal_backend
from luminal.torch_backend.separate import span

Step = Callable[[list[torch.Tensor]], Any]
"""Adds a value to a list, or writes into one of it."""

Place = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""An argument: which base, sizes, strides, offset."""

ELEMENTS = 48  # of a base


@dataclass
class Case:
    """`text`: the steps, for a report; `calls`: the arguments of each call."""

    dtype: torch.dtype
    calls: list[list[Place]]
    steps: list[Step]
    results: list[int]
    text: list[str]
    dynamic: bool
    is_trained: bool

    def function(self) -> Callable[..., Any]:
        steps, results = self.steps, self.results

        def body(*args: torch.Tensor) -> Any:
            values = list(args)
            for step in steps:
                step(values)
            return [values[k] for k in results]

        return body

    def __str__(self) -> str:
        how = f"{self.dtype} dynamic={self.dynamic} trained={self.is_trained}"
        return "\n".join([how, *map(str, self.calls), *self.text, f"return {self.results}"])


# --- drawing -----------------------------------------------------------------------------------


def place(draw: Random, base: int) -> Place:
    """A view of a base: a dense one, a part of one, turned, expanded or any strides."""
    sizes = tuple(draw.choice([1, 2, 3, 4]) for _ in range(draw.choice([1, 2, 2, 2, 3])))
    strides, step = [0] * len(sizes), 1
    order = list(range(len(sizes)))
    if draw.random() < 0.3:
        draw.shuffle(order)
    for k in reversed(order):
        strides[k] = step
        step *= sizes[k] + (draw.choice([0, 1, 2]) if draw.random() < 0.25 else 0)
        if draw.random() < 0.1:
            strides[k] *= 2
            step *= 2
    kind = draw.random()
    if kind < 0.06:
        strides[draw.randrange(len(sizes))] = 0
    elif kind < 0.12:
        strides = [draw.choice([0, 1, 2, 3, 5]) for _ in sizes]
    if reach(sizes, strides) >= ELEMENTS:
        return place(draw, base)
    return base, sizes, tuple(strides), offset(draw, sizes, strides)


def reach(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))


def offset(draw: Random, sizes: Sequence[int], strides: Sequence[int]) -> int:
    left = ELEMENTS - 1 - reach(sizes, strides)
    return draw.choice([0, draw.randint(0, min(left, 6)), draw.randint(0, left)])


def moved(draw: Random, places: Sequence[Place]) -> list[Place]:
    """The same sizes and strides elsewhere."""
    return [
        (draw.choice([0, 0, 1]), sizes, strides, offset(draw, sizes, strides))
        for _, sizes, strides, _ in places
    ]


def laid(dtype: torch.dtype, places: Sequence[Place], *, is_trained: bool) -> Any:
    """The bases, and the arguments over them."""
    roots = [torch.arange(ELEMENTS).mul(7).remainder(23).sub(9).to(dtype) for _ in range(2)]
    roots[1] = roots[1].flip(0).contiguous()
    if is_trained:
        for root in roots:
            root.requires_grad_()
    bases = [root * 1 for root in roots] if is_trained else roots
    args = [bases[b].as_strided(sizes, strides, at) for b, sizes, strides, at in places]
    return roots, bases, args


def drawn(seed: int) -> Case:
    """A case; every step of it runs in eager mode, but perhaps for the last one."""
    draw = Random(seed)
    is_trained = draw.random() < 0.12
    dtypes = [torch.float32] * 5 + [torch.float64, torch.int64, torch.int32, torch.bfloat16]
    dtype = torch.float32 if is_trained else draw.choice(dtypes)
    first = [place(draw, draw.choice([0, 0, 1])) for _ in range(draw.choice([1, 2, 2, 2, 3]))]
    calls = [first, first if draw.random() < 0.2 else moved(draw, first), moved(draw, first)]
    case = Case(dtype, calls, [], [], [], draw.random() < 0.2, is_trained)
    _, _, values = laid(dtype, first, is_trained=is_trained)
    for _ in range(40):
        if len(case.steps) >= draw.choice([2, 3, 4, 5, 6]):
            break
        text, step = draw.choice(KINDS)(draw, values)
        if step is None:
            continue
        try:
            step(values)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            if "single memory location" in str(error) and draw.random() < 0.3:
                case.steps.append(step)
                case.text.append(f"{text}  # raises")
                break
            continue
        case.steps.append(step)
        case.text.append(text)
    count = len(values)
    case.results = [
        draw.choice([draw.randrange(count), draw.randrange(len(first), count)])
        if count > len(first)
        else draw.randrange(count)
        for _ in range(draw.choice([1, 1, 2, 3, 4]))
    ]
    return case


def _view(draw: Random, values: Sequence[torch.Tensor]) -> tuple[str, Step | None]:
    k = draw.randrange(len(values))
    x = values[k]
    if not x.ndim:
        return "", None
    dim, other = draw.randrange(x.ndim), draw.randrange(x.ndim)
    n = x.shape[dim]
    a, b, step = draw.randint(0, n - 1), draw.randint(1, n), draw.choice([1, 1, 2])
    key = (*[slice(None)] * dim, slice(min(a, b - 1), max(a + 1, b), step))
    wide = tuple(draw.choice([2, 3]) if m == 1 else m for m in x.shape)
    order = draw.sample(range(x.ndim), x.ndim)
    sizes = tuple(draw.choice([1, 2, 3]) for _ in range(draw.choice([1, 2])))
    strides = tuple(draw.choice([1, 2, 3]) for _ in sizes)
    table: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
        (f"[{key}]", lambda x: x[key]),
        (f"[{key}]", lambda x: x[key]),
        (f".transpose({dim}, {other})", lambda x: x.transpose(dim, other)),
        (f".permute({order})", lambda x: x.permute(order)),
        (f".select({dim}, {a})", lambda x: x.select(dim, a)),
        (f".unsqueeze({dim})", lambda x: x.unsqueeze(dim)),
        (f".expand({wide})", lambda x: x.expand(wide)),
        (f".expand(2, *{wide})", lambda x: x.expand(2, *wide)),
        (".view(-1)", lambda x: x.view(-1)),
        (".reshape(-1)", lambda x: x.reshape(-1)),
        (".squeeze()", lambda x: x.squeeze()),
        (f".unfold({dim}, 2, 1)", lambda x: x.unfold(dim, 2, 1)),
        (".diagonal()", lambda x: x.diagonal()),
        (f".split(2, {dim})[-1]", lambda x: x.split(2, dim)[-1]),
        (f".chunk(2, {dim})[0]", lambda x: x.chunk(2, dim)[0]),
        (f".unbind({dim})[{a}]", lambda x: x.unbind(dim)[a]),
        (f".as_strided({sizes}, {strides})", lambda x: x.as_strided(sizes, strides)),
        (".detach()", lambda x: x.detach()),
        (".T", lambda x: x.T if x.ndim == 2 else x.mT),
        (".contiguous()", lambda x: x.contiguous()),
        (".view_as(x)", lambda x: x.view_as(x)),
    ]
    text, function = draw.choice(table)

    def step_(values: list[torch.Tensor]) -> None:
        values.append(function(values[k]))

    return f"v{len(values)} = v{k}{text}", step_


def _computed(draw: Random, values: Sequence[torch.Tensor]) -> tuple[str, Step | None]:
    k, j = draw.randrange(len(values)), draw.randrange(len(values))
    dim = draw.randrange(values[k].ndim) if values[k].ndim else 0
    table: list[tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = [
        ("x * 2", lambda x, y: x * 2),
        ("x + 1", lambda x, y: x + 1),
        ("x + y", lambda x, y: x + y),
        ("x * y", lambda x, y: x * y),
        ("where", lambda x, y: torch.where(x > y, x, y)),
        (f"x.sum({dim}, keepdim=True)", lambda x, y: x.sum(dim, keepdim=True)),
        (f"x.sum({dim})", lambda x, y: x.sum(dim)),
        (f"x.amax({dim}, keepdim=True)", lambda x, y: x.amax(dim, keepdim=True)),
        ("x.clone()", lambda x, y: x.clone()),
        ("-x", lambda x, y: -x),
        ("cat", lambda x, y: torch.cat([x, x], dim)),
        ("stack", lambda x, y: torch.stack([x, x])),
        (f"x.flip({dim})", lambda x, y: x.flip(dim)),
        ("zeros_like", lambda x, y: torch.zeros_like(x)),
        ("x.repeat", lambda x, y: x.repeat(*[2] * max(x.ndim, 1))),
        ("x.index_select", lambda x, y: x.index_select(dim, torch.zeros(2, dtype=torch.int64))),
        ("x.to(float64)", lambda x, y: x.to(torch.float64)),
        ("x.new_zeros", lambda x, y: x.new_zeros(x.shape)),
    ]
    text, function = draw.choice(table)

    def step(values: list[torch.Tensor]) -> None:
        values.append(function(values[k], values[j]))

    return f"v{len(values)} = {text}: x = v{k}, y = v{j}", step


def _written(draw: Random, values: Sequence[torch.Tensor]) -> tuple[str, Step | None]:
    k, j = draw.randrange(len(values)), draw.randrange(len(values))
    x = values[k]
    dim = draw.randrange(x.ndim) if x.ndim else 0
    n = x.shape[dim] if x.ndim else 1
    at = draw.randrange(n)
    key = (*[slice(None)] * dim, slice(at, None, draw.choice([1, 2])))
    table: list[tuple[str, Callable[[torch.Tensor, torch.Tensor], Any]]] = [
        ("x.mul_(2)", lambda x, y: x.mul_(2)),
        ("x.add_(1)", lambda x, y: x.add_(1)),
        ("x.add_(y)", lambda x, y: x.add_(y)),
        ("x.copy_(y)", lambda x, y: x.copy_(y)),
        ("x.zero_()", lambda x, y: x.zero_()),
        ("x.fill_(7)", lambda x, y: x.fill_(7)),
        (f"x[{key}] = 5", lambda x, y: x.__setitem__(key, 5)),
        (f"x[{key}] += y[{key}]", lambda x, y: x[key].add_(y[key])),
        (f"x.select({dim}, {at}).sub_(3)", lambda x, y: x.select(dim, at).sub_(3)),
        ("x.clamp_(-2, 3)", lambda x, y: x.clamp_(-2, 3)),
        ("x.masked_fill_(y > 0, 1)", lambda x, y: x.masked_fill_(y > 0, 1)),
        ("x.t()[0] = 2", lambda x, y: x.t().__setitem__(0, 2)),
        ("x.index_fill_", lambda x, y: x.index_fill_(dim, torch.tensor([0]), 4)),
    ]
    text, function = draw.choice(table)
    if "y" in text and _reads_what_it_writes(x, values[j]):  # in an order that no one says
        return "", None

    def step(values: list[torch.Tensor]) -> None:
        function(values[k], values[j])

    return f"{text}: x = v{k}, y = v{j}", step


def _reads_what_it_writes(x: torch.Tensor, y: torch.Tensor) -> bool:
    (start, end), (first, last) = span(x), span(y)
    is_same = x.data_ptr() == y.data_ptr() and (x.shape, x.stride()) == (y.shape, y.stride())
    return first < end and start < last and not is_same


KINDS = (_view, _view, _computed, _written, _written)


# --- comparing ---------------------------------------------------------------------------------


def observed(case: Case, function: Callable[..., Any], places: Sequence[Place]) -> dict[str, Any]:
    """What can be seen of a call."""
    roots, bases, args = laid(case.dtype, places, is_trained=case.is_trained)
    try:
        with torch.set_grad_enabled(case.is_trained):
            results = function(*args)
    except Exception as error:
        cause = error.__cause__ or error
        kind = "RuntimeError" if isinstance(cause, RuntimeError) else type(cause).__name__
        return {"raises": kind, "text": str(cause)}
    tensors = [*results, *args, *bases]
    found = {
        "dtypes": [x.dtype for x in results],
        "shapes": [tuple(x.shape) for x in tensors],
        "strides": [_strides(x) if _is_told(case, x, args) else None for x in tensors],
        "values": [x.tolist() for x in tensors],
        "shared": _shared(tensors),
        "is": [[x is y for y in args] for x in results],
        "flows": [x.requires_grad for x in results],
    }
    flowing = [x for x in results if x.requires_grad and x.dtype.is_floating_point]
    if case.is_trained and flowing:
        try:
            total = sum((x * x).sum().to(torch.float64) for x in flowing)
            grads = torch.autograd.grad(total, roots, allow_unused=True, materialize_grads=True)
            found["gradients"] = [g.tolist() for g in grads]
        except RuntimeError:
            found["gradients"] = "raises"
    return found


def _is_told(case: Case, x: torch.Tensor, args: Sequence[torch.Tensor]) -> bool:
    """Do strides follow from the code? What is computed from written tensors has others by
    PyTorch's tensors without data than by its kernels.
    """
    writes = any(text.startswith("x") for text in case.text)
    storage = x.untyped_storage().data_ptr()
    return not writes or any(arg.untyped_storage().data_ptr() == storage for arg in args)


def _strides(x: torch.Tensor) -> list[int | None]:
    """But those of dims of one place: PyTorch's tensors without data have others than its kernels
    give.
    """
    return [None if n == 1 else step for step, n in zip(x.stride(), x.shape, strict=True)]


def _shared(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Of each tensor, the first one in the same storage, and how far it begins behind that."""
    found = []
    for k, x in enumerate(tensors):
        storage = x.untyped_storage().data_ptr()
        first = next(
            (j for j in range(k) if tensors[j].untyped_storage().data_ptr() == storage), None
        )
        far = None if first is None else x.data_ptr() - tensors[first].data_ptr()
        found.append((first, far) if x.numel() else None)
    return found


def failure(case: Case, backend: Any = luminal_backend) -> str:
    """What of a case differs from eager mode; empty if nothing does."""
    return judged(case, backend)[1]


def judged(case: Case, backend: Any = luminal_backend) -> tuple[list[str], str]:
    """How each call of a case went, up to the first that differs, and what differs there."""
    known: list[set[str]] | None = None
    kinds = []
    for number, (kind, different) in enumerate(differences(case, backend)):
        for name, text in different.items():
            if name in HARMLESS and backend != "aot_eager":
                known = known or [set(each) for _, each in differences(case, "aot_eager")]
                if name in known[number]:
                    kind = f"{name} as AOTAutograd's"
                    continue
            return [*kinds, "differs"], f"call {number}: {name}: {text}"
        kinds.append(kind)
    return kinds, ""


# What AOTAutograd, with PyTorch's own kernels, may differ in, too. Values it has to get right, or
# to refuse.
HARMLESS = ("raises", "strides", "shared", "gradients")


def differences(case: Case, backend: Any) -> list[tuple[str, dict[str, str]]]:
    """By call: if it raises or gives results in eager mode; what differs from that, and how."""
    torch._dynamo.reset()
    function = case.function()
    fast = torch.compile(function, backend=backend, dynamic=case.dynamic or None)
    return [
        _differences(observed(case, function, places), observed(case, fast, places))
        for places in case.calls
    ]


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> tuple[str, dict[str, str]]:
    if "out of bounds for storage" in wanted.get("text", ""):
        return "skipped", {}  # of a view that nobody reads
    kind = "raises" if "raises" in wanted else "equals"
    if wanted.get("gradients") == "raises":
        wanted.pop("gradients"), found.pop("gradients", None)  # by versions of what it keeps
    names = ["raises"] if "raises" in wanted or "raises" in found else [*wanted]
    return kind, {
        name: f"{found.get(name)}; eager: {wanted.get(name)}"
        for name in names
        if wanted.get(name) != found.get(name)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--show", type=int, default=10, help="failures to print in full")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    wrong, calls = 0, Counter[str]()
    for seed in range(options.seed, options.seed + options.cases):
        case = drawn(seed)
        kinds, text = judged(case)
        calls.update(kinds)
        if text:
            wrong += 1
            print(f"--- seed {seed}: {text}" + (f"\n{case}" if wrong <= options.show else ""))
            sys.stdout.flush()
    print(f"{wrong} of {options.cases} differ from eager mode; of their calls: ", end="")
    print(", ".join(f"{kind}: {count}" for kind, count in calls.most_common()))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
