"""Programs kept between processes: found where nothing has changed, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.cpu.backend import Cpu
from luminal.base import config
from luminal.hlir import graph as hlir
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.runtime import program_cache, source_hash
from tests.close import close_each

START = """
import sys
from luminal import models
model = models.load(models.SHIPPED)
print(model.generate("First", max_tokens=4))
compiled = {"luminal.algebra", "luminal.selection.fast", "luminal.codegen.llvm"}
compiled.add("luminal.compiler.compile")
others = {"luminal.array_api", "luminal.models.architectures.mamba", "luminal.models.families.clip"}
print(sorted({*compiled, *others, "egglog", "llvmlite", "torch"} & {*sys.modules}))
"""


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that found the compiler as it is in its files."""
    monkeypatch.setattr(program_cache, "_is_as_in_files", lambda: True)
    with config.override(LUMINAL_VERIFY=False, LUMINAL_CACHE_DIR=tmp_path):
        yield


def recorded(
    columns: int = 4,
    dtype: lm.DType = lm.float32,
    most: int = 9,
    literal: float = 2.0,
    name: str = "y",
    twice: bool = False,
    turned: bool = False,
    few: bool = False,
) -> tuple[lm.Graph, Parameter]:
    """x @ w * literal + state."""
    weight, state = Parameter((3, columns), dtype, "w"), State((columns,), name="last")
    cx = lm.Graph()
    s = cx.dim("s", 1, most)
    if few:
        cx.require(s * s <= 50)
    x = cx.tensor((s, 3), lm.float32, "x")
    y = (x @ weight).cast(lm.float32) * literal
    y = cx.read(state) - y if turned else y - cx.read(state)
    (y + (x @ weight).cast(lm.float32) if twice else y).output(name)
    cx.assign(state, y.sum(0))
    return cx, weight


def key(graph: hlir.Graph, numerics: str = "standard") -> str:
    found = program_cache.entry(graph, registry.find("cpu"), numerics)
    assert found is not None
    return found._key


def test_equal_graphs_have_one_key_and_every_change_another() -> None:
    same = key(recorded()[0].graph())
    assert key(recorded()[0].graph()) == same
    changed = [
        {"columns": 5}, {"dtype": lm.float64}, {"most": 8}, {"literal": 2.5}, {"name": "z"},
        {"twice": True}, {"turned": True}, {"few": True},
    ]  # fmt: skip
    keys = [key(recorded(**change)[0].graph()) for change in changed]  # type: ignore[arg-type]
    assert len({same, *keys}) == 1 + len(keys)
    assert key(recorded()[0].graph(), "exact") not in {same, *keys}


@pytest.mark.parametrize("left", [0, 1])
def test_which_value_an_operation_takes_is_in_the_key(left: int) -> None:
    keys = set()
    for right in range(2):
        cx = lm.Graph()
        both = [cx.tensor((4,), lm.float32, name) for name in ("x", "z")]
        ((both[0] + both[1]) * both[left] * both[right]).output("y")
        keys.add(key(cx.graph()))
    assert len(keys) == 2


@pytest.mark.parametrize("loops", [0, 1, 2])
def test_what_calls_hand_written_code_is_not_kept(loops: int) -> None:
    """At whatever depth of Loops: no key says what the code does."""

    def halved(x: np.ndarray, y: np.ndarray) -> None:
        y[...] = x / 2

    kernel = lm.custom_kernel("halved", halved, results=lambda x: (x.shape, "float32"))

    def step(depth: int) -> Callable[[lm.Tensor], lm.Tensor]:
        if not depth:
            return kernel  # type: ignore[no-any-return]
        inner = step(depth - 1)
        return lambda x: lm.scan(lambda carry, _: (inner(carry), carry), x, length=3)[0]

    cx = lm.Graph()
    step(loops)(cx.tensor((4,), lm.float32, "x")).output("y")
    assert program_cache.entry(cx.graph(), registry.find("cpu")) is None
    found = lm.compile(cx)({"x": np.ones(4, np.float32)})["y"]
    np.testing.assert_array_equal(found, 0.5 ** (3**loops))


def test_another_target_or_other_sources_have_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {key(recorded()[0].graph())}
    with config.override(LUMINAL_TARGET="baseline"):
        keys.add(key(recorded()[0].graph()))
    monkeypatch.setattr(program_cache, "package_stamp", lambda: "other sources")
    keys.add(key(recorded()[0].graph()))
    monkeypatch.setattr(np, "__version__", "0")
    keys.add(key(recorded()[0].graph()))
    monkeypatch.setattr(config, "cache_key", lambda: (("LUMINAL_OTHER", 1),))
    keys.add(key(recorded()[0].graph()))
    assert len(keys) == 5


def test_all_that_a_backend_knows_of_its_machine_is_in_the_key() -> None:
    backend, graph = registry.compiling("cpu"), recorded()[0].graph()
    assert isinstance(backend, Cpu)
    more = replace(backend, target=replace(backend.target, cores=backend.target.cores + 1))
    found = [program_cache.entry(graph, each) for each in (backend, more, replace(more))]
    keys = [each._key for each in found if each is not None]
    assert keys[0] != keys[1] == keys[2]


def _written(path: Path) -> None:
    path.write_text(path.read_text() + "\n")


def _touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [_written, _touched, Path.unlink])
def test_the_stamp_of_the_sources_sees_every_file(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "select"
    inner.mkdir()
    (inner / "fast.py").write_text("A = 1")
    monkeypatch.setattr(source_hash, "ROOT", str(tmp_path))
    stamp = source_hash.package_stamp.__wrapped__
    before = stamp()
    assert stamp() == before
    change(inner / "fast.py")
    assert stamp() != before


def test_a_kept_program_runs_with_the_weights_and_states_at_hand() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for seed in range(3):
        cx, weight = recorded()
        value = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
        weight.set(value)
        program = cx.compile()
        assert "select" not in program.report().compiled.seconds or seed == 0
        for _ in range(2):
            got = program(x=x)["y"]
        first = x @ value * 2
        close_each(got, first - first.sum(0))


def test_what_hides_a_change_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, graph = registry.find("cpu"), recorded()[0].graph()
    with config.override(LUMINAL_VERIFY=True):
        assert program_cache.entry(graph, backend) is None
    monkeypatch.undo()  # this process has the compiler loaded, and who knows what it changed
    with config.override(LUMINAL_VERIFY=False):
        program_cache._is_as_in_files.cache_clear()
        assert program_cache.entry(graph, backend) is None


def test_a_start_with_all_programs_kept_imports_no_compiler(tmp_path: Path) -> None:
    environment = {**os.environ, "LUMINAL_CACHE_DIR": str(tmp_path), "LUMINAL_VERIFY": "0"}
    runs = [
        subprocess.run(
            [sys.executable, "-c", START], env=environment, capture_output=True, text=True,
            check=True, timeout=300,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    text, _, imported = runs[1].rstrip().rpartition("\n")
    assert imported == "[]"
    assert runs[0].rpartition("\n[")[0] == text != ""


def test_a_deep_graph_with_values_in_attributes_has_a_key() -> None:
    """A maximum along a dim notes its operand, behind which lie more layers than calls may nest."""
    cx = lm.Graph()
    y = cx.tensor((2, 3), lm.float32, "x")
    for _ in range(1000):
        y = (y * y).sin()
    for extreme in (y.max, y.min):
        extreme(-1)[0].output(extreme.__name__)
    assert key(cx.graph())
