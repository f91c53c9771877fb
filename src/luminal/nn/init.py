"""First values of Parameters, PyTorch's formulas over NumPy Generators.

`xavier_uniform(rng, shape)` draws an array; `xavier_uniform_(parameter)` sets a Parameter. What the
second form and new layers draw follows from `lm.manual_seed` and the order in which they are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias

import numpy as np

from luminal.base.dtypes import DType, float32
from luminal.base.errors import InputError, ShapeError
from luminal.base.generator import manual_seed as manual_seed
from luminal.base.generator import take_seed
from luminal.frontend.handle import Array
from luminal.memory.arrays import Buffer
from luminal.memory.parameter import Parameter

Rng: TypeAlias = np.random.Generator
Shape: TypeAlias = Sequence[int]
Draw: TypeAlias = Callable[[Rng, Shape], Array]
"""How a Parameter gets its first value: an array of the shape, in any float dtype."""

P = ParamSpec("P")
# PyTorch's table. selu's 3/4 follows from no formula: it was found by trial there.
GAINS = {
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
    **dict.fromkeys(("linear", "sigmoid"), 1.0),
    **dict.fromkeys([f"conv{k}d" for k in (1, 2, 3)], 1.0),
    **dict.fromkeys([f"conv_transpose{k}d" for k in (1, 2, 3)], 1.0),
}


# A model that is loaded from a file draws nothing, and a billion parameters are not filled twice.
# What is drawn follows from a seed that was noted when the layer was made, so the time of the first
# read does not matter.
class DrawnParameter(Parameter):
    """A Parameter whose first value is drawn when it is first read: loading one costs no draw."""

    def __init__(self, shape: Shape, dtype: Any, draw: Draw, name: str | None = None) -> None:
        self._stored: Buffer | None = None
        self._draw = draw
        self._seed: tuple[int, ...] = take_seed()
        super().__init__(shape, dtype, name)

    @property
    def has_value(self) -> bool:
        """Always: what was not set is drawn."""
        return True

    @property
    def stored(self) -> Buffer | None:
        """The value; two threads that read it first draw the same."""
        if self._stored is None:
            self._starts_as(
                drawn(self._draw, np.random.default_rng(self._seed), self.shape, self.dtype)
            )
        return self._stored

    @stored.setter
    def stored(self, buffer: Buffer | None) -> None:
        self._stored = buffer

    def _peek(self) -> Array | None:
        if self._stored is not None or self.part is not None:
            return super()._peek()
        return drawn(self._draw, np.random.default_rng(self._seed), self.shape, self.dtype)

    def draw_with(self, draw: Draw) -> None:
        """Another way to draw, with a seed of its own; a value that was set or drawn is kept."""
        self._draw, self._seed = draw, take_seed()

    def redraw(self, *seed: int) -> None:
        """Forgets the value; the next read draws it from `seed`."""
        self.about_to_change()
        self._seed, self._stored = seed, None
        self.changed()


def drawn(draw: Draw, rng: Rng, shape: Shape, dtype: DType) -> Array:
    """One draw, rounded to `dtype`."""
    # Drawn in float64 and rounded once, so that one seed gives the same model in any dtype, up to
    # its rounding.
    return dtype.rounded(draw(rng, tuple(shape)))


def parameter(shape: Shape, draw: Draw, dtype: Any = float32) -> DrawnParameter:
    """A Parameter of a layer, which draws its first value with `draw`."""
    return DrawnParameter(shape, dtype, draw)


# --- plain distributions --------------------------------------------------------------------------


def uniform(rng: Rng, shape: Shape, a: float = 0.0, b: float = 1.0) -> Array:
    """Uniform in [a, b)."""
    return rng.uniform(a, b, shape)


def normal(rng: Rng, shape: Shape, mean: float = 0.0, std: float = 1.0) -> Array:
    """Numbers of the normal distribution."""
    return rng.normal(mean, std, shape)


def trunc_normal(
    rng: Rng, shape: Shape, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Array:
    """Normal, with values outside [a, b] drawn again."""
    numbers = rng.normal(mean, std, shape)
    if not a < b or b < mean - 4 * std or a > mean + 4 * std:
        raise InputError(f"trunc_normal: [{a}, {b}] is empty or more than 4 std away from {mean}")
    # Bounds within 4 std leave enough that few rounds draw again.
    while (outside := (numbers < a) | (numbers > b)).any():
        numbers[outside] = rng.normal(mean, std, int(outside.sum()))
    return numbers


def constant(rng: Rng, shape: Shape, val: float) -> Array:
    """An array that holds `val` everywhere."""
    return np.full(shape, val)


def ones(rng: Rng, shape: Shape) -> Array:
    """An array that holds 1 everywhere."""
    return np.ones(shape)


def zeros(rng: Rng, shape: Shape) -> Array:
    """An array that holds 0 everywhere."""
    return np.zeros(shape)


def eye(rng: Rng, shape: Shape) -> Array:
    """1 on the diagonal of a matrix, 0 elsewhere."""
    if len(shape) != 2:
        raise ShapeError(f"eye: shape {tuple(shape)} has {len(shape)} dims; it takes 2")
    matrix: Array = np.eye(shape[0], shape[1])
    return matrix


def dirac(rng: Rng, shape: Shape, groups: int = 1) -> Array:
    """A convolution's weight (out, in, ...) that passes its input channels through."""
    if not 3 <= len(shape) <= 5 or shape[0] % groups:
        raise ShapeError(
            f"dirac: {tuple(shape)} in {groups} groups; it takes 3 to 5 dims, the first a multiple"
        )
    kernel, per_group = np.zeros(shape), shape[0] // groups
    centre = tuple(n // 2 for n in shape[2:])
    for group in range(groups):
        for channel in range(min(per_group, shape[1])):
            kernel[(group * per_group + channel, channel, *centre)] = 1
    return kernel


# --- distributions that keep the variance of what passes ------------------------------------------


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before this activation are enlarged. `param`: leaky_relu's."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        names = ", ".join((*GAINS, "leaky_relu"))
        raise InputError(f"calculate_gain: {nonlinearity!r} is not known; known are {names}")
    return GAINS[nonlinearity]


def fans(shape: Shape) -> tuple[int, int]:
    """How many inputs an output of a weight (out, in, ...) reads, and outputs an input reaches."""
    if len(shape) < 2:
        raise ShapeError(f"init: shape {tuple(shape)} has fewer than 2 dims, so no fan in and out")
    # A convolution's weight is a matrix for each place of its window.
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def xavier_uniform(rng: Rng, shape: Shape, gain: float = 1.0) -> Array:
    """Uniform within gain * sqrt(6 / (fan_in + fan_out)). Glorot and Bengio 2010."""
    bound = gain * math.sqrt(6 / max(sum(fans(shape)), 1))
    return rng.uniform(-bound, bound, shape)


def xavier_normal(rng: Rng, shape: Shape, gain: float = 1.0) -> Array:
    """Normal with std gain * sqrt(2 / (fan_in + fan_out)). Glorot and Bengio 2010."""
    return rng.normal(0, gain * math.sqrt(2 / max(sum(fans(shape)), 1)), shape)


def _kaiming_std(shape: Shape, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise InputError(f"kaiming: mode {mode!r} is not known; use 'fan_in' or 'fan_out'")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fans(shape)[mode == "fan_out"], 1))


