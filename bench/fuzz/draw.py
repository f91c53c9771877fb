"""The cases of a seed: case `number` of `seed` is the same one on every machine."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence

import numpy as np
import torch

from bench.fuzz.case import FLOATS, TYPES, Case
from bench.fuzz.draft import LAYOUTS, Draft, drawn_shape
from bench.fuzz.fields import Fields
from bench.fuzz.operations import OPERATIONS, Operation

FAMILIES = {
    "pointwise": 6, "compare": 1.5, "integers": 2, "truth": 1, "cast": 2, "reduction": 5,
    "greatest": 1.5, "norm": 3, "scan": 2, "loss": 1.5, "order": 2, "gather": 2, "scatter": 1.5,
    "movement": 3, "product": 4, "attention": 1, "convolution": 4, "pool": 1.5, "resize": 0.7,
}  # fmt: skip
TYPE_WEIGHTS = {
    "f32": 24, "bf16": 3, "f16": 2, "f64": 2, "i32": 2, "i64": 2, "u8": 1, "bool": 1,
}  # fmt: skip
GROUPS = {
    "f32": frozenset(("f32",)),
    "float": FLOATS,
    "integer": frozenset(("i32", "i64", "u8")),
    "bool": frozenset(("bool",)),
    "number": frozenset(TYPES) - {"bool"},
    "any": frozenset(TYPES),
}
WAYS = {"single": 50, "backward": 20, "chain": 22, "chain backward": 8}
MOST_BACKWARD = 3_000_000  # elements of an operand whose gradient is taken
ATTEMPTS = 200


def drawn(seed: int, number: int) -> Case:
    """Case `number` of a seed."""
    rng = np.random.default_rng([seed, number])
    for _ in range(ATTEMPTS):
        case = _attempt(rng, OPERATIONS, f"{seed}:{number}")
        if case is not None:
            return case
    raise RuntimeError(f"fuzz {seed}:{number}: no case in {ATTEMPTS} attempts")


def drawn_of(operation: Operation, rng: np.random.Generator) -> Case | None:
    """A case of this operation alone; None where what was drawn does not fit."""
    return _attempt(rng, (operation,), f"of {operation.text}")


def _attempt(rng: np.random.Generator, table: Sequence[Operation], name: str) -> Case | None:
    draft = Draft(rng)
    way = draft.chosen(WAYS)
    backward, chained = way.endswith("backward"), way.startswith("chain")
    usable = [
        each for each in table if (each.smooth or not backward) and (each.chained or not chained)
    ]
    if not usable:
        return None
    first = _operation(draft, usable)
    layouts = {**LAYOUTS}
    if chained or first.family == "norm":
        del layouts["broadcast"]  # equal numbers, whose norms are rounding alone
    layout = draft.chosen(layouts)
    types = FLOATS if backward or chained else GROUPS[first.types]
    weights = {
        each: weight for each, weight in TYPE_WEIGHTS.items() if each in types & GROUPS[first.types]
    }
    type_ = draft.chosen(weights)
    rank = int(rng.integers(first.rank[0], first.rank[1] + 1))
    most = min(first.most, MOST_BACKWARD) if backward else first.most
    shape = drawn_shape(draft, rank, draft.log_uniform(1, most))
    text = draft.laid_out(layout, type_, shape, positive=first.positive)
    operations, length = [first], int(rng.integers(2, 4)) if chained else 1
    try:
        text = first.text.format_map(Fields(draft, text, type_, shape))
        while len(operations) < length:
            text = _follow(draft, text, usable, type_, operations)
        results = draft.meta(text)
    except (RuntimeError, IndexError, ValueError, NotImplementedError):
        return None  # PyTorch refuses the shapes, or a field finds nothing that fits
    if not all(each.numel() for each in results) or draft.is_view(text):
        return None
    gradients = _gradients(draft, results) if backward else ()
    if backward and not gradients:
        return None
    return Case(tuple(draft.inputs), text, gradients, name, _family(operations), layout, way)


def _operation(draft: Draft, usable: Sequence[Operation]) -> Operation:
    """One of them: a family by weight, each of its operations alike."""
    present = {each.family: FAMILIES[each.family] for each in usable}
    family = draft.chosen(present)
    mine = [each for each in usable if each.family == family]
    return mine[int(draft.rng.integers(len(mine)))]


def _follow(
    draft: Draft, text: str, usable: Sequence[Operation], type_: str, sofar: list[Operation]
) -> str:
    """The expression with one more operation on it."""
    (before,) = draft.meta(text)
    shape = tuple(before.shape)
    if not before.numel():
        raise ValueError(f"{text} has no elements")
    fitting = [
        each
        for each in usable
        if each.rank[0] <= len(shape) <= each.rank[1] and math.prod(shape) <= each.most
    ]
    operation = _operation(draft, fitting)
    sofar.append(operation)
    return operation.text.format_map(Fields(draft, _operand(text), type_, shape))


def _operand(text: str) -> str:
    """The expression, in parentheses where what follows would take only a part of it."""
    operators = ast.BinOp | ast.UnaryOp | ast.Compare
    return f"({text})" if isinstance(ast.parse(text, mode="eval").body, operators) else text


def _gradients(draft: Draft, results: list[torch.Tensor]) -> tuple[str, ...]:
    """The first input, and each other one with 0.7."""
    if len(results) != 1 or not results[0].is_floating_point():
        return ()
    return tuple(
        name
        for place, name in enumerate(draft.differentiable)
        if place == 0 or draft.rng.random() < 0.7
    )


def _family(operations: Sequence[Operation]) -> str:
    """The family that most of the work lies in: the first that is not pointwise."""
    others = (each.family for each in operations if each.family != "pointwise")
    return next(others, operations[0].family)
