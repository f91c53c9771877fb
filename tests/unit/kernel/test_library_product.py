"""What kernels are products of matrices as libraries take them, and what a call of one means."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cuda.backend import Cuda, named
from luminal.backends.library_calls import ALGORITHMS
from luminal.base.errors import CompileError
from luminal.base.numerics import Numerics
from luminal.kernel.knobs import KnobError
from luminal.kernel.tile_interpreter import run as interpret
from luminal.kernel.tile_text import to_text
from luminal.kernel.tile_verify import verify
from luminal.program.launch_list import KernelLaunch
from luminal.program.steps import CallStep, NestStep
from luminal.search.genome import Genome
from luminal.search.space import Candidate, Space
from tests.backends.c_family.library_products import (
    BF16,
    EIGHTHS,
    NO_EIGHTHS,
    NO_PRODUCTS,
    PRODUCTS,
    Product,
    check,
    count_of_calls,
    random_product,
)
from tests.long_share import long_but

LIBRARY = "cublaslt"


def backend(*libraries: str) -> Cuda:
    """A chip that need not be here, whose programs may call these."""
    chip = named("sm_90a")
    return replace(chip, target=replace(chip.target, libraries=libraries))


LT = backend(LIBRARY, "cublaslt-tf32")


def meaning(candidate: Candidate, given: dict[str, Any], s: int) -> np.ndarray[Any, Any]:
    """The output y of a program of one launch, by the interpreter of its kernel."""
    program = candidate.program
    (launch,), (kernel,) = program.launches, program.kernels
    assert isinstance(launch, KernelLaunch)
    verify(kernel)
    values = {
        p.name: int(n.evaluate({"s": s})) for p, n in zip(kernel.params, launch.params, strict=True)
    }
    names = [
        program.buffers[program.table[operand.entry]].owner_name for operand in launch.operands
    ]
    arrays = {
        buffer.name: given[name].ravel() if name in given
        else np.full(int(buffer.size.evaluate(values)), 77, buffer.dtype.numpy)
        for buffer, name in zip(kernel.buffers, names, strict=True)
    }  # fmt: skip
    interpret(kernel, arrays, values)
    return arrays[kernel.buffers[-1].name]


def check_meaning(product: Product, rng: np.random.Generator, s: int = 5) -> None:
    _, candidate = product.called(LT)
    assert count_of_calls(candidate) == 1 == len(candidate.program.kernels), product.name
    given = product.given(s, rng)
    got = meaning(candidate, given, s)
    shape = lm.compile(product.graph, "reference")(given)["y"].shape
    check(got.reshape(shape), product, given)


NAMED = {product.name: product for product in (*PRODUCTS, *EIGHTHS)}
SHORT = ("turned with a bias", "heads", "parts of both", "last row", "bf16 linear", "bytes")


@pytest.mark.parametrize("name", long_but(NAMED, SHORT))
def test_a_product_and_its_meaning(name: str) -> None:
    check_meaning(NAMED[name], np.random.default_rng(1))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_random_products(seed: int) -> None:
    check_meaning(random_product(random.Random(seed)), np.random.default_rng(seed))


REFUSED = {product.name: product for product in (*NO_PRODUCTS, *NO_EIGHTHS)}


@pytest.mark.parametrize("name", long_but(REFUSED, ("diagonal", "bias along rows")))
def test_what_is_none_is_never_called(name: str) -> None:
    product = REFUSED[name]
    space, candidate = product.called(LT)
    assert count_of_calls(candidate) == 0
    for origin in candidate.stages.origins:
        assert LT.library_calls(origin.steps[0], product.numerics) == ()
    assert space.decode(Genome()).text == candidate.text


def test_what_may_be_rounded_more_needs_relaxed_numerics() -> None:
    """tf32 narrows factors; a bias behind a rounded sum is added before a library rounds."""
    for product, libraries in (
        (Product("f32", lambda a, b: a @ b, ((8, 8), (8, 8))), ("cublaslt", "cublaslt-tf32")),
        (Product("bf16", lambda a, b, c: a @ b + c, ((8, 8), (8, 8), (8,)), BF16), ("cublaslt",)),
    ):
        (origin,) = Space(product.graph.graph(), LT).decode(Genome()).stages.origins
        assert LT.library_calls(origin.steps[0], Numerics.RELAXED) == libraries
        standard = LT.library_calls(origin.steps[0], Numerics.STANDARD)
        assert standard == (("cublaslt",) if product.name == "f32" else ())
        assert LT.library_calls(origin.steps[0], Numerics.EXACT) == ()


def test_integers_have_the_same_bits_under_any_numerics() -> None:
    product = NAMED["bytes"]
    (origin,) = Space(product.graph.graph(), LT).decode(Genome()).stages.origins
    assert LT.library_calls(origin.steps[0], Numerics.EXACT) == ("cublaslt",)


def test_algorithms_are_knobs_of_a_call() -> None:
    product = PRODUCTS[0]
    space, called = product.called(LT)
    offered = [dict(knobs) for knobs in space.knobs(called, 0)]
    asked = [knobs.get("algorithm", 0) for knobs in offered if knobs.get("call") == LIBRARY]
    assert asked == [*range(ALGORITHMS)]
    texts = {product.called(LT, algorithm=number)[1].text for number in range(ALGORITHMS)}
    assert len(texts) == ALGORITHMS
    (step,) = called.stages.origins[0].steps
    assert isinstance(step, CallStep)
    with pytest.raises(KnobError, match=r"knob algorithm=8 is not legal here; take one of 0, 1"):
        LT.schedules.place(step, (("algorithm", ALGORITHMS),))
    with pytest.raises(KnobError, match="no knob deep here; its knobs are: algorithm, call"):
        LT.schedules.place(step, (("deep", 2),))


def test_a_genome_with_calls_is_read_back() -> None:
    _, called = PRODUCTS[0].called(LT, algorithm=3)
    again = Genome.parse(called.genome.to_json())
    assert again == called.genome
    assert [*again.calls.values()] == [LIBRARY]


def test_the_fast_program_calls_no_library() -> None:
    for product in PRODUCTS[:3]:
        space = Space(product.graph.graph(), LT, product.numerics)
        assert count_of_calls(space.decode(Genome())) == 0


def test_what_is_no_product_is_not_placed() -> None:
    product = NO_PRODUCTS[0]
    (origin,) = Space(product.graph.graph(), LT).decode(Genome()).stages.origins
    (step,) = origin.steps
    assert isinstance(step, NestStep)
    with pytest.raises(CompileError, match="no call of cublaslt: it is no plain product"):
        LT.schedules.place(CallStep(step.fused, LIBRARY))


def test_a_library_that_is_not_installed_is_not_called() -> None:
    _, candidate = PRODUCTS[0].called(backend())
    assert count_of_calls(candidate) == 0


def test_the_text_of_a_call_says_what_it_computes() -> None:
    _, called = PRODUCTS[0].called(LT, algorithm=2)
    (kernel,) = called.program.kernels
    assert kernel.call is not None
    assert kernel.call.kernel.ir == "cublaslt 2: f32 * f32 in f32 -> f32"
    assert ", chunk of 1, told p0, p1, " in to_text(kernel)
