"""What is done to the parts of complex numbers: to both alike, or by the rule of products."""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.complex_dtypes import ComplexDType, complex_dtype_of
from luminal.base.errors import DTypeError
from luminal.base.near_names import NUMPYS
from luminal.frontend import creation
from luminal.frontend.handle import Pair, is_tensor
from luminal.frontend.pointwise.binary import promotion, where
from luminal.memory.data import is_array
from luminal.memory.parameter import Parameter
from luminal.memory.state import State

VALUES = frozenset("x value src source prepend append".split())
"""Parameters that are elements: real ones become complex. All others say where, or how many."""


def as_complex(x: Any, like: Any) -> Any:
    """A number, an array or a Tensor as a ComplexTensor beside `like`."""
    if isinstance(x, Parameter | State):
        x = x.as_tensor()
    if isinstance(x, Pair):
        return x
    if is_complex_number(x):
        return complex_constant(x, like.real)
    # Functions of it are computed in its dtype, which is the result's.
    dtype = dtypes.promote(promotion((like.real, x)), dtypes.float32)
    has_dtype = is_tensor(x) or is_array(x)
    real = like.graph.constant(x).cast(dtype) if has_dtype else like.graph.constant(x, dtype)
    return Pair.kind(real, creation.zeros_like(real))


def linear(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function of the real parts and that of the imaginary ones, put together again."""
    bound = bound_to(function, args, kwargs)
    arguments = bound.arguments
    some = next(x for operand in arguments.values() for x in _each(operand) if isinstance(x, Pair))
    if isinstance(
        arguments.get("alpha"), complex
    ):  # of index_add: what is added is multiplied by it
        arguments["source"] = as_complex(arguments["source"], some) * arguments.pop("alpha")
    values = VALUES - {"source"} if "destination" in arguments else VALUES  # of movedim: dims
    for name, x in arguments.items():
        if name == "dtype" and x is not None and complex_dtype_of(x) is None:
            raise DTypeError(
                f"{function.__name__}: of complex numbers in {x}, which holds none; take z.real"
            )
        arguments[name] = _alike(x, some, is_value=name in values)
    parts = [
        function(
            *(part_of(x, part) for x in bound.args),
            **{name: part_of(x, part) for name, x in bound.kwargs.items()},
        )
        for part in ("real", "imag")
    ]
    return joined(*parts)


def bound_to(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """The arguments by the names of the parameters; NumPy's names count as ours."""
    signature = inspect.signature(function)
    ours = {a: b for a, b in NUMPYS if a not in signature.parameters}
    return signature.bind(*args, **{ours.get(name, name): x for name, x in kwargs.items()})


def _alike(x: Any, some: Any, is_value: bool) -> Any:
    """An argument with complex numbers where elements are meant; numbers stay such, with parts."""
    if isinstance(x, list | tuple) and any(isinstance(y, Pair) for y in x):
        return [as_complex(y, some) for y in x]
    if not is_value or x is None:
        return x
    if isinstance(x, int | float | complex | np.number):
        return complex(x)
    is_element = is_tensor(x) or is_array(x) or isinstance(x, Parameter | State)
    return as_complex(x, some) if is_element else x


def part_of(x: Any, part: str) -> Any:
    """The real or the imaginary part of an argument, also in lists; of a dtype that of either."""
    if isinstance(x, Pair | complex):
        return getattr(x, part)
    if isinstance(x, ComplexDType):
        return x.real
    if isinstance(x, list | tuple) and any(isinstance(y, Pair) for y in x):
        some = next(y for y in x if isinstance(y, Pair))
        return [getattr(as_complex(y, some), part) for y in x]
    return x


def joined(real: Any, imag: Any) -> Any:
    """Real parts and imaginary ones put together, in tuples and lists too."""
    if isinstance(real, tuple | list):
        return type(real)(map(joined, real, imag))
    return Pair.kind(real, imag)


def product(function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    """The sum of the function of each choice of parts of its complex operands, by powers of i."""
    if options:
        bound = bound_to(function, operands, options)
        operands, function = bound.args, partial(function, **bound.kwargs)
    args = tuple(x.as_tensor() if isinstance(x, Parameter | State) else x for x in operands)
    some = next(x for arg in args for x in _each(arg) if isinstance(x, Pair))
    args = tuple(as_complex(x, some) if is_complex_number(x) else x for x in args)
    spread = [[*arg] if isinstance(arg, list | tuple) else arg for arg in args]
    places = [x for arg in spread for x in _each(arg)]
    complexes = [k for k, x in enumerate(places) if isinstance(x, Pair)]
    sums: list[list[Any]] = [[], []]
    for choice in itertools.product((0, 1), repeat=len(complexes)):
        chosen = list(places)
        for k, is_imag in zip(complexes, choice, strict=True):
            chosen[k] = places[k].imag if is_imag else places[k].real
        rest = iter(chosen)
        value = function(
            *([next(rest) for _ in arg] if isinstance(arg, list) else next(rest) for arg in spread)
        )
        power = sum(choice)  # of i: 1, i, -1, -i
        sums[power % 2].append(-value if power % 4 >= 2 else value)
    return Pair.kind(*(reduce(operator.add, terms) for terms in sums))


def _each(arg: Any) -> Sequence[Any]:
    return arg if isinstance(arg, list | tuple) else (arg,)


def where_complex(condition: Any, a: Any, b: Any) -> Any:
    """a where `condition` is true, else b, of which one is complex."""
    some = next(x for x in (a, b, condition) if isinstance(x, Pair))
    a, b = as_complex(a, some), as_complex(b, some)
    mask = condition.ne(0) if isinstance(condition, Pair) else condition  # type: ignore[attr-defined]
    return Pair.kind(where(mask, a.real, b.real), where(mask, a.imag, b.imag))


def is_complex_number(x: Any) -> bool:
    """Is it a complex number, or an array of such?"""
    return isinstance(x, complex) or (isinstance(x, np.ndarray | np.generic) and np.iscomplexobj(x))


def complex_constant(x: Any, beside: Any) -> Any:
    """A complex number, or an array of such, beside a real Tensor."""
    if isinstance(x, complex):
        kind = beside.dtype if beside.dtype is dtypes.float64 else dtypes.float32
        return Pair.kind(*(beside.graph.constant(part, kind) for part in (x.real, x.imag)))
    return Pair.kind(*(beside.graph.constant(part.copy()) for part in (x.real, x.imag)))
