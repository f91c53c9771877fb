"""A program bound to shapes, run on memory by address, for front ends with tensors of their own.

Nothing is checked here but what the shapes were checked for: that all memory is row-major, of the
declared dtypes, alive, and written by nobody else during the run, is the caller's to see to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from luminal.runtime.outputs import OutputPlan
from luminal.runtime.runner import AddressedRunner

if TYPE_CHECKING:
    from luminal.runtime.executable import Executable


class Addressed:
    """A program bound to shapes, to be run on memory by address (`Executable.at`). `dims` are those
    of the run, `outputs` what it writes, in order.
    """

    __slots__ = ("_bound", "_executable", "dims", "outputs")

    def __init__(
        self,
        executable: Executable,
        dims: Mapping[str, int],
        outputs: Sequence[OutputPlan],
        bound: AddressedRunner,
    ) -> None:
        self._executable = executable
        self._bound = bound
        self.dims = dims
        self.outputs = tuple(outputs)

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs once: `inputs` are addresses in the order of `input_names`, `outputs` those of the
        memory to write, which overlaps no other.

        A device's run is queued. What it takes from the host, or leaves there, are arrays instead
        of addresses, and outputs there are waited for. Its addresses are multiples of 16.
        """
        self._executable.run_at(self._bound, self.dims, inputs, outputs)
