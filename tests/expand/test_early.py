"""What kernels fetch before the launches ahead of them have ended: nothing but what the loads of
that chunk will read, from buffers that no launch of the list writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cuda.backend import Cuda
from luminal.base.errors import VerifyError
from luminal.codegen.c_family.cuda import CUDA
from luminal.codegen.c_family.kernel import spell_tiles
from luminal.compiler.compile import lower_to_program
from luminal.expand import interpreter
from luminal.expand.early import MOST
from luminal.expand.ir import Copy, Fetch, Kernel, Load, Loop, Statement
from luminal.expand.verify import verify
from luminal.hlir.graph import Graph
from luminal.loaders.ggml.packed import packed
from luminal.program.launch_list import Program, kernel_launches
from luminal.program.verify import verify as verify_program
from tests.backends.groups.decode_graphs import decode
from tests.long_share import mostly_long
from tests.numerics.byte_products import recorded
from tests.numerics.packed_blocks import blocks_of


def of(write: Callable[..., Any], *shapes: tuple[int | str, ...], dtype: Any = lm.float32) -> Graph:
    """A function of tensors; an extent that is a word is a dim of up to 64."""
    cx = lm.Graph()
    dims = {n: cx.dim(n, 1, 64) for shape in shapes for n in shape if isinstance(n, str)}
    tensors = [
        cx.tensor(tuple(dims.get(n, n) for n in shape), dtype, name=f"x{k}")  # type: ignore[call-overload]
        for k, shape in enumerate(shapes)
    ]
    write(*tensors).output("y")
    return cx.graph()


def normed(x: Any, w: Any) -> Any:
    return (x / (x * x).sum(-1, keepdims=True).sqrt()) @ w.mT


GRAPHS = {
    "row by matrix": lambda: of(lambda x, w: x @ w.mT, (1, 512), (64, 512)),
    "of 16 bits": lambda: of(lambda x, w: x @ w.mT, (1, 2048), (8, 2048), dtype=lm.bfloat16),
    "ragged": lambda: of(lambda x, w: x @ w.mT, (1, 301), (37, 301)),
    "norm": lambda: of(normed, (1, 256), (40, 256)),
    "two": lambda: of(lambda x, v, w: (x @ v.mT) @ w.mT, (1, 128), (64, 128), (24, 64)),
    "dims": lambda: of(lambda x, w: x @ w.mT, (1, "n"), (33, "n")),
    "matrices": lambda: of(lambda x, w: x @ w, (32, 64), (64, 64), dtype=lm.bfloat16),
    "rows": lambda: of(lambda x, w: (x * w).softmax(-1), (3, 300), (300,)),
    "words": lambda: recorded(packed(blocks_of("Q4_0", 4096, 2048)), (1, 2048)).graph(),
}


def program_of(graph: Graph, chip: str = "sm_90a") -> Program:
    return lower_to_program(graph, Cuda.named(chip))


def expanded(graph: Graph) -> list[Kernel]:
    return [spell_tiles(kernel, CUDA).expanded for kernel in program_of(graph).kernels]


class Noted:
    """Runs a chunk of a kernel, and notes which elements each lane fetches early, and loads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetched: set[tuple[int, str, int]] = set()
        self.loaded: set[tuple[int, str, int]] = set()
        self.starts: set[tuple[int, str, int]] = set()  # what accesses begin with
        rules: Any = interpreter._Interpreter.RULES
        for kind in (Fetch, Load, Copy):
            monkeypatch.setitem(rules, kind, self.noting(rules[kind]))

    def noting(self, rule: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def noted(run: Any, statement: Any) -> None:
            rule(run, statement)
            self.note(run, statement)

        return noted

    def note(self, run: Any, statement: Statement) -> None:
        match statement:
            case Fetch(buffer, address, distance):
                self.fetched.add((run.lane, buffer, int(run.value(address)[0]) + distance))
            case Load(out, buffer, address, mask, distance):
                if mask is None or run.value(mask).all():
                    size = max(1, out.type.dtype.size // run.memory[buffer].itemsize)
                    first = (int(run.value(address)[0]) + distance) * size
                    self.starts.add((run.lane, buffer, first))
                    count = out.type.lanes * size
                    self.loaded |= {(run.lane, buffer, first + k) for k in range(count)}
            case Copy():
                if statement.live is None or run.value(statement.live)[0]:
                    first = int(run.value(statement.source_address)[0]) + statement.source_distance
                    self.starts.add((run.lane, statement.source, first))
                    self.loaded |= {
                        (run.lane, statement.source, first + k) for k in range(statement.count)
                    }

    def run(self, kernel: Kernel, chunk: int) -> None:
        params = {param.symbol.name: 21 for param in kernel.params}
        arrays = {
            b.name: np.zeros(int(b.size.evaluate(params)), b.dtype.numpy) for b in kernel.buffers
        }
        interpreter.run(kernel, arrays, params, chunks=range(chunk, chunk + 1))


@pytest.mark.parametrize("name", mostly_long(GRAPHS, 5))
def test_what_is_fetched_early_is_what_is_loaded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, count = Noted(monkeypatch), 0
    for kernel in expanded(GRAPHS[name]()):
        verify(kernel)
        last = int(kernel.chunks.evaluate({p.symbol.name: 21 for p in kernel.params})) - 1
        for chunk in {0, last}:
            noted.fetched, noted.loaded, noted.starts = set(), set(), set()
            noted.run(kernel, chunk)
            assert noted.fetched <= noted.starts
            assert len(noted.fetched) <= MOST * kernel.lanes
            count += len(noted.fetched)
    assert count


def test_several_trips_of_a_loop_are_fetched_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the product behind attention: what a lane loads of the weights, and the first layer's
    ids.
    """
    kernel = next(k for k in expanded(decode(1)) if k.early and [*loops(k)] and not k.params)
    noted = Noted(monkeypatch)
    noted.run(kernel, 1)
    assert noted.fetched <= noted.loaded
    starts = {(lane, buffer, at - at % 4) for lane, buffer, at in noted.loaded}
    assert {b.name: b.dtype for b in kernel.buffers}["b2"] is lm.int32
    of_weights = {each for each in noted.fetched if each[1] != "b2"}
    wanted = {start for start in starts if start[1] == "b1"}
    # A lane fetches so much at most, of which the ids take the place of one.
    left = Counter(lane for lane, *_ in wanted - of_weights)
    assert of_weights <= wanted
    assert {*left.values()} <= {1}


def loops(kernel: Kernel) -> Iterator[Loop]:
    return (statement for statement in kernel.statements() if isinstance(statement, Loop))


def test_a_fetch_beyond_its_buffer_is_found() -> None:
    (kernel,) = expanded(GRAPHS["row by matrix"]())
    for bad in (1 << 20, -(1 << 20)):
        further = [
            Fetch(s.buffer, s.address, s.distance + bad) if isinstance(s, Fetch) else s
            for s in kernel.early
        ]
        arrays = {b.name: np.zeros(int(b.size.evaluate({})), b.dtype.numpy) for b in kernel.buffers}
        with pytest.raises(VerifyError, match="is fetched early of the"):
            interpreter.run(replace(kernel, early=tuple(further)), arrays, {}, chunks=range(1))


def test_weights_are_fetched_early_and_nothing_that_a_launch_writes() -> None:
    """Of a decode step: no activations, and of the caches neither, which the step writes."""
    step = program_of(decode(1))
    constant = {
        (step.buffers[step.table[operand.entry]].kind.value)
        for each in kernel_launches(step.launches)
        for operand, buffer in zip(each.operands, step.kernels[each.kernel].buffers, strict=True)
        if buffer.constant
    }
    assert constant == {"input", "weight", "constant"}
    texts = [spell_tiles(kernel, CUDA).text for kernel in step.kernels]
    assert sum("FETCH(&" in text for text in texts) >= len(texts) - 2  # but attention's two
    for text in texts:
        assert text.count("DEPEND;") == 1
        assert "FETCH(&" not in text[text.index("DEPEND;") :]


def test_chips_whose_launches_do_not_overlap_fetch_nothing() -> None:
    for kernel in program_of(GRAPHS["norm"](), "sm_89").kernels:
        assert not any(buffer.constant for buffer in kernel.buffers)
        assert "FETCH" not in spell_tiles(kernel, CUDA).text


# --- which buffers are constant -------------------------------------------------------------------


def chained() -> Program:
    """Two launches of one kernel, of which the second reads what the first has written."""
    return program_of(of(lambda x, v, w: (x @ v.mT) @ w.mT, (1, 256), (256, 256), (256, 256)))


def test_a_buffer_that_one_launch_of_a_kernel_finds_written_is_not_constant() -> None:
    (kernel,) = chained().kernels
    assert [buffer.constant for buffer in kernel.buffers] == [False, True, False]


def test_a_buffer_that_is_wrongly_constant_is_refused() -> None:
    program = chained()
    (kernel,) = program.kernels
    buffers = (replace(kernel.buffers[0], constant=True), *kernel.buffers[1:])
    wrong = replace(program, kernels=(replace(kernel, buffers=buffers),))
    verify_program(program)
    with pytest.raises(VerifyError, match="b0 is constant in k0, and a launch writes b4: arena"):
        verify_program(wrong)
