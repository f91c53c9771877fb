"""Rows of ops that move elements: shapes, orders, parts, repetitions, joining."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import luminal as lm
from tests.conformance.rows import ANY, ODD, Row, along, by_torch, function, several


def moved(op: str, expected: Any, against: str, call: Any = None, **more: Any) -> Row:
    """A row of one operand of any dtype."""
    more.setdefault("empty", (0, 5, 7))
    return along(op, expected, (-9, 9), ANY, call=call, against=against, **more)


def padded(mode: str) -> Row:
    """A row of a padding mode, over the last two dims."""
    amounts = (1, 2, 2, 1)
    beyond = "amounts may exceed the extent, as NumPy's; PyTorch raises"
    return along(f"pad {mode}", by_torch(lambda x: F.pad(x, amounts, mode)),
                 dtypes=("float32", "float64", "bfloat16"), call=lambda x: x.pad(amounts, mode),
                 against="torch.nn.functional.pad",
                 note=beyond if mode in ("reflect", "circular") else "",
                 empty=(0, 2, 5, 7) if mode != "constant" else (0, 5, 7))  # fmt: skip


SHAPE = [
    moved("reshape", lambda x: x.reshape(-1, 7), "numpy.reshape", lambda x: x.reshape(-1, 7)),
    moved("permute", lambda x: x.transpose(2, 0, 1), "numpy.transpose",
          lambda x: x.permute(2, 0, 1)),
    moved("transpose", lambda x: x.swapaxes(0, 2), "numpy.swapaxes", lambda x: x.transpose(0, 2),
          note="two dims, as PyTorch's method; NumPy's takes an order (`permute`)"),
    moved("swapaxes", lambda x: x.swapaxes(-1, 1), "numpy.swapaxes", lambda x: x.swapaxes(-1, 1)),
    moved("movedim", lambda x: np.moveaxis(x, (0, 1), (-1, 0)), "numpy.moveaxis",
          lambda x: x.movedim((0, 1), (-1, 0))),
    moved("T", lambda x: x.T, "numpy.T", lambda x: x.T),
    moved("mT", lambda x: x.swapaxes(-1, -2), "numpy.matrix_transpose", lambda x: x.mT),
    moved("expand", lambda x: np.broadcast_to(x, (2, 3, 5, 7)), "numpy.broadcast_to",
          lambda x: x.expand(2, 3, 5, 7), empty=None, dynamic=False),
    moved("broadcast_to", lambda x: np.broadcast_to(x, (2, 3, 5, 7)), "numpy.broadcast_to",
          lambda x: x.broadcast_to((2, 3, 5, 7)), empty=None, dynamic=False),
    moved("squeeze", lambda x: x.squeeze(1), "numpy.squeeze", lambda x: x.squeeze(1),
          shape=(3, 1, 7), empty=(0, 1, 2),
          note="keeps a named dim that is not 1, as PyTorch; NumPy raises"),
    moved("unsqueeze", lambda x: np.expand_dims(x, (0, -1)), "numpy.expand_dims",
          lambda x: x.unsqueeze((0, -1)), zero_d=True),
    moved("flatten", lambda x: x.reshape(len(x), x[:1].size or 35), "numpy.reshape",
          lambda x: x.flatten(1), note="of 0-d a 1-d tensor, as both"),
    moved("ravel", lambda x: x.ravel(), "numpy.ravel", zero_d=True),
    moved("unflatten", lambda x: x.reshape(3, 2, 3, 7), "torch.unflatten",
          lambda x: x.unflatten(1, (2, 3)), shape=(3, 6, 7), empty=None),
    moved("split_dims", lambda x: x.reshape(3, 2, 3, 7), "numpy.reshape",
          lambda x: x.split_dims(1, 3), shape=(3, 6, 7), empty=None),
    moved("merge_dims", lambda x: x.reshape(3, -1), "numpy.reshape", lambda x: x.merge_dims(1, 2),
          empty=None),
]  # fmt: skip

PARTS = [
    moved("narrow", lambda x: x[:, 1:4], "torch.narrow", lambda x: x.narrow(1, 1, 3)),
    moved("select", lambda x: x[:, 2], "torch.select", lambda x: x.select(1, 2)),
    moved("split", by_torch(lambda x: torch.split(x, 2, 1)), "torch.split",
          lambda x: x.split(2, 1), dynamic=False, note="by the size of a part, as PyTorch; "
          "NumPy's takes the number of parts"),
    moved("chunk", by_torch(lambda x: torch.chunk(x, 3, 2)), "torch.chunk",
          lambda x: x.chunk(3, 2)),
    moved("tensor_split", by_torch(lambda x: torch.tensor_split(x, 3, 2)), "torch.tensor_split",
          lambda x: x.tensor_split(3, 2)),
    moved("unbind", by_torch(lambda x: torch.unbind(x, 1)), "torch.unbind", lambda x: x.unbind(1),
          dynamic=False),
    moved("subscript: steps", lambda x: x[::2, -3:, ::-3], "numpy", lambda x: x[::2, -3:, ::-3],
          note="negative steps as NumPy; PyTorch has none"),
    moved("subscript: ints, None, ...", lambda x: x[..., None, 2], "numpy",
          lambda x: x[..., None, 2]),
    moved("subscript: integer lists", lambda x: x[:, [0, 3, 3], [-1, 0, 2]], "numpy",
          lambda x: x[:, [0, 3, 3], [-1, 0, 2]],
          note="an int leaves the dims of tensors in place, as PyTorch: x[0, :, i]; NumPy moves "
          "them to the front"),
    moved("diagonal", lambda x: x.diagonal(1, 1, 2), "numpy.diagonal",
          lambda x: x.diagonal(1, 1, 2)),
    moved("tril", lambda x: np.tril(x, 1).astype(x.dtype), "numpy.tril", lambda x: x.tril(1)),
    moved("triu", lambda x: np.triu(x, -1).astype(x.dtype), "numpy.triu", lambda x: x.triu(-1)),
]  # fmt: skip

ORDER = [
    moved("flip", lambda x: np.flip(x, (0, 2)), "numpy.flip", lambda x: x.flip((0, 2))),
    moved("fliplr", np.fliplr, "numpy.fliplr"),
    moved("flipud", np.flipud, "numpy.flipud"),
    moved("roll", lambda x: np.roll(x, (1, -3), (0, 2)), "numpy.roll",
          lambda x: x.roll((1, -3), (0, 2))),
    moved("rot90", lambda x: np.rot90(x, 1, (0, 2)), "numpy.rot90", lambda x: x.rot90(1, (0, 2))),
]  # fmt: skip

MORE = [
    moved("repeat", lambda x: np.tile(x, (2, 1, 3)), "numpy.tile", lambda x: x.repeat(2, 1, 3),
          note="tiles, as PyTorch's, also as `lm.repeat`; NumPy's repeats elements: "
          "`repeat_interleave`, `lm.array_api.repeat`"),
    moved("tile", lambda x: np.tile(x, (2, 3)), "numpy.tile", lambda x: x.tile((2, 3))),
    moved("repeat_interleave", lambda x: np.repeat(x, 3, 1), "numpy.repeat",
          lambda x: x.repeat_interleave(3, 1)),
    moved("diag", np.diag, "numpy.diag", shape=(5,), empty=(0,)),
    moved("diag_embed", by_torch(lambda x: torch.diag_embed(x, 1)), "torch.diag_embed",
          lambda x: x.diag_embed(1)),
    *(padded(mode) for mode in ("constant", "reflect", "replicate", "circular")),
    moved("slice_scatter", lambda x: np.concatenate([x[:, :1], x[:, :3], x[:, 4:]], 1),
          "numpy.concatenate", lambda x: x.slice_scatter(x.narrow(1, 0, 3), 1, 1)),
]  # fmt: skip


def joined(op: str, expected: Any, shapes: list[tuple[int, ...]], call: Any, **more: Any) -> Row:
    return several(op, expected, shapes, dtypes=ANY, call=call, **more)


JOINING = [
    joined("concat", lambda *x: np.concatenate(x, 1), [(3, 5), (3, 2), (3, 7)],
           lambda *x: lm.concat(x, 1), against="numpy.concatenate",
           others={"empty": [(3, 0), (3, 2), (3, 0)], "broadcast": [(3, 1), (3, 1), (3, 4)]}),
    joined("stack", lambda *x: np.stack(x, 1), [ODD, ODD, ODD], lambda *x: lm.stack(x, 1),
           against="numpy.stack", others={"empty": [(0, 2)] * 3}),
    joined("hstack", lambda *x: np.hstack(x), [(3, 5), (3, 2)], lambda *x: lm.hstack(x),
           against="numpy.hstack", others={"0-d": [(), ()]}),
    joined("vstack", lambda *x: np.vstack(x), [(3, 5), (2, 5)], lambda *x: lm.vstack(x),
           against="numpy.vstack", others={"0-d": [(), ()]}),
    joined("dstack", lambda *x: np.dstack(x), [(3, 5), (3, 5)], lambda *x: lm.dstack(x),
           against="numpy.dstack", others={"0-d": [(), ()]}),
    joined("meshgrid", lambda *x: np.meshgrid(*x, indexing="ij"), [(3,), (5,)],
           function("meshgrid"), against="numpy.meshgrid", note='indexing="ij", as PyTorch; '
           'NumPy\'s default is "xy", which `lm.array_api.meshgrid` has'),
]  # fmt: skip

ROWS: list[Row] = [*SHAPE, *PARTS, *ORDER, *MORE, *JOINING]
