"""Programs written by hand for tests: what the compiler would make of small graphs."""

from __future__ import annotations

from collections.abc import Sequence

import luminal as lm
from luminal.backends.cpu import target
from luminal.backends.cpu.device import CpuRunner
from luminal.frontend.graph import Recorder
from luminal.hlir.attributes import WeightAttrs
from luminal.kernel.tile_ir import Kernel
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.program.buffers import Buffer, BufferKind
from luminal.program.launch_list import (
    KernelLaunch,
    LoopLaunch,
    Operand,
    Program,
    ProgramOutput,
)
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.shape.expression import Expression, Symbol, as_expression, ceil_div, minimum, symbol
from tests.backends.cpu.tile_builder import TileBuilder

CHUNK = 64


def pointwise(op: str, n: Expression | int | None) -> Kernel:
    """out = op(a, b) elementwise; `n` None is a parameter."""
    k = TileBuilder()
    size = k.param("n", 0) if n is None else as_expression(n)
    k.buffer("a", size)
    k.buffer("b", size)
    k.buffer("out", size, "out")
    c = k.grid("c", ceil_div(size, CHUNK))
    stop = minimum(c * CHUNK + CHUNK, size)
    with k.loop("i", stop, start=c * CHUNK, extent=size, vector=16) as i:
        k.store("out", i.axis, k.map(op, k.load("a", i.axis), k.load("b", i.axis)))
    return k.kernel()


class ProgramBuilder:
    """Collects buffers and launches of f32 vectors of length n."""

    def __init__(self, n: Expression | int, dims: Sequence[Symbol] = ()) -> None:
        self.n = as_expression(n)
        self.dims = tuple(dims)
        self.buffers: list[Buffer] = []
        self.outputs: list[ProgramOutput] = []
        self.kernels: list[Kernel] = []

    def buffer(self, kind: str, owner: object = None, rows: Expression | int | None = None) -> int:
        """A buffer's id, which is also its table entry."""
        shape = (self.n,) if rows is None else (as_expression(rows), self.n)
        number = len(self.buffers)
        self.buffers.append(Buffer(number, BufferKind(kind), lm.float32, shape, owner=owner))  # type: ignore[arg-type]
        if kind == "output":
            assert isinstance(owner, str)
            self.outputs.append(ProgramOutput(owner, number))
        return number

    def weight(self, parameter: Parameter) -> int:
        return self.buffer("weight", WeightAttrs(parameter.name, parameter))

    def launch(
        self, op: str, a: int | Operand, b: int | Operand, out: int | Operand
    ) -> KernelLaunch:
        operands = [x if isinstance(x, Operand) else Operand(x) for x in (a, b, out)]
        kernel = pointwise(op, self.n if self.n.is_const else None)
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        return KernelLaunch(
            self.kernels.index(kernel),
            tuple(operands),
            () if self.n.is_const else (self.n,),
            ceil_div(self.n, CHUNK),
            op.lower(),
            self.n,
            self.n * 12,
        )

    def program(
        self,
        launches: Sequence[KernelLaunch | LoopLaunch],
        prologue: Sequence[KernelLaunch] = (),
        swaps: Sequence[State] = (),
    ) -> Program:
        return Program(
            dims=self.dims,
            requirements=(),
            buffers=tuple(self.buffers),
            table=tuple(range(len(self.buffers))),
            kernels=tuple(self.kernels),
            prologue=tuple(prologue),
            launches=tuple(launches),
            outputs=tuple(self.outputs),
            swaps=tuple(swaps),
        )


def executable(graph: Recorder, program: Program) -> Executable:
    """The program behind the graph's own inputs, outputs and checks."""
    runner = CpuRunner(program, target.current())
    return Executable(graph.graph(), [Variant({}, runner)], graph.values)


def three_ops(n: int | None = 16) -> tuple[Executable, Program]:
    """y = (a * b + c) * a; n None: a dim."""
    cx = lm.Graph()
    size: Expression | int = cx.dim("n", 1, 1 << 20) if n is None else n
    a, b, c = (cx.tensor((size,), name=name) for name in "abc")
    ((a * b + c) * a).output("y")
    p = ProgramBuilder(size, [symbol("n", 1, 1 << 20)] if n is None else [])
    ins = [p.buffer("input", name) for name in "abc"]
    t, u, y = p.buffer("arena"), p.buffer("arena"), p.buffer("output", "y")
    program = p.program(
        [
            p.launch("Mul", ins[0], ins[1], t),
            p.launch("Add", t, ins[2], u),
            p.launch("Mul", u, ins[0], y),
        ]
    )
    return executable(cx, program), program
