"""Two custom kernels and how they are compared with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.base import config

Array = np.ndarray[Any, Any]

SCALE = """
; y = 3 * x, rows cut into chunks of even size
define void @scale(ptr %x, ptr %y, i64 %n, i64 %m, i64 %n.y, i64 %m.y, i64 %chunk, i64 %chunks) {
entry:
  %after = add i64 %chunk, 1
  %low.n = mul i64 %chunk, %n
  %high.n = mul i64 %after, %n
  %low = udiv i64 %low.n, %chunks
  %high = udiv i64 %high.n, %chunks
  %start = mul i64 %low, %m
  %stop = mul i64 %high, %m
  br label %head
head:
  %i = phi i64 [ %start, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %body, label %exit
body:
  %x.at = getelementptr float, ptr %x, i64 %i
  %y.at = getelementptr float, ptr %y, i64 %i
  %value = load float, ptr %x.at
  %tripled = fmul float %value, 3.0
  store float %tripled, ptr %y.at
  %next = add i64 %i, 1
  br label %head
exit:
  ret void
}
"""


def same(x: Any) -> Any:
    return x


def triple(x: Array, out: Array) -> None:
    np.multiply(x, np.float32(3), out=out)


def square_of(x: Array, out: Array) -> None:
    out[...] = x * x


scale = lm.custom_kernel("scale", triple, ir=SCALE, results=same, chunks=7)
square = lm.custom_kernel("square", square_of, results=same)


def agree(cx: lm.Graph, inputs: dict[str, Array], exact: bool = False) -> lm.Executable:
    """The CPU with one and two threads gives what the reference does; gives the executable."""
    exe = lm.compile(cx)
    expected = lm.compile(cx, "reference")(inputs)
    found = []
    for threads in (1, 2):
        with config.override(LUMINAL_THREADS=threads):
            found.append(exe(inputs))
    for name, wanted in expected.items():
        assert found[0][name].tobytes() == found[1][name].tobytes()
        if exact:
            np.testing.assert_array_equal(found[0][name], wanted)
        else:
            # 16 ulp: exp twice in a row, and sums of it
            np.testing.assert_allclose(found[0][name], wanted, rtol=2e-6)
    return exe


def draw(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)
