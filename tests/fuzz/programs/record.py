"""Records a Program with Luminal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import luminal as lm
from luminal.hlir.graph import Graph
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.nn import functional
from tests.fuzz.graphs import Case
from tests.fuzz.programs.form import Leaf, Node, Program, code_of, extents


@dataclass
class Recording:
    """A graph that grows by nodes: a Tensor for each, and what its leaves are to be given."""

    cx: lm.Graph = field(default_factory=lm.Graph)
    tensors: list[Any] = field(default_factory=list)
    inputs: dict[str, Leaf] = field(default_factory=dict)
    parameters: dict[Parameter, Leaf] = field(default_factory=dict)
    states: dict[State, Leaf] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names: dict[str, Any] = {"lm": lm, "F": functional, "cx": self.cx}

    def dim(self, name: str, lo: int, hi: int) -> None:
        self.names[name] = self.cx.dim(name, lo, hi)

    def make(self, node: Node) -> Any:
        """The Tensor of a node; it becomes the next value when it is appended to `tensors`."""
        if isinstance(node, Leaf):
            return self._leaf(node)
        operands = {f"_{k}": self.tensors[arg] for k, arg in enumerate(node.args)}
        return eval(code_of(node.text), {**self.names, **operands})

    def _leaf(self, leaf: Leaf) -> Any:
        shape, dtype = extents(leaf.shape, self.names), getattr(lm, _LUMINAL[leaf.dtype])
        name = f"v{len(self.cx.leaves)}"
        match leaf.kind:
            case "input":
                self.inputs[name] = leaf
                return self.cx.tensor(shape, dtype, name)
            case "weight":
                tensor = self.cx.weight(shape, dtype, name)
                self.parameters[tensor.parameter] = leaf
                return tensor.set(leaf.array({}, 0))
            case "state":
                state = State(shape, dtype, leaf.array({}, 0), name)
                self.states[state] = leaf
                return self.cx.read(state)
        return self.cx.constant(leaf.array({}, 0), dtype)


_LUMINAL = {
    name: "bool_" if name == "bool" else name
    for name in (
        *("float16", "bfloat16", "float32", "float64", "bool"),
        *("int8", "int16", "int32", "int64", "uint8"),
    )
}


def record(program: Program) -> Recording:
    """The program's graph with its outputs (named out0, out1 ...) and assigns."""
    made = Recording()
    for dim in program.dims:
        made.dim(dim.name, dim.lo, dim.hi)
    for node in program.nodes:
        made.tensors.append(made.make(node))
    for k, number in enumerate(program.outputs):
        made.cx.output(made.tensors[number], f"out{k}")
    for leaf, value in program.assigns:
        made.cx.assign(made.tensors[leaf].state, made.tensors[value])
    return made


def case_of(recording: Recording, graph: Graph, program: Program, run: int) -> Case:
    """What a run is given. Weights are set here: their Parameters hold one value at a time."""
    env = program.env(run)
    for parameter, leaf in recording.parameters.items():
        if run and leaf.seed % 2:
            parameter.set(leaf.array(env, run))
    used = {node.attrs.name for node in graph.by_op().get("Input", ())}
    inputs = {n: leaf.array(env, run) for n, leaf in recording.inputs.items() if n in used}
    states = {state: leaf.array(env, run) for state, leaf in recording.states.items()}
    return Case(graph, inputs, env, states)
