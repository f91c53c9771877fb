"""Movement, padding, splitting, diagonals, joining, creation: many cases in one graph each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.graph import Recorder
from tests.close import close
from tests.numerics.index_cases import Case, check
from tests.numerics.recording import results, run

pytestmark = pytest.mark.usefixtures("every_backend")

rng = np.random.default_rng(0)
X = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
M = rng.normal(0, 1, (3, 5)).astype(np.float32)
V = rng.normal(0, 1, 6).astype(np.float32)
T, TM, TV = map(torch.from_numpy, (X, M, V))


def test_movement_like_torch() -> None:
    same: dict[str, Callable[[Any], Any]] = {
        "movedim": lambda x: x.movedim(0, 2),
        "movedim-several": lambda x: x.movedim((0, -1), (-2, 0)),
        "swapaxes": lambda x: x.swapaxes(0, -1),
        "expand_as": lambda x: x[:1].expand_as(x),
        "broadcast_to": lambda x: x[:, :1].broadcast_to((2, 3, 4, 5)),
        "ravel": lambda x: x.ravel(),
        "reshape_as": lambda x: x.reshape_as(x.permute(3, 2, 1, 0)),
        "view": lambda x: x.view(6, 20),
        "tile": lambda x: x.tile((2, 3)),
        "tile-more": lambda x: x.tile((2, 1, 1, 1, 3)),
        "fliplr": lambda x: x.fliplr(),
        "flipud": lambda x: x.flipud(),
        "roll": lambda x: x.roll(2, 1),
        "roll-several": lambda x: x.roll((1, -3), (0, 3)),
        "roll-flat": lambda x: x.roll(7),
        "rot90": lambda x: x.rot90(1, (1, 2)),
        "rot90-2": lambda x: x.rot90(2, (3, 1)),
        "rot90-back": lambda x: x.rot90(-1, (0, 3)),
        "as_strided": lambda x: x.as_strided((3, 2), (7, 40), 5),
        "diagonal": lambda x: x.diagonal(1, 2, 3),
        "diagonal-below": lambda x: x.diagonal(-1, 3, 0),
        "diag_embed": lambda x: x[0].diag_embed(-2, 0, 2),
        "diag_embed-last": lambda x: x[0, 0].diag_embed(1),
        "tril": lambda x: x.tril(-1),
        "triu": lambda x: x.triu(2),
        "chunk": lambda x: x.chunk(3, 3),
        "tensor_split": lambda x: x.tensor_split(3, 3),
        "tensor_split-at": lambda x: x.tensor_split((1, 4, 3, 9), 3),
        "hsplit": lambda x: x.hsplit(3),
        "vsplit": lambda x: x.vsplit((1,)),
        "dsplit": lambda x: x.dsplit(2),
        "unbind": lambda x: x.unbind(2),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
        "repeat_interleave-flat": lambda x: x.repeat_interleave(2),
    }
    check({name: (fn, fn(T)) for name, fn in same.items()}, X)


def test_movement_with_numpys_names() -> None:
    cases: dict[str, Case] = {
        "moveaxis": (lambda x: lm.moveaxis(x, 0, -1), np.moveaxis(X, 0, -1)),
        "flip": (lambda x: lm.flip(x, axis=(1, 2)), np.flip(X, (1, 2))),
        "roll": (lambda x: lm.roll(x, (1, 2), axis=(0, 1)), np.roll(X, (1, 2), (0, 1))),
        "repeat": (lambda x: lm.array_api.repeat(x, 2, axis=-1), np.repeat(X, 2, -1)),
        "repeat-each": (
            lambda x: lm.array_api.repeat(x, [0, 2, 1], axis=1),
            np.repeat(X, [0, 2, 1], 1),
        ),
        "tile": (lambda x: lm.tile(x, (2, 1)), np.tile(X, (2, 1))),
        "expand_dims": (lambda x: lm.expand_dims(x, axis=1), X[:, None]),
        "permute_dims": (lambda x: lm.permute_dims(x, (3, 1, 2, 0)), X.transpose(3, 1, 2, 0)),
        "matrix_transpose": (lm.matrix_transpose, X.swapaxes(-1, -2)),
        "concat-flat": (lambda x: lm.concat([x, x[0]], axis=None), np.append(X, X[0])),
        "unstack": (lambda x: lm.unstack(x, axis=1), [X[:, k] for k in range(3)]),
        "merge": (lambda x: x.merge_dims(1, 2), X.reshape(2, 12, 5)),
        "split": (lambda x: x.split_dims(2, 2), X.reshape(2, 3, 2, 2, 5)),
    }
    check(cases, X)


def test_joining() -> None:
    named = ("hstack", "vstack", "dstack", "column_stack")
    cases: dict[str, Case] = {
        name: (
            lambda v, m, name=name: [getattr(lm, name)(pair) for pair in ([v, v * 2], [m, m])],
            [getattr(torch, name)([TV, TV * 2]), getattr(torch, name)([TM, TM])],
        )
        for name in named
    }
    cases |= {
        f"atleast_{n}d": (
            lambda v, m, n=n: getattr(lm, f"atleast_{n}d")(v[0], v, m),
            getattr(torch, f"atleast_{n}d")(TV[0], TV, TM),
        )
        for n in (1, 2, 3)
    }
    cases |= {
        "meshgrid": (lambda v, m: lm.meshgrid(v, m[0]), np.meshgrid(V, M[0], indexing="ij")),
        "meshgrid-xy": (lambda v, m: lm.array_api.meshgrid(v, m[0]), np.meshgrid(V, M[0])),
        "meshgrid-xy-of-three": (
            lambda v, m: lm.meshgrid(v, m[0], v, indexing="xy"),
            np.meshgrid(V, M[0], V),
        ),
        "cartesian": (lambda v, m: lm.cartesian_prod(v, m[0]), torch.cartesian_prod(TV, TM[0])),
        "block_diag": (lambda v, m: lm.block_diag(m, v, m[:1]), torch.block_diag(TM, TV, TM[:1])),
        "broadcast": (
            lambda v, m: lm.broadcast_tensors(m[:, :1], v),
            torch.broadcast_tensors(TM[:, :1], TV),
        ),
        "cat-nothing": (lambda v, m: lm.cat([v[:0], m]), M),
        "diag": (lambda v, m: [v.diag(1), m.diag(-1)], [TV.diag(1), TM.diag(-1)]),
        "diagflat": (lambda v, m: m.diagflat(-2), TM.diagflat(-2)),
    }
    check(cases, V, M)


PADS = {
    "none": (0, 0), "right": (0, 3), "left": (2, 0), "both": (4, 3), "two dims": (1, 2, 2, 1),
    "crop": (-1, 2), "crop both": (-1, -2),
}  # fmt: skip


def test_pad_like_torch() -> None:
    cases: dict[str, Case] = {}
    for name, amounts in PADS.items():
        for mode in ("constant", "replicate", "reflect", "circular"):
            if mode == "reflect" and name in ("crop", "crop both"):
                continue  # PyTorch reads outside of the tensor there
            image = T[0] if len(amounts) == 2 else T
            expected = torch.nn.functional.pad(image, amounts, mode)
            cases[f"{mode} {name}"] = (
                lambda x, a=amounts, m=mode: (x[0] if len(a) == 2 else x).pad(a, m),
                expected,
            )
    check(cases, X)


def test_pad_like_numpy() -> None:
    pairs = [(0, 0), (7, 3), (0, 9), (6, 5)]  # more than the extents: the pattern goes on
    cases: dict[str, Case] = {
        mode: (lambda x, m=mode: lm.pad(x, pairs, m), np.pad(X, pairs, mode))  # type: ignore[call-overload]
        for mode in ("constant", "edge", "reflect", "symmetric", "wrap")
    }
    check(cases, X)


def test_pad_with_nan_and_inf() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    pairs = [(1, 2)]
    cases: dict[str, Case] = {
        "zero": (lambda x: x.pad(pairs), np.pad(x, pairs)),
        "nan": (lambda x: x.pad(pairs, value=np.nan), np.pad(x, pairs, constant_values=np.nan)),
        "inf": (lambda x: x.pad(pairs, value=-np.inf), np.pad(x, pairs, constant_values=-np.inf)),
        "edge": (lambda x: x.pad(pairs, "replicate"), np.pad(x, pairs, "edge")),
        "concat": (lambda x: lm.concat([x, x.flip(), x]), np.concatenate([x, x[::-1], x])),
        "tril": (
            lambda x: (x[:, None] + x).tril(),
            torch.tril(torch.from_numpy(x)[:, None] + torch.from_numpy(x)),
        ),
    }
    check(cases, x)


def test_symbolic_movement() -> None:
    cases: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda x: x.roll(3, 0), np.roll(M, 3, 0)),
        (lambda x: x.roll(x.shape[1] - 1, 1), np.roll(M, 4, 1)),
        (lambda x: x.rot90(), np.rot90(M)),
        (lambda x: x.diagonal(1), np.diagonal(M, 1)),
        (lambda x: x.pad([(2, 1), (1, 1)], "reflect"), np.pad(M, [(2, 1), (1, 1)], "reflect")),
        (lambda x: x.pad([(0, 9), (1, 0)], "circular"), np.pad(M, [(0, 9), (1, 0)], "wrap")),
        (lambda x: x.pad([(1, 1), (1, 0)], "edge"), np.pad(M, [(1, 1), (1, 0)], "edge")),
        (lambda x: x[0].diag_embed(), np.diag(M[0])),
        (lambda x: x.tril(1), np.tril(M, 1)),
        (lambda x: lm.tile(x, (2, 2)), np.tile(M, (2, 2))),
        (lambda x: x.sort(0).values, np.sort(M, 0)),
        (lambda x: x.topk(2).values, -np.sort(-M, 1)[:, :2]),
        (lambda x: lm.searchsorted(x[0].sort().values, x), np.searchsorted(np.sort(M[0]), M)),
        (lambda x: lm.zeros_like(x), np.zeros_like(M)),
    ]

    def fn(x: Any) -> list[Any]:
        return [each(x) for each, _ in cases]

    found = run(fn, M, shapes=[("m", "n")], dims={"m": 3, "n": 5})
    for number, (actual, (_, expected)) in enumerate(zip(found, cases, strict=True)):
        try:
            close(actual, expected)
        except AssertionError as error:
            raise AssertionError(f"case {number}: {error}") from None


def test_empty_and_0d() -> None:
    scalar, empty = np.float32(3), np.zeros((0, 4), np.float32)
    cases: dict[str, Case] = {
        "0-d": (
            lambda s, e: [s.sort().values, s.topk(1)[1], s.flip(), s.ravel(), s.t(), s.roll(1)],
            [scalar, np.int64(0), scalar, np.array([scalar]), scalar, scalar],
        ),
        "0-d gather": (lambda s, e: s.gather(0, 0 * s.cast("int64")), scalar),
        "empty": (
            lambda s, e: [e.roll(1, 0), e.sort(0)[0], e.tril(), e.diagonal(), e.rot90()],
            [empty, empty, empty, np.zeros(0, np.float32), np.zeros((4, 0), np.float32)],
        ),
        "pad": (lambda s, e: e.pad([(1, 0), (0, 0)], value=2), np.full((1, 4), 2, np.float32)),
        "split": (lambda s, e: e.chunk(2, 1), [empty[:, :2], empty[:, 2:]]),
    }
    check(cases, np.asarray(scalar), empty)


def test_creation() -> None:
    cx = Recorder()
    s = cx.dim("s", 0, 9)
    cases: list[tuple[Any, Any]] = [
        (cx.linspace(-1, 2, 7), np.linspace(-1, 2, 7, dtype=np.float32)),
        (cx.linspace(0, 10, s), np.linspace(0, 10, 4, dtype=np.float32)),
        (cx.linspace(0, 1, 5, endpoint=False), np.linspace(0, 1, 5, False, dtype=np.float32)),
        (cx.linspace(3, 4, 1), np.array([3], np.float32)),
        (cx.linspace(3, 4, 0), np.zeros(0, np.float32)),
        (cx.linspace(0, 9, 4, "float64"), np.linspace(0, 9, 4)),
        (cx.logspace(0, 3, 4), np.logspace(0, 3, 4, dtype=np.float32)),
        (cx.logspace(-2, 2, 5, 2.0), np.logspace(-2, 2, 5, base=2, dtype=np.float32)),
        (cx.arange(1.0, 0.0, -0.25), np.arange(1, 0, -0.25, np.float32)),
        (cx.tri(3, 4, 1), np.tri(3, 4, 1, np.float32)),
        (cx.tri(s, dtype="int32"), np.tri(4, dtype=np.int32)),
        (cx.tril_indices(3, 4, -1), torch.tril_indices(3, 4, -1).numpy()),
        (cx.triu_indices(3, 4, 1, "int32"), torch.triu_indices(3, 4, 1).numpy().astype(np.int32)),
        (cx.empty((2, 0)), np.zeros((2, 0), np.float32)),
        (lm.full_like(cx.iota((2, s)), 7), np.full((2, 4), 7)),
        (lm.ones_like(cx.iota((2, s)), "bool"), np.ones((2, 4), bool)),
        (cx.iota((3,)).new_zeros(2, 2), np.zeros((2, 2), np.int64)),
    ]
    for tensor, _ in cases:
        cx.output(tensor)
    found = results(cx, [tensor for tensor, _ in cases], {}, {"s": 4})
    for array, (_, expected) in zip(found, cases, strict=True):
        close(array, expected)


def test_dtypes_by_value_and_by_bits() -> None:
    x = np.array([[1.5, -2.0, np.nan, 0.0], [3e38, -0.0, np.inf, 7]], np.float32)
    words = rng.integers(0, 2**32, (3, 4), np.uint32)
    cases: dict[str, Case] = {
        "float": (lambda x, w: w.to("float32").double(), words.astype(np.float32).astype(float)),
        "half": (lambda x, w: x[0, :2].half().float(), x[0, :2]),
        "bool": (lambda x, w: x.bool(), x != 0),
        "int": (lambda x, w: x[:1, :2].int(), np.array([[1, -2]], np.int32)),
        "long": (lambda x, w: w.long(), words.astype(np.int64)),
        "type_as": (lambda x, w: x[0, :2].type_as(w.short()), np.array([1, -2], np.int16)),
        "same": (lambda x, w: x.view(lm.int32), x.view(np.int32)),
        "narrower": (lambda x, w: w.view(lm.uint8), words.view(np.uint8)),
        "halves": (lambda x, w: x.view(lm.int16), x.view(np.int16)),
        "wider": (lambda x, w: w.view(lm.int64), words.view(np.int64)),
        "to float": (lambda x, w: w.view(lm.uint8).view(lm.float32).view(lm.uint32), words),
        "bfloat16": (lambda x, w: w.view(lm.bfloat16).view(lm.uint16), words.view(np.uint16)),
    }  # fmt: skip
    check(cases, x, words)
    with pytest.raises(ShapeError, match="does not divide by 8"):
        run(lambda x: x.view(lm.float64), np.zeros(9, np.uint8))
    with pytest.raises(DTypeError, match="cannot be read as bool"):
        run(lambda x: x.view(lm.bool_), x)


def test_16_bit_floats_keep_their_bits() -> None:
    x = rng.normal(0, 1, (4, 6)).astype(ml_dtypes.bfloat16)
    wide, pairs = x.astype(np.float32), [(0, 1), (0, 0)]
    cases: dict[str, Case] = {
        "sort": (lambda x: x.sort(0).values.float(), np.sort(wide, 0)),
        "roll": (lambda x: x.roll(2, 1).float(), np.roll(wide, 2, 1)),
        "pad": (lambda x: x.pad(pairs, "edge").float(), np.pad(wide, pairs, "edge")),
        "tril": (lambda x: x.tril().float(), np.tril(wide)),
        "take": (lambda x: x.take([3, -1], 1).float(), wide[:, [3, -1]]),
    }  # fmt: skip
    check(cases, x)


def test_movement_errors() -> None:
    cases: list[tuple[Callable[[Any], Any], str]] = [
        (lambda x: x.movedim((0, 1), (1, 1)), "movedim: .* each once"),
        (lambda x: x.t(), r"t: x0: f32\[2, 3, 4, 5\] has more than 2 dims"),
        (lambda x: x.roll((1, 2), 0), "roll: 2 shifts for 1 dims"),
        (lambda x: x.rot90(1, (1, -3)), "rot90: .* name one dimension twice"),
        (lambda x: x.diagonal(0, 1, -3), "diagonal: .* are one dimension"),
        (lambda x: x.pad((1, 2, 3)), "pad: .* is not a"),
        (lambda x: x.pad((1, 1), "mirror"), "pad: mode 'mirror' is not known"),
        (lambda x: x.hsplit(2), "hsplit: 3 does not divide into 2; use tensor_split"),
        (lambda x: x.split_dims(1, 2), "unflatten: 3 does not divide"),
        (lambda x: lm.repeat(x, 2, axis=0), "repeat: it tiles, .* use repeat_interleave"),
        (lambda x: lm.meshgrid(x), "meshgrid: .* is not 1-d"),
        (lambda x: lm.meshgrid(x[0, 0, 0], indexing="yx"), "meshgrid: indexing='yx'"),
        (lambda x: x.repeat_interleave([1, 2], 1), "repeat_interleave: 2 counts for 3 elements"),
        (lambda x: x.chunk(0), "chunk: 0 chunks"),
        (lambda x: lm.block_diag(x), "block_diag: .* more than 2 dims"),
    ]
    for fn, text in cases:
        with pytest.raises(ShapeError, match=text):
            run(fn, X)
