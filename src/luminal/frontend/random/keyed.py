"""Random numbers as functions of a key, and where layers get their keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, ShapeError
from luminal.base.records import dataclass
from luminal.frontend.creation import position
from luminal.frontend.handle import Extent, Operand, along, axis_of, describe, is_tensor, work_dtype
from luminal.frontend.movement.indexing import take
from luminal.frontend.movement.views import expand, reshape, select, stack
from luminal.frontend.pointwise.binary import where
from luminal.frontend.reduce.sorting import argsort
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor


Words = tuple["Tensor", "Tensor"]

PARITY = 0x1BD11BDA  # the paper's constant; the third key word is the xor of it and the other two
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # of the rounds, four at a time, by turns


# --- the generator --------------------------------------------------------------------------------


def threefry(key: Words, counter: Words) -> Words:
    """Threefry-2x32-20 of broadcasting u32 Tensors: 64 bits of key, 64 bits of counter."""
    schedule = (*key, key[0] ^ key[1] ^ PARITY)
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for block in range(1, 6):
        for bits in ROTATIONS[(block - 1) % 2]:
            x = x + y
            y = ((y << bits) | (y >> (32 - bits))) ^ x
        x, y = x + schedule[block % 3], y + schedule[(block + 1) % 3] + block
    return x, y


def _key_words(what: str, key: Tensor) -> Words:
    if not is_tensor(key):
        raise DTypeError(f"{what}: {key!r} is no key; make one with lm.random.key(seed)")
    if key.dtype is not dtypes.uint32 or key.extents[-1:] != (const(2),):
        raise DTypeError(
            f"{what}: {describe(key)} is no key, which is u32[2]; see lm.random.key, split, fold_in"
        )
    return select(key, -1, 0), select(key, -1, 1)


def _one_key(what: str, key: Tensor) -> Tensor:
    """`key`, which is no batch of them."""
    if is_tensor(key) and key.ndim > 1:
        raise DTypeError(f"{what}: {describe(key)} is a batch of keys; it takes one, u32[2]")
    return key


def _drawn(what: str, key: Tensor, shape: Sequence[Extent]) -> Words:
    """64 random bits for each element of (*batch of keys, *shape), in two words of u32."""
    words = _key_words(what, key)
    extents = key.graph.extents(shape)
    whole = (*words[0].extents, *extents)
    # Counter-based: element n of key k is a pure function of (k, n), so any order and any number of
    # threads give the same bits, and nothing has to be carried along.
    flat: Expression = const(0)
    for k, n in enumerate(extents):
        flat = flat * n + along(k, n)
    high, low = (
        position(key.graph, part, extents, dtypes.uint32) for part in (flat // 2**32, flat % 2**32)
    )
    ones = (const(1),) * len(extents)
    first, second = (expand(reshape(word, (*word.extents, *ones)), whole) for word in words)
    return threefry((first, second), (high, low))


def _wide(words: Words) -> Tensor:
    """Two words as one of 64 bits."""
    high, low = (word.cast(dtypes.uint64) for word in words)
    return (high << 32) | low


# --- keys -----------------------------------------------------------------------------------------


def key(graph: Recorder, seed: int | Tensor | Expression) -> Tensor:
    """A key of a seed: an int of 64 bits, or a 0-d integer Tensor, so that each run may differ.

    A Tensor of more dims gives a batch of keys.
    """
    if isinstance(seed, Expression) or is_tensor(seed):
        wide = graph.constant(seed)
        if not wide.dtype.is_int:
            raise DTypeError(f"key: {describe(wide)} is no seed; give an int or a 0-d integer")
        wide = wide.cast(dtypes.uint64)
        return stack([(wide >> 32).cast(dtypes.uint32), wide.cast(dtypes.uint32)], -1)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise DTypeError(f"key: {seed!r} is no seed; give an int or a 0-d integer Tensor")
    bits = int(seed) % 2**64
    return graph.constant(np.array([bits >> 32, bits % 2**32], np.uint32))


def split(key: Tensor, count: int = 2) -> Tensor:
    """`count` new keys, one a row: `a, b = split(key)`. Row k is `fold_in(key, k)`."""
    return stack(list(_drawn("split", key, (count,))), -1)


def fold_in(key: Tensor, data: int | Tensor | Expression) -> Tensor:
    """A new key of this one and an integer: a step, a layer's number. It may be a 0-d Tensor.

    A Tensor of more dims gives a batch of keys, whose dims broadcast with those of `key`.
    """
    first, second = _key_words("fold_in", key)
    counter = _seed_words(key.graph, data)
    return stack(list(threefry((first, second), counter)), -1)


def _seed_words(graph: Recorder, data: int | Tensor | Expression) -> Words:
    seed_key = _make_key(graph, data)
    return select(seed_key, -1, 0), select(seed_key, -1, 1)


_make_key = key  # the functions of this file have parameters of that name


# --- numbers --------------------------------------------------------------------------------------


def bits(key: Tensor, shape: Sequence[Extent] = (), dtype: Any = dtypes.uint32) -> Tensor:
    """Random bits: unsigned integers, every value as likely."""
    wanted = dtypes.dtype_of(dtype)
    if wanted.kind != "uint":
        raise DTypeError(f"bits: {wanted.name} is no unsigned integer; use randint or uniform")
    words = _drawn("bits", key, shape)
    return _wide(words) if wanted.size == 8 else (words[0] ^ words[1]).cast(wanted)


def uniform(
    key: Tensor,
    shape: Sequence[Extent] = (),
    low: Operand = 0.0,
    high: Operand = 1.0,
    dtype: Any = dtypes.float32,
) -> Tensor:
    """Floats of low <= x < high, evenly spaced (rounding may give `high`, but not 1 for 0..1).

    As many of the bits as the dtype has digits, times a power of 2, then `low + x * (high - low)`.
    """
    wanted = _float_dtype("uniform", dtype)
    numbers = _unit(_drawn("uniform", key, shape), wanted)
    if not (is_tensor(low) or is_tensor(high)) and (low, high) == (0, 1):
        return numbers
    start, stop = (key.graph.constant(end).cast(wanted.compute) for end in (low, high))
    return (numbers.cast(wanted.compute) * (stop - start) + start).cast(wanted)


def _unit(words: Words, dtype: DType) -> Tensor:
    """Floats of 0 <= x < 1: all multiples of the spacing that the dtype has below 1."""
    # As many bits as the mantissa holds: every value is as likely, and 1 cannot come out by
    # rounding.
    digits = {2: 11, 4: 24, 8: 53}[dtype.size] if dtype is not dtypes.bfloat16 else 8
    if digits > 32:
        return (_wide(words) >> (64 - digits)).cast(dtype) * 2.0**-digits
    scaled = ((words[0] ^ words[1]) >> (32 - digits)).cast(dtype.compute) * 2.0**-digits
    return scaled.cast(dtype)


def _float_dtype(what: str, dtype: Any) -> DType:
    wanted = dtypes.dtype_of(dtype)
    if not wanted.is_float:
        raise DTypeError(f"{what}: {wanted.name} is no float; use randint for integers")
    return wanted


def normal(
    key: Tensor,
    shape: Sequence[Extent] = (),
    mean: Operand = 0.0,
    std: Operand = 1.0,
    dtype: Any = dtypes.float32,
) -> Tensor:
    """Normally distributed floats; |x| reaches 6.7 standard deviations (8.6 in float64).

    Box and Muller (1958): `sqrt(-2 log u) * cos(2 pi v)`, u and v uniform, u above 0. Backends
    agree within the tolerance of Log and Cos.
    """
    wanted = _float_dtype("normal", dtype)
    if wanted is dtypes.float64:
        pair = split(key)
        first, second = (select(pair, -2, number) for number in range(2))
        u = (bits(first, shape, dtypes.uint64) >> 11).cast(wanted) * 2.0**-53 + 2.0**-54
        v = uniform(second, shape, dtype=wanted)
    else:
        one, two = _drawn("normal", key, shape)
        # Half a step above 0: log(0) would be infinite.
        u = one.cast(dtypes.float32) * 2.0**-32 + 2.0**-33
        v = (two >> 8).cast(dtypes.float32) * 2.0**-24
    numbers = (u.log() * -2).sqrt() * (v * (2 * math.pi)).cos()
    if not (is_tensor(mean) or is_tensor(std)) and (mean, std) == (0, 1):
        return numbers.cast(wanted)
    return (numbers * std + mean).cast(wanted)


def exponential(
    key: Tensor, shape: Sequence[Extent] = (), rate: Operand = 1.0, dtype: Any = dtypes.float32
) -> Tensor:
    """Exponentially distributed floats, above 0 and finite: `-log(u) / rate`, 0 < u < 1 uniform."""
    wanted = _float_dtype("exponential", dtype)
    work = work_dtype(wanted)
    digits = 52 if work is dtypes.float64 else 23  # one less than the dtype has: u is never 1
    words = _drawn("exponential", key, shape)
    drawn = _wide(words) >> (64 - digits)
    u = drawn.cast(work) * 2.0**-digits + 2.0 ** -(digits + 1)
    return (-u.log() / rate).cast(wanted)


def gumbel(key: Tensor, shape: Sequence[Extent] = (), dtype: Any = dtypes.float32) -> Tensor:
    """Floats of the standard Gumbel distribution: `-log(exponential)`; logits plus these have
    their maximum at k with the probability softmax(logits)[k]."""
    wanted = _float_dtype("gumbel", dtype)
    return (-exponential(key, shape, dtype=work_dtype(wanted)).log()).cast(wanted)


def randint(
    key: Tensor, shape: Sequence[Extent], low: int, high: int, dtype: Any = dtypes.int64
) -> Tensor:
    """Integers of low <= x < high, each as likely up to 2**-32 of itself.

    The product of the span and 64 random bits, its high half; for spans from 2**32 on, a remainder.
    Raises DTypeError if the interval is empty or does not fit the dtype.
    """
    wanted = dtypes.dtype_of(dtype)
    span = int(high) - int(low)
    limits = np.iinfo(wanted.numpy) if wanted.is_int else None
    if limits is None or span < 1 or low < limits.min or high - 1 > limits.max:
        raise DTypeError(f"randint: {low}..{high} (high excluded) is no interval of {wanted.name}")
    words = _drawn("randint", key, shape)
    # Lemire's multiplication instead of a remainder (arXiv 1805.10941), which is a slow division in
    # most vector units.
    if span < 2**32:
        first, second = (word.cast(dtypes.uint64) * span for word in words)
        offset = (first + (second >> 32)) >> 32
    else:
        offset = _wide(words) if span == 2**64 else _wide(words) % span
    return offset.cast(wanted) + low if low else offset.cast(wanted)


def bernoulli(key: Tensor, p: Operand = 0.5, shape: Sequence[Extent] | None = None) -> Tensor:
    """True with probability `p` (a number or a Tensor): `uniform < p`. The default shape is p's."""
    chance = key.graph.constant(p)
    work = work_dtype(chance.dtype)
    drawn = uniform(key, chance.extents if shape is None else shape, dtype=work)
    return drawn < chance.cast(work)


