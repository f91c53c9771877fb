"""What runs of a Program have in common if they take and give arrays of the same names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from luminal.program.memory_plan import Placement
from luminal.runtime.device_launches import Bound
from luminal.runtime.table import Table
from luminal.runtime.workspace import Layout, Plan, classes, lay_out

if TYPE_CHECKING:
    from luminal.runtime.device_runner import DeviceRunner

KEPT = 32  # layouts of a program, and lists for its dims, that are remembered
STAGED, WORKED = 256 << 10, 256 << 20
"""Bytes that each run copies, and those that it works in, which may be as many as any dims need."""


class DeviceTable:
    """A Program for runs that take and give arrays of these names, whatever the dims are. Those of
    `addressed` lie on the device, at addresses that each run is told; the workspace has no room
    for them.
    """

    def __init__(
        self,
        runner: DeviceRunner,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        addressed: frozenset[str],
    ) -> None:
        self.runner = runner
        self.inputs, self.outputs = inputs, outputs
        program, plan = runner.program, runner.placements.plan
        self.table = table = Table.of(program, plan, inputs, outputs)
        numbers = program.table
        hidden = dict.fromkeys(number for _, number in table.hidden)
        read = {numbers[entry]: k for entry, k in table.inputs}
        written = {numbers[entry]: k for entry, k in table.outputs}
        self.read_at = [(n, k) for n, k in read.items() if inputs[k] in addressed]
        self.written_at = [(n, k) for n, k in written.items() if outputs[k] in addressed]
        self.waits = any(name not in addressed for name in outputs)
        self.plan = Plan(
            tuple((n, k) for n, k in read.items() if inputs[k] not in addressed),
            tuple((n, k) for n, k in written.items() if outputs[k] not in addressed),
            tuple(hidden),
            tuple(plan.buffers),
            runner.launches.integer_bytes,
        )
        around = [*dict(self.plan.inputs), *dict(self.plan.outputs), *hidden]
        self._around = around
        self._sizes = [runner.sizes[number] for number in around]
        self.states = [(numbers[entry], state) for entry, state in table.states]
        first = {state: k for k, (_, state) in reversed([*enumerate(self.states)])}
        self.overwritten = [first[state] for state in runner.overwritten]
        self.following = [(numbers[entry], state) for entry, state in table.following]
        self._layouts: dict[Hashable, tuple[Layout, Placement]] = {}
        self._bound: dict[tuple[int, ...], Bound] = {}

    # A server's steps have dozens of sizes that come and go. Of one layout they have one recording,
    # where each of its own would be recorded again and again.
    def layout(self, values: Sequence[int]) -> Layout:
        """Where all of a run lies, if the quantities have these values: for all dims alike where
        that takes little memory.
        """
        arena = self.runner.placements.sizes
        placement = self.runner.placements.at(self.at_most(values, arena, WORKED))
        sizes = classes(self.at_most(values, self._sizes, STAGED), self._sizes)
        key = (id(placement), sizes)
        if key not in self._layouts:
            if len(self._layouts) >= KEPT:
                del self._layouts[next(iter(self._layouts))]
            bytes_of = dict(zip(self._around, sizes, strict=True))
            self._layouts[key] = lay_out(self.plan, placement, bytes_of), placement  # keeps its id
        return self._layouts[key][0]

    def at_most(self, values: Sequence[int], numbers: Sequence[int], limit: int) -> Sequence[int]:
        """The values of the quantities at the ends of all dims, if those of these numbers take no
        more bytes than the limit there, and nowhere more than there; else the values themselves.
        """
        most = self.runner.most
        is_little = sum(most[number] for number in numbers) <= limit
        return most if is_little and all(values[n] <= most[n] for n in numbers) else values

    def bound(self, variant: tuple[int, ...], values: Sequence[int]) -> Bound:
        """The launch list for these values, of which `variant` are those that it depends on."""
        if variant not in self._bound:
            if len(self._bound) >= KEPT:
                del self._bound[next(iter(self._bound))]
            self._bound[variant] = self.runner.launches.bind(values)
        return self._bound[variant]
