"""The table: every op's row, by family, and `docs/ops.md` written from it.

A new op is one row in the `rows_*` module of its family.
"""

from __future__ import annotations

from pathlib import Path

from tests.conformance import (
    rows_functions,
    rows_linalg,
    rows_movement,
    rows_pointwise,
    rows_positions,
    rows_reduce,
    rows_windows,
)
from tests.conformance.rows import CLASSES, Row

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "ops.md"
FAMILIES: dict[str, list[Row]] = {
    "Arithmetic, order, bits, casts": rows_pointwise.ROWS,
    "Functions and activations": rows_functions.ROWS,
    "Reductions, running sums, norms, losses": rows_reduce.ROWS,
    "Shape, order and parts": rows_movement.ROWS,
    "Positions, sorting, creation": rows_positions.ROWS,
    "Products and linear algebra": rows_linalg.ROWS,
    "Windows: convolution, pooling, resampling": rows_windows.ROWS,
}
ROWS = [row for rows in FAMILIES.values() for row in rows]

HEAD = """# Operations

Written by `pytest tests/conformance --update-golden` from the table in `tests/conformance`; do not
edit. {ops} ops, {cells} cases. Every case runs on the CPU and on the reference backend; both are
compared with each other and with the function named under "tested against".

Cases are dtype x shape class. The classes: {classes}.
"""
DIFFERENCES = """
## Where NumPy and PyTorch differ, or we do

Methods follow torch.Tensor, functions of `lm` PyTorch's of their name: `lm.f` is `Tensor.f`.
`lm.array_api` has functions of the array API in its own sense.

| op | whom we follow |
|---|---|
"""
# Differences that no row stands for.
FURTHER = {
    "sum, mean, amax and the like": "an empty tuple of dims reduces nothing, as NumPy; PyTorch "
    "takes it for all dims",
    "nll_loss, cross_entropy, one_hot, binary_cross_entropy": "targets and inputs out of range "
    "read 0 or follow the formula; PyTorch raises",
    "softmax": "without a dim along the last; PyTorch's old rule depends on the rank, and warns",
    "x[[[0, 1], [2, 3]]]": "nested lists are one index of two dims, as NumPy; PyTorch takes them "
    "for a tuple",
    "equal": "one bool for whole tensors, as torch.equal; by element: `eq`, `lm.array_api.equal`",
    "bernoulli, multinomial, dropout and the like": "the key is one of `nn.keyed`'s, or `key=`; "
    "PyTorch has a hidden generator",
    "multinomial": "without replacement and with too few weights above 0 others follow; PyTorch "
    "raises",
    "x[mask], masked_select, nonzero, unique, bincount": "of constants, and on the default graph, "
    "which computes what they look at; elsewhere the size is given, or it is an error before the "
    "run",
    "stride": "that of the array a run gives, row-major; PyTorch's views keep other strides",
    "x.to(int8) and other casts of floats to integers": "out of range the nearest integer, NaN 0; "
    "PyTorch's results depend on the machine",
    "linalg.lstsq": "by the pseudoinverse, whatever the driver",
    "complex numbers, fft": "a ComplexTensor is a pair of real Tensors (`z.real`, `z.imag`), so "
    "what a program takes is real (`lm.jit` takes complex arrays); Parameters and States may be "
    "complex; extents along which is transformed are literal",
    "layer_norm, rms_norm, embedding, batch_norm, dropout": "as functions of `lm`: "
    "torch.nn.functional's order of arguments, not torch's undocumented ones",
}
SHORT = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i"}


def document() -> str:
    """The text of docs/ops.md."""
    head = HEAD.format(ops=len(ROWS), cells=sum(len(row.cells()) for row in ROWS),
                       classes=", ".join(CLASSES))  # fmt: skip
    parts = [head]
    for family, rows in FAMILIES.items():
        parts.append(f"\n## {family}\n\n| op | dtypes | classes | tested against | status |\n")
        parts.append("|---|---|---|---|---|\n")
        parts += [_line(row) for row in rows]
    parts.append(DIFFERENCES)
    parts += [f"| {row.op} | {row.note} |\n" for row in ROWS if row.note]
    parts += [f"| {op} | {note} |\n" for op, note in FURTHER.items()]
    return "".join(parts)


def _line(row: Row) -> str:
    kinds = sorted({kind for _, kind in row.cells()}, key=CLASSES.index)
    classes = "all" if len(kinds) == len(CLASSES) else ", ".join(kinds)
    names = " ".join(map(_short, row.dtypes))
    return f"| {row.op} | {names} | {classes} | {row.against} | {_status(row)} |\n"


def _short(dtype: str) -> str:
    for name, letters in SHORT.items():
        if dtype.startswith(name):
            return dtype.replace(name, letters)
    return dtype


def _status(row: Row) -> str:
    if not row.known:
        return "passes"
    reasons = {why: [cell for cell, each in row.known.items() if each == why]
               for why in row.known.values()}  # fmt: skip
    return "; ".join(f"{', '.join(cells)}: {why}" for why, cells in reasons.items())
