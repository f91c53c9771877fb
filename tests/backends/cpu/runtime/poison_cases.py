"""Programs that read what nobody wrote, and what their memory holds then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import luminal as lm
from luminal.program.launch_list import KernelLaunch
from luminal.shape.expression import const
from tests.backends.cpu.hand_programs import ProgramBuilder, executable

N = 128  # two chunks
ONES = np.ones(N, np.float32)


def one_input() -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((N,), name="x") * 2).output("y")
    return cx


def ones() -> lm.Parameter:
    parameter = lm.Parameter((N,), name="w")
    parameter.set(ONES)
    return parameter


def half(p: ProgramBuilder, launch: KernelLaunch) -> KernelLaunch:
    """The launch without the second of its chunks, which its kernel does not have either."""
    kernel = p.kernels[launch.kernel]
    p.kernels.append(replace(kernel, grid=(replace(kernel.grid[0], count=const(1)),)))
    return replace(launch, kernel=len(p.kernels) - 1, chunks=const(1))


def arena() -> lm.Executable:
    """y = x + t, of which nobody writes t."""
    p = ProgramBuilder(N)
    x, t, y = p.buffer("input", "x"), p.buffer("arena"), p.buffer("output", "y")
    return executable(one_input(), p.program([p.launch("Add", x, t, y)]))


def output() -> lm.Executable:
    """y = x + x, the second half left out."""
    p = ProgramBuilder(N)
    x, y = p.buffer("input", "x"), p.buffer("output", "y")
    return executable(one_input(), p.program([half(p, p.launch("Add", x, x, y))]))


def hidden_output() -> lm.Executable:
    """y = x + h, where nobody writes the output h that a run does not give."""
    p = ProgramBuilder(N)
    x, h, y = p.buffer("input", "x"), p.buffer("output", "h"), p.buffer("output", "y")
    return executable(one_input(), p.program([p.launch("Add", x, h, y)]))


def derived() -> lm.Executable:
    """y = x + (w + w), the second half of w + w left out by the prologue."""
    p = ProgramBuilder(N)
    x, w = p.buffer("input", "x"), p.weight(ones())
    made, y = p.buffer("derived"), p.buffer("output", "y")
    prologue = [half(p, p.launch("Add", w, w, made))]
    return executable(one_input(), p.program([p.launch("Add", x, made, y)], prologue))


def prologue_arena() -> lm.Executable:
    """y = x + (w + t), where nobody writes t, which is the prologue's own."""
    p = ProgramBuilder(N)
    x, w = p.buffer("input", "x"), p.weight(ones())
    t, made, y = p.buffer("arena"), p.buffer("derived"), p.buffer("output", "y")
    prologue = [p.launch("Add", w, t, made)]
    return executable(one_input(), p.program([p.launch("Add", x, made, y)], prologue))


def test_the_second_buffer_of_a_state_is_nan() -> None:
    state = lm.State((N,), init=1, name="s")
    cx = lm.Graph()
    x = cx.tensor((N,), name="x")
    (x * 2).output("y")
    cx.assign(state, cx.read(state) + x)
    p = ProgramBuilder(N)
    ins, one = p.buffer("input", "x"), p.buffer("state", state)
    after, y = p.buffer("next", state), p.buffer("output", "y")
    launches = [p.launch("Add", ins, ins, y), half(p, p.launch("Add", one, ins, after))]
    exe = executable(cx, p.program(launches, swaps=[state]))
    for _ in range(3):
        exe(x=ONES)
        assert np.isnan(state.numpy()[N // 2 :]).all()
