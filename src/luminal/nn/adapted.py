"""Matrices with low-rank adapters beside them, of which each row of a run has its own.

Hu et al., arXiv 2106.09685: an adapter adds `B @ A` to a matrix. Merged, it serves its own requests
alone; here both products stay beside each other, so one run has rows of any of them (Chen et al.,
arXiv 2310.18547), and a row costs two small products more, however many adapters there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from luminal.base.dtypes import int32
from luminal.base.errors import InputError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent
from luminal.frontend.tensor import Tensor
from luminal.memory.parameter import Parameter
from luminal.nn.linear import Linear


class Adapters:
    """The adapters beside a model's matrices: number 0 is none, `names[k]` has number k + 1.

    While a program is recorded, `numbers` are those of its rows, int32.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = (*names,)
        self.layers: list[AdaptedLinear] = []
        self.numbers: Tensor | None = None


@contextmanager
def of_rows(adapters: Adapters | None, graph: Recorder, count: Extent) -> Iterator[None]:
    """What is recorded has rows of these adapters, whose numbers are the input "adapters", int32:
    `count` is the rows that go into the layers, or 1, for one number of all. Nothing for None.

    Raises InputError where a matrix is read without its adapters.
    """
    if adapters is None:
        yield
        return
    adapters.numbers = graph.tensor((count,), int32, "adapters")
    for layer in adapters.layers:
        layer.is_adapted = False
    try:
        yield
    finally:
        adapters.numbers = None
    for layer in adapters.layers:
        # Some attention reads a matrix without calling its layer: rows would then be quietly those
        # of no adapter.
        if not layer.is_adapted:
            raise layer.only_merged("is read otherwise than as a Linear")


class AdaptedLinear(Linear):
    """A Linear, and A (adapters, rank, in_features) and B (adapters, out_features, rank) beside it,
    the first of each zeros: to a row x of adapter k it adds `B[k] @ (A[k] @ x)`. Without numbers of
    rows it is the Linear.
    """

    def __init__(
        self, linear: Linear, path: str, lora_A: Array, lora_B: Array, adapters: Adapters
    ) -> None:
        vars(self).update(vars(linear))
        self.path = path
        self.lora_A, self.lora_B = Parameter(lora_A), Parameter(lora_B)
        self.adapters = adapters
        self.is_adapted = False
        adapters.layers.append(self)

    def forward(self, x: Tensor) -> Tensor:
        """x (rows, in_features) to (rows, out_features)."""
        y = super().forward(x)
        numbers = self.adapters.numbers
        if numbers is None:
            return y
        if x.ndim != 2:
            raise self.only_merged(f"multiplies {x.extents}, no row for each token")
        self.is_adapted = True
        # Gathered and not masked: a row reads the matrices of its own adapter alone.
        low = self.read(self.lora_A, x)[numbers] @ x.unsqueeze(-1)
        added = (self.read(self.lora_B, x)[numbers] @ low).squeeze(-1)
        return (y + added).cast(y.dtype)

    def only_merged(self, why: str) -> InputError:
        """An error about a matrix that adapters cannot be kept beside."""
        return InputError(
            f"adapters: {self.path} {why}, so adapters cannot be kept beside it; merge one into "
            "the model: `luminal merge MODEL ADAPTER OUT`, or --adapter FOLDER without a name"
        )
