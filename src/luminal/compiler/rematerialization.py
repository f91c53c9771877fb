"""Which values of a training step are kept for its gradients and which are computed again: plans to
choose from.

A plan cuts the forward pass into parts that end where few bytes pass on, and has some of them
computed again when the first gradient arrives that reads them: those first that hold most bytes
for each flop (Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost",
arXiv 1604.06174). Equal layers are cut alike, so that they still roll.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from luminal.base.records import dataclass
from luminal.hlir.graph import Builder, Graph, copied
from luminal.hlir.ops import Node, Value
from luminal.hlir.recompute import InputReaders, Recomputation
from luminal.rolling.runs import size_of

COUNTS = (24, 12, 9, 6, 4)  # of parts, about: more keep more between parts, fewer more in one
SHARES = (0.5, 1.0)  # of the parts, as far as their flops go

Plan = dict[Node, tuple[int]]
"""The forward nodes that are computed again, each with the number of its part."""


# Copies fuse with what reads them, so what a plan needs is decided by rolling, fusion and
# placement. No estimate on HLIR knows that: so nothing is estimated, and each plan is compiled up
# to its memory plan.
@dataclass(frozen=True, slots=True)
class Step:
    """A graph with gradients. `forward`: what depends on Inputs and was not recorded for gradients,
    in order; `factors`: what gradients read and no gradient enters; `late`: all that depends on a
    gradient.
    """

    graph: Graph
    forward: list[Node]
    factors: list[Node]
    late: dict[Node, None]

    @classmethod
    def of(cls, graph: Graph, pulled: Collection[Node], cotangents: Collection[Node]) -> Step:
        """`pulled`: what was recorded for derivatives; `cotangents`: the gradients among it."""
        step, readers = cls(graph, [], [], {}), InputReaders()
        for node in graph.nodes():
            if node not in readers:
                continue
            if (node in pulled and node in cotangents) or any(
                a.node in step.late for a in node.args
            ):
                step.late[node] = None
            elif node.args:
                (step.factors if node in pulled else step.forward).append(node)
        return step

    def plans(self) -> Iterator[Plan]:
        """The plans, from few flops computed again to many."""
        by_nodes: dict[tuple[Node, ...], tuple[float, Plan]] = {}
        for share in SHARES:
            for count in COUNTS:
                plan = self._plan(count, share)
                by_nodes.setdefault((*plan,), (sum(map(_flops, plan)), plan))
        yield from (plan for _, plan in sorted(by_nodes.values(), key=lambda pair: pair[0]) if plan)

    # Few plans: parts of about a 24th, 12th, 9th, 6th or 4th, all of them computed again or those
    # with most bytes a flop. A plan that cuts layers otherwise than they repeat can need more
    # memory than the plain step, since its layers roll no more.
    def _plan(self, count: int, share: float) -> Plan:
        # Chen et al. cut a chain of layers; here a part is any stretch of the recorded order whose
        # end passes few bytes on, so nothing in the graph has to be named a layer.
        read = {arg.node for node in (*self.late, *self.factors) for arg in node.args}
        saved = [_bytes(n) if n in read and _is_held(n) else 0 for n in self.forward]
        ends = _ends(saved, self._passed(), sum(saved) / count)
        parts = [slice(a, b) for a, b in zip([0, *ends], [*ends, len(saved)], strict=True)]
        flops = [sum(map(_flops, filter(_may_be_copied, self.forward[p]))) for p in parts]
        worth = [sum(saved[p]) / (1 + f) for p, f in zip(parts, flops, strict=True)]
        plan: Plan = {}
        left = share * sum(flops)
        for k in sorted(range(len(parts)), key=lambda k: (-worth[k], k)):
            if left > 0:
                plan |= {n: (k,) for n in self.forward[parts[k]] if _may_be_copied(n)}
            left -= flops[k]
        for node in self.factors:
            parts_of_args = [plan[arg.node] for arg in node.args if arg.node in plan]
            if parts_of_args and _may_be_copied(node):
                plan[node] = max(parts_of_args)
        return plan

    def _passed(self) -> list[int]:
        """The bytes, at each forward node, of it and those before that forward nodes behind it
        read.
        """
        place = {node: k for k, node in enumerate(self.forward)}
        last: dict[Node, int] = {}
        for k, node in enumerate(self.forward):
            last |= {base: k for base in map(_base, node.args) if base in place}
        change = [0] * (len(self.forward) + 1)
        for node, k in last.items():
            change[place[node]] += _bytes(node)
            change[k] -= _bytes(node)
        return [*accumulate(change[:-1])]

    def recomputed(self, plan: Plan) -> Graph:
        """The graph in which what depends on gradients reads copies of the plan's nodes."""
        builder = Builder()
        for node in self.graph.nodes():
            if node not in self.late:
                builder.keep(node)
        copies = Recomputation(builder, plan)
        values: dict[Value, Value] = {}
        reached: set[tuple[int]] = set()
        for node in self.late:
            gradient = next((a for a in node.args if a.node in self.late), None)
            args = []
            for arg in node.args:
                part = plan.get(arg.node)
                if part is not None and gradient is not None:
                    copies.reach(arg.node, values[gradient])
                    reached.add(part)
                again = part in reached
                args.append(copies.value(arg.node, arg) if again else values.get(arg, arg))
            results = copied(builder, node, args)
            values |= {Value(node, k): result for k, result in enumerate(results)}
        sinks = [replace(s, value=values.get(s.value, s.value)) for s in self.graph.sinks]
        return replace(self.graph, sinks=tuple(sinks))


def _ends(saved: Sequence[int], passed: Sequence[int], budget: float) -> list[int]:
    """The end of each part but the last, which saves about `budget` bytes and passes few on."""
    ends: list[int] = []
    start = 0
    for k in range(len(saved)):
        sums = [*accumulate(saved[start : k + 1])]
        if sums[-1] > budget:
            places = [j for j, total in enumerate(sums, start) if 2 * total >= budget]
            start = 1 + min(places, key=lambda j: (passed[j], -j))
            ends.append(start)
    return ends


def _base(value: Value) -> Node:
    return value.node.args[0].node if value.node.op.group == "view" else value.node


def _bytes(node: Node) -> int:
    return sum(size_of(t.shape) * t.dtype.size for t in node.types)


def _is_held(node: Node) -> bool:
    """Can the node's value lie in memory? A view does not, nor what is larger than all that it is
    made of.
    """
    if node.op.is_pointwise:
        return _bytes(node) <= sum(_bytes(base) for base in map(_base, node.args))
    return node.op.group != "view"


def _may_be_copied(node: Node) -> bool:
    """Loops, sorts and kernels written by hand are never run again."""
    return node.op.is_pointwise or node.op.group in ("reduce", "view") or node.op.name == "Gather"


def _flops(node: Node) -> float:
    """The flops of one operation; products belong to the sum over them."""
    if node.op.group == "reduce":
        return 2.0 * size_of(node.args[0].shape)
    return float(size_of(node.types[0].shape)) if _is_held(node) else 0.0
