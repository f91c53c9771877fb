"""What is said of modules that are called with the wrong things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luminal.base.errors import DTypeError, GraphError, ShapeError
from luminal.frontend.handle import describe

if TYPE_CHECKING:
    from luminal.nn.module import Module


class NoForwardError(GraphError, NotImplementedError):
    """A module was called whose class has no forward."""


def no_tensor(module: Module, x: Any) -> DTypeError:
    """The error of a module that is called with something else than a Tensor."""
    name = type(module).__name__
    if x is None:
        return DTypeError(
            f"{name}: takes Tensors, got None; does the forward before it return its result?"
        )
    kind = type(x).__qualname__
    owner = type(x).__module__.partition(".")[0]
    kind = kind if owner == "builtins" else f"{owner}.{kind}"
    return DTypeError(
        f"{name}: takes Tensors, got a {kind}; pass lm.as_tensor(x), or call lm.jit(model) or a "
        "function under @lm.jit with arrays"
    )


def unfit(module: Module, x: Any, wanted: tuple[int, ...], option: str) -> ShapeError:
    """The error of a layer that was made for other last dims than x has."""
    name, count = type(module).__name__, len(wanted)
    shown = ", ".join(map(str, wanted))
    ends = x.extents[-count:]
    has = ", ".join(map(str, ends)) or "nothing"
    is_fit = len(ends) == count and all(n.is_const for n in ends)
    fix = f"make the layer with {option}={has}, or " if is_fit else ""
    return ShapeError(
        f"{name}: {option} is {shown}, but {describe(x)} ends in {has}; {fix}give it what ends in "
        f"{shown}"
    )


def with_article(module: Module) -> str:
    """The kind of a module in a sentence: `a Linear`, `an Embedding`."""
    name = type(module).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