def permutation(key: Tensor, x: Extent | Tensor, dim: int = 0) -> Tensor:
    """The integers 0..x-1 in random order (int64), or the slices of a Tensor along `dim`.

    The order that sorts random numbers of 64 bits.
    """
    if is_tensor(x):
        axis = axis_of("permutation", dim, x.ndim)
        return take(x, permutation(key, x.extents[axis]), axis)
    return argsort(bits(_one_key("permutation", key), (cast(Extent, x),), dtypes.uint64), 0)


def dropout(x: Tensor, p: float = 0.5, key: Tensor | None = None, training: bool = True) -> Tensor:
    """Each element 0 with probability `p`, else x / (1 - p): a Select, NaN and inf may be dropped.

    `x` itself outside of training. DTypeError without a key, ShapeError for p outside of 0..1.
    """
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout: p={p} is no probability; it lies in 0..1")
    if not x.dtype.is_float:
        raise DTypeError(f"dropout: {describe(x)} holds no floats; cast it")
    if p == 0 or not training:
        return x
    if p == 1:
        return x.graph.zeros(x.extents, x.dtype)
    if key is None:
        raise DTypeError("dropout: no key; pass key=lm.random.key(seed), or none with p=0")
    return where(bernoulli(_one_key("dropout", key), 1 - p, x.extents), x / (1 - p), 0)


