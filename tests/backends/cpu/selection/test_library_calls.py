"""Products of matrices by an installed BLAS: a choice of the search, right, and never needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import backend, kernels, libraries
from luminal.backends.cpu.libraries import BLAS
from luminal.base.errors import CompileError, VerifyError
from luminal.compiler import compile
from luminal.compiler.compile import Stages
from luminal.kernel.tile_interpreter import run as interpret
from luminal.kernel.tile_text import to_text
from luminal.program import selection_text
from luminal.program.selection import verify
from luminal.program.steps import CallStep, NestStep
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.search.genome import Genome, called_by
from luminal.search.space import Space
from luminal.selection.calls import with_calls
from tests.close import close, close_each
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
Fn = Callable[..., lm.Tensor]
RANDOM = np.random.default_rng(3)
CPU = backend.current()
needs_blas = pytest.mark.skipif(
    BLAS not in CPU.target.libraries,
    reason="scipy-openblas32 is missing, or the target is capped, which a library's code is not",
)


def stages(fn: Fn, *shapes: tuple[Any, ...], dtype: Any = lm.float32) -> Stages:
    """`fn` of tensors of these shapes; "s" is a dim."""
    cx = lm.Graph()
    if any("s" in shape for shape in shapes):
        cx.dim("s", 0, 600)
    tensors = [cx.tensor(shape, dtype=dtype, name=f"x{k}") for k, shape in enumerate(shapes)]
    fn(*tensors).output("y")
    return compile.lower_by_stages(cx.graph(), CPU)


def only(found: Stages) -> NestStep:
    ((_, (step,), _),) = found.origins
    assert isinstance(step, NestStep)
    return step


def called(found: Stages) -> Stages:
    """The same program with its only kernel by the library."""
    (store,) = only(found).fused.stores
    selection = with_calls(found.selection, {store.term: BLAS})
    return compile.finish(found.graph, found.lowered, selection, CPU)


def result(found: Stages, arrays: list[Array]) -> Array:
    runner = CPU.runner(found.program)
    executable = Executable(found.graph, [Variant({}, runner)])
    return np.asarray(executable({f"x{k}": x for k, x in enumerate(arrays)})["y"])


PRODUCTS: dict[str, tuple[Fn, tuple[tuple[Any, ...], ...]]] = {
    "nn": (lambda a, b: a @ b, ((300, 70), (70, 90))),
    "nt": (lambda a, b: a @ b.mT, ((300, 70), (90, 70))),
    "tn": (lambda a, b: a.mT @ b, ((70, 300), (70, 90))),
    "tt": (lambda a, b: a.mT @ b.mT, ((70, 300), (90, 70))),
    "wide": (lambda a, b: a @ b, ((3, 40), (40, 1111))),
    "turned result": (lambda a, b: (a @ b).mT, ((31, 40), (40, 57))),
    "batched": (lambda a, b: a @ b, ((5, 2, 31, 40), (5, 2, 40, 57))),
    "rows over a batch": (lambda a, b: a @ b, ((4, 31, 40), (40, 57))),
    "one row": (lambda a, b: a @ b, ((1, 40), (40, 57))),
    "with itself": (lambda a: a @ a.mT, ((64, 40),)),
    "dynamic rows": (lambda a, b: a @ b, (("s", 40), (40, 57))),
    "dynamic sum": (lambda a, b: a @ b, ((30, "s"), ("s", 57))),
}


@needs_blas
@pytest.mark.parametrize("dtype", mostly_long([lm.float32, lm.float64], 1), ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, dtype: Any) -> None:
    fn, shapes = PRODUCTS[name]
    found = stages(fn, *shapes, dtype=dtype)
    step = only(found)
    assert CPU.library_calls(step) == (BLAS,)
    library = called(found)
    (kernel,) = library.program.kernels
    assert kernel.call is not None
    for s in (517, 1, 0) if "dynamic" in name else (1,):
        arrays = [
            RANDOM.standard_normal([s if n == "s" else n for n in shape]).astype(dtype.numpy)
            for shape in shapes
        ]
        got, expected = result(library, arrays), result(found, arrays)
        close(got, expected, ulp=8)


@needs_blas
def test_nan_and_infinities_as_in_the_kernel_of_our_own() -> None:
    found = stages(lambda a, b: a @ b, (40, 30), (30, 50))
    a, b = (RANDOM.standard_normal(shape, np.float32) for shape in ((40, 30), (30, 50)))
    a[3, 4], a[7, 1], b[2, 9], b[5, 9] = np.nan, np.inf, np.inf, -np.inf
    got, expected = result(called(found), [a, b]), result(found, [a, b])
    close(got, expected)


@needs_blas
def test_the_interpreter_gives_the_call_its_meaning() -> None:
    step = only(stages(lambda a, b: a @ b.mT, (3, 4), (5, 4)))
    placed = CPU.schedules.place(CallStep(step.fused, BLAS))
    a, b = RANDOM.standard_normal((3, 4), np.float32), RANDOM.standard_normal((5, 4), np.float32)
    out = np.zeros(15, np.float32)
    values = {
        p.name: int(n.evaluate({}))
        for p, n in zip(placed.kernel.params, placed.params, strict=True)
    }
    interpret(placed.kernel, {"b0": a.ravel(), "b1": b.ravel(), "b2": out}, values)
    close_each(out.reshape(3, 5), a @ b.T)


NO_PRODUCTS: dict[str, tuple[Fn, tuple[tuple[Any, ...], ...]]] = {
    "epilogue": (lambda a, b: (a @ b).relu(), ((30, 40), (40, 50))),
    "prologue": (lambda a, b: a.abs() @ b, ((30, 40), (40, 50))),
    "integers": (lambda a, b: a.to(lm.int32) @ b.to(lm.int32), ((30, 40), (40, 50))),
    "no product": (lambda a: a.sum(1), ((30, 40),)),
    "middle axis": (lambda a, b: lm.einsum("mbk,bkn->bmn", a, b), ((30, 4, 40), (4, 40, 50))),
    "part of each matrix": (
        lambda a, b: a @ b[:, :20].transpose(-1, -2),
        ((2, 30, 40), (2, 50, 40)),
    ),
    "diagonal": (lambda a, b: a.diagonal() * b.sum(1), ((30, 30), (30, 50))),
}


@pytest.mark.parametrize("name", NO_PRODUCTS)
def test_what_is_no_plain_product_is_never_called(name: str) -> None:
    fn, shapes = NO_PRODUCTS[name]
    able = replace(CPU, target=replace(CPU.target, libraries=(BLAS,)))
    for origin in stages(fn, *shapes).origins:
        (step,) = origin.steps
        assert isinstance(step, NestStep)
        assert able.library_calls(step) == ()
        with pytest.raises(CompileError, match="no call of blas: it is no plain product"):
            CPU.schedules.place(CallStep(step.fused, BLAS))


@needs_blas
def test_a_library_that_is_not_installed_is_not_called() -> None:
    found = stages(lambda a, b: a @ b, (30, 40), (40, 50))
    bare = replace(CPU, target=replace(CPU.target, libraries=()))
    assert bare.library_calls(only(found)) == ()
    selection = called(found).selection
    with pytest.raises(VerifyError, match="is a call of blas, which is not installed"):
        compile.finish(found.graph, found.lowered, selection, bare)


@needs_blas
def test_calls_are_in_the_text_which_is_read_back() -> None:
    found = called(stages(lambda a, b: a @ b, (30, 40), (40, 50)))
    text = selection_text.to_text(found.selection)
    assert "  call %3 blas\n" in text
    assert selection_text.parse(text, found.lowered) == found.selection


def test_what_is_no_product_or_shares_a_kernel_is_no_call() -> None:
    plain = stages(lambda a, b: (a @ b).relu(), (30, 40), (40, 50)).selection
    (result,) = plain.stored()
    with pytest.raises(VerifyError, match="is a call of blas, not a plain product"):
        verify(with_calls(plain, {result: BLAS}))
    with pytest.raises(VerifyError, match="is a call of blas, not a kernel of its own"):
        verify(with_calls(plain, {result.args[0]: BLAS}))


@needs_blas
def test_a_genome_calls_kernels_by_the_names_of_their_loops() -> None:
    """Whatever else has a name that is wished for keeps its loops; a call keeps its name."""
    cx = lm.Graph()
    x = cx.tensor((40, 40), name="x")
    y = (x @ x).exp() @ x
    y.output("y")
    (y @ cx.tensor((40, 30), name="w")).output("z")
    space = Space(cx.graph(), CPU)
    fast = space.decode(Genome())
    kernels = range(len(fast.program.kernels))
    called = [called_by(BLAS) in space.knobs(fast, k) for k in kernels]
    assert called == [False, True, True]
    wished = Genome().with_tuned({o.name: called_by(BLAS) for o in fast.stages.origins})
    found = space.decode(wished)
    assert len(found.stages.selection.calls) == 2
    product, call = found.program.kernels  # of one text for both products
    assert product.call is None
    assert call.call is not None
    names = [origin.name for origin in fast.stages.origins]
    assert [origin.name for origin in found.stages.origins] == names[:2]
    assert space.knobs(found, 1) == space.knobs(fast, 1)
    back = found.genome.with_tuned(dict.fromkeys(names, ()))
    assert space.decode(back).text == fast.text


@needs_blas
def test_cached_code_needs_the_library_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    step = only(stages(lambda a, b: a @ b, (30, 40), (40, 50)))
    kernel = CPU.schedules.place(CallStep(step.fused, BLAS)).kernel
    kernels.build(kernel, to_text(kernel), CPU.target)
    monkeypatch.setattr(kernels, "_built", {})
    monkeypatch.setattr(libraries, "_path", lambda: None)
    with pytest.raises(CompileError, match="calls scipy_cblas_sgemm of scipy_openblas32, which is"):
        kernels.build(kernel, to_text(kernel), CPU.target)