def kaiming_uniform(
    rng: Rng,
    shape: Shape,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
) -> Array:
    """Uniform within gain * sqrt(3 / fan). He et al., arXiv 1502.01852."""
    bound = math.sqrt(3) * _kaiming_std(shape, a, mode, nonlinearity)
    return rng.uniform(-bound, bound, shape)


def kaiming_normal(
    rng: Rng,
    shape: Shape,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
) -> Array:
    """Normal with std gain / sqrt(fan). He et al., arXiv 1502.01852."""
    return rng.normal(0, _kaiming_std(shape, a, mode, nonlinearity), shape)


def orthogonal(rng: Rng, shape: Shape, gain: float = 1.0) -> Array:
    """`gain` times a (half-)orthogonal matrix (out, the rest). Saxe et al., arXiv 1312.6120."""
    fans(shape)
    rows, columns = shape[0], math.prod(shape[1:])
    # QR of a normal matrix is uniform over the orthogonal ones, once the signs of R are fixed
    # (Mezzadri, math-ph/0609050).
    tall = rng.normal(size=(max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diagonal(r))  # else the distribution is not uniform
    matrix: Array = gain * (q if rows >= columns else q.T).reshape(shape)
    return matrix


def sparse(rng: Rng, shape: Shape, sparsity: float, std: float = 0.01) -> Array:
    """Normal, with this share of every column 0. Martens 2010."""
    if len(shape) != 2:
        raise ShapeError(f"sparse: shape {tuple(shape)} has {len(shape)} dims; it takes 2")
    matrix = rng.normal(0, std, shape)
    for column in matrix.T:
        column[rng.permutation(shape[0])[: math.ceil(sparsity * shape[0])]] = 0
    return matrix


# --- PyTorch's names: they set a Parameter and return it ------------------------------------------


def _setting(
    draw: Callable[Concatenate[Rng, Shape, P], Array],
) -> Callable[Concatenate[Parameter, P], Parameter]:
    def fill(parameter: Parameter, /, *args: P.args, **kwargs: P.kwargs) -> Parameter:
        rng = np.random.default_rng(take_seed())
        array = draw(rng, parameter.shape, *args, **kwargs)
        parameter.set(array.astype(parameter.dtype.numpy))
        return parameter

    fill.__doc__ = draw.__doc__
    return fill


uniform_ = _setting(uniform)
normal_ = _setting(normal)
trunc_normal_ = _setting(trunc_normal)
constant_ = _setting(constant)
ones_ = _setting(ones)
zeros_ = _setting(zeros)
eye_ = _setting(eye)
dirac_ = _setting(dirac)
xavier_uniform_ = _setting(xavier_uniform)
xavier_normal_ = _setting(xavier_normal)
kaiming_uniform_ = _setting(kaiming_uniform)
kaiming_normal_ = _setting(kaiming_normal)
orthogonal_ = _setting(orthogonal)
sparse_ = _setting(sparse)