# --- keys -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Keys:
    """One key, and how often was drawn from it."""

    key: Tensor
    taken: int = 0


_keys: ContextVar[_Keys | None] = ContextVar("luminal_nn_keys", default=None)


@contextmanager
def keyed(key: Tensor | None) -> Iterator[None]:
    """Inside the block each call of what draws (dropout) gets a key of its own from `key`.

    Make `key` an input of the graph, or carry it in a State, and give each run another one. A
    function under `lm.jit` takes it as an argument and has the block inside: it is recorded once,
    so none around it counts. None: as outside of all blocks.
    """
    token = _keys.set(None if key is None else _Keys(key))
    try:
        yield
    finally:
        _keys.reset(token)


def no_key(what: str) -> str:
    """What is wrong with a draw outside of `keyed` that every run would repeat."""
    return (
        f"{what}: it draws random numbers and has no random key; call model.eval() for "
        "inference, or call it inside `with nn.keyed(key):`, as for training (under lm.jit inside "
        "of the function, with the key as an argument)"
    )


def next_key(what: str, graph: Recorder) -> Tensor:
    """The key of one call; outside of `keyed` raises GraphError but on the default graph, whose
    keys the default generator draws.
    """
    keys, now = _keys.get(), _examples.get()
    if keys is None:
        return graph.next_key(what) if now is None else now.next_key(what)
    # The count is of the recording: each call site has its own key, the same in every run of the
    # program.
    keys.taken += 1
    key = fold_in(keys.key, keys.taken)
    return key if now is None else now.key_of(what, key)


class Examples(Protocol):
    """What records the function of `lm.vmap`, and says what its draws are."""

    depth: int

    def next_key(self, what: str) -> Tensor:
        """The key of one call."""

    def key_of(self, what: str, key: Tensor) -> Tensor:
        """The key of an example where all would draw with `key`."""

    def drawn(self, what: str, draw: Callable[[], Tensor]) -> Tensor:
        """Numbers that are drawn at once."""


_examples: ContextVar[Examples | None] = ContextVar("luminal_examples", default=None)


@contextmanager
def drawing_in(recorder: Examples | None) -> Iterator[None]:
    """Inside of the block draws are those of the function of `lm.vmap`."""
    token = _examples.set(recorder)
    try:
        yield
    finally:
        _examples.reset(token)


def examples() -> Any:
    """The Recorder of the function of `lm.vmap` that is recorded now, or None."""
    return _examples.get()


def drawn_once(what: str, draw: Callable[[], Tensor]) -> Tensor:
    """Numbers that are drawn at once; inside of `lm.vmap` as that says."""
    now = _examples.get()
    return draw() if now is None else now.drawn(what, draw)
