"""Expressions of dims as straight-line code have the values that they have in Python."""

from __future__ import annotations

import ctypes
import random

import pytest

from luminal.backends.cpu import compiler, target
from luminal.backends.cpu.standalone_ir import HELPERS, Body
from luminal.shape.expression import Expression, const, maximum, minimum, symbol
from tests.long_share import mostly_long

DIMS = [symbol(name, -20, 20) for name in "abc"]
Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def grown(rng: random.Random) -> list[Expression]:
    """Expressions of all kinds, each of earlier ones."""
    values: list[Expression] = [*DIMS, *map(const, (-7, 0, 3))]
    for _ in range(30):
        x, y, z = (rng.choice(values) for _ in range(3))
        value = rng.choice([
            lambda x, y, z: x + y - z, lambda x, y, z: x * y, lambda x, y, z: x // y,
            lambda x, y, z: x % y, lambda x, y, z: minimum(x, y), lambda x, y, z: maximum(x, y),
            lambda x, y, z: (x < y) & (y <= z), lambda x, y, z: x.eq(y) | y.ne(z),
            lambda x, y, z: x // 5, lambda x, y, z: y % 6,
        ])(x, y, z)  # fmt: skip
        bound = value.interval
        if None not in bound and max(map(abs, bound)) < 1 << 40:
            values.append(value)
    return values


@pytest.mark.parametrize("seed", mostly_long(range(40), 2))
def test_values(seed: int) -> None:
    rng = random.Random(seed)
    values = grown(rng)
    body = Body({dim.name: f"%dim{k}" for k, dim in enumerate(DIMS)})
    for k in range(len(DIMS)):
        body.lines.append(f"  %dim{k} = load i64, ptr {body.at('%dims', k, 'i64')}")
    for k, value in enumerate(values):
        body.store(body.value(value), "%out", k)
    body.do("ret void")
    head = "define void @values(ptr %dims, ptr %out) {"
    text = "\n".join((HELPERS, head, *body.lines, "}"))
    plain = target.cap(target.detect(), target.BASELINE)
    foreign = {"luminal_team_init": 1, "luminal_run": 1}
    code = compiler.load(compiler.object_code(text, plain), ("values",), foreign)
    function = Function(code.symbols["values"])
    for _ in range(50):
        env = {dim.name: rng.randint(-20, 20) for dim in DIMS}
        out = (ctypes.c_int64 * len(values))()
        function((ctypes.c_int64 * len(DIMS))(*env.values()), out)
        assert list(out) == [value.evaluate(env) for value in values], (env, values)
