"""`lm.array_api` against NumPy 2, whose main namespace follows the standard."""

from __future__ import annotations

import inspect
import itertools
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from types import FunctionType
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.array_api import make_strategies_namespace
from hypothesis.extra.numpy import arrays, mutually_broadcastable_shapes

import luminal as lm
from tests.numerics import array_api_rows as rows
from tests.numerics.array_api_rows import Row

xp = lm.array_api

NOT_THERE = {
    "Device": "a type of array_api_strict's own; devices are strings",
}
"""Every name of the standard that lm.array_api lacks, and why."""

ELSEWHERE = {
    "arange", "asarray", "astype", "broadcast_shapes", "can_cast", "empty", "empty_like", "eye",
    "finfo", "from_dlpack", "full", "full_like", "iinfo", "imag", "isdtype", "linspace", "ones",
    "ones_like", "result_type", "zeros", "zeros_like",
}  # fmt: skip
"""Functions that take dtypes and numbers: tests of their own, below."""

WITHOUT_SIGN = {"sign", "maximum", "minimum", "max", "min", "clip", "sort", "where"}
"""The standard leaves open which zero these give."""

CASES = [(table, name) for table, found in rows.TABLES.items() for name in found]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- names ----------------------------------------------------------------------------------------


def standard() -> Iterator[str]:
    """Every name of the standard, extensions with a dot."""
    own = ("ArrayAPIStrictFlags", "__version__")
    yield from (n for n in strict.__all__ if n not in own and not n.endswith("_strict_flags"))
    assert not (set(xp.linalg.__all__) - set(dir(strict.linalg)))
    yield from (f"linalg.{name}" for name in xp.linalg.__all__)
    assert set(xp.fft.__all__) == set(strict.fft.__all__)
    yield from (f"fft.{name}" for name in xp.fft.__all__)


def test_every_name_is_there_or_has_a_reason() -> None:
    missing = {n for n in standard() if "." not in n and not hasattr(xp, n)}
    assert missing == NOT_THERE.keys()
    with pytest.raises(AttributeError, match=r"^lm\.array_api has no 'nothing'$"):
        xp.nothing  # noqa: B018


def test_every_function_has_a_row() -> None:
    functions = {
        name for name in standard()
        if name not in NOT_THERE and callable(getattr(strict, name.removeprefix("linalg."), None))
        and not hasattr(getattr(xp, name, None), "numpy")
    }  # fmt: skip
    named = {name.partition(" ")[0] for _, name in CASES}
    covered = named | {"linalg", "__array_namespace_info__", *ELSEWHERE}
    covered |= {"broadcast_arrays", "matrix_transpose"}
    assert functions - covered == set()


# --- signatures -----------------------------------------------------------------------------------

UNSAID = ("Undef.UNDEF", "<Undef.UNDEF: 0>", "None")
NO_SIGNATURE = {"__buffer__", "__weakref__"}  # of Python, not of the standard


def signatures() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """Our function and theirs: of the namespace, `linalg`, arrays' methods and the inspection."""
    for name in standard():
        find = attrgetter(name)
        if name not in NOT_THERE and isinstance(find(strict), FunctionType):
            yield name, find(xp), find(strict)
    pairs = {
        "array": (type(xp.asarray(0)), type(strict.asarray(0))),
        "info": (type(xp.__array_namespace_info__()), type(strict.__array_namespace_info__())),
    }
    for owner, (our_type, their_type) in pairs.items():
        for name, theirs in vars(their_type).items():
            is_public = name.startswith("__") or not name.startswith("_")
            if isinstance(theirs, FunctionType) and is_public and name not in NO_SIGNATURE:
                yield f"{owner}.{name}", getattr(our_type, name), theirs


def calls(theirs: Callable[..., Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Ways to give a function its parameters: those needed, and each other one where it may be."""
    parameters = list(inspect.signature(theirs).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
    by_place = [p.name for p in needed if p.kind is not p.VAR_POSITIONAL]
    yield (*by_place,), {}
    for each in parameters:
        if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD) and each not in needed:
            yield (*by_place,), {each.name: None}
        if each.kind is each.POSITIONAL_OR_KEYWORD and each in needed and each is not needed[0]:
            yield (
                (*by_place[: by_place.index(each.name)],),
                dict.fromkeys(by_place[by_place.index(each.name) :]),
            )


def default_of(function: Callable[..., Any], name: str) -> str:
    """As text; "None" where it is left out."""
    found = inspect.signature(function).parameters.get(name)
    text = "None" if found is None else str(found.default)
    return "None" if text in UNSAID else text


def test_signatures_are_the_standards() -> None:
    """All calls that array-api-strict's signature allows are allowed, with its defaults."""
    met = 0
    for name, ours, theirs in signatures():
        signature = inspect.signature(ours)
        for args, kwargs in calls(theirs):
            if name == "array.to_device":
                kwargs = {k: v for k, v in kwargs.items() if k == "stream"}
                args = (*args[:2],)
            signature.bind(*args, **kwargs)  # TypeError says the parameter
            met += 1
            for each in kwargs:
                assert each in signature.parameters, f"{name} takes {each} without naming it"
                if "_empty" not in default_of(theirs, each):
                    assert default_of(ours, each) == default_of(theirs, each), (name, each)
    assert met > 350


def test_the_parameters_that_ports_write() -> None:
    x = xp.reshape(xp.arange(6, dtype=xp.float32), (2, 3))
    assert xp.expand_dims(x, 1).shape == xp.expand_dims(x, axis=1).shape == (2, 1, 3)
    assert xp.vecdot(x, x, axis=0).shape == xp.linalg.vecdot(x, x, axis=0).shape == (3,)
    assert xp.tensordot(x, x, axes=([0], [0])).shape == (3, 3)
    for shape in ((0,), (0, 3)):
        empty = np.zeros(shape, np.float32)
        assert xp.asarray(empty, copy=False).shape == shape
        assert xp.asarray(xp.asarray(empty), copy=False).shape == shape
        with pytest.raises(lm.InputError, match="copy=False, but a copy is needed"):
            xp.asarray(empty, dtype=xp.float64, copy=False)
    for made in (x, lm.as_tensor(np.ones(2)), lm.State((2,)), lm.Parameter([1.0])):
        assert [*inspect.signature(made.__dlpack__).parameters] == [
            "stream", "max_version", "dl_device", "copy",
        ]  # fmt: skip


# --- values ---------------------------------------------------------------------------------------


def agree(name: str, row: Row, operands: tuple[Any, ...]) -> None:
    """The row's expression gives what NumPy gives, in dtype, shape and values."""
    expected = leaves(row.call(np, *operands))
    found = leaves(row.call(xp, *(xp.asarray(x, copy=True) for x in operands)))
    where = f"{name} of {[f'{x.dtype}{x.shape}' for x in operands]}: {operands}"
    assert len(found) == len(expected), where
    for ours, theirs in zip(found, expected, strict=True):
        check_result(np.asarray(ours), np.asarray(theirs), row, name, where)


def check_result(ours: Any, theirs: Any, row: Row, name: str, where: str) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
    if theirs.dtype.kind != "f":
        assert np.array_equal(ours, theirs), f"{where}\n{ours}\n{theirs}"
        return
    finite = np.abs(theirs[np.isfinite(theirs)])
    step = np.finfo(theirs.dtype).eps * max(1.0, finite.max(initial=0.0))
    assert np.allclose(ours, theirs, 0, row.ulp * step, equal_nan=True), (
        f"{where}\n{ours}\n{theirs}"
    )
    if row.specials and name.partition(" ")[0] not in WITHOUT_SIGN:
        zero = (ours == 0) & (theirs == 0)
        assert np.array_equal(np.signbit(ours[zero]), np.signbit(theirs[zero])), where


def leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [leaf for part in found for leaf in leaves(part)]
    return [found]


@pytest.mark.usefixtures("interpreted_chains")
@pytest.mark.parametrize(("table", "name"), CASES)
def test_values_are_numpys(table: str, name: str) -> None:
    """In a fifth of the dtypes that the row takes, others from row to row."""
    row = rows.TABLES[table][name]
    seed = zlib.crc32(name.encode())
    _check(name, row, row.dtypes[seed % 5 % len(row.dtypes) :: 5], seed)


@pytest.mark.long
@pytest.mark.usefixtures("interpreted_chains")
@pytest.mark.parametrize(("table", "name"), CASES)
def test_all_values_are_numpys(table: str, name: str) -> None:
    row = rows.TABLES[table][name]
    _check(name, row, row.dtypes, 0)


COMPILED = ["add", "pow", "exp", "remainder", "where", "std kept", "cumulative_sum", "sort", "isin"]


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_values_are_numpys(name: str) -> None:
    row = next(found[name] for found in rows.TABLES.values() if name in found)
    _check(name, row, ("float32",), 1)


@pytest.mark.long
@pytest.mark.parametrize(("table", "name"), CASES)
def test_all_compiled_values_are_numpys(table: str, name: str) -> None:
    row = rows.TABLES[table][name]
    _check(name, row, row.dtypes, 1)


def _check(name: str, row: Row, dtypes: Sequence[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dtype in dtypes:
        for operands in rows.operands_of(row, dtype, rng):
            agree(name, row, operands)


@pytest.mark.usefixtures("interpreted_chains")
@pytest.mark.parametrize(
    "name", [n for n, row in rows.ELEMENTWISE.items() if row.dtypes[-1] == "float64"]
)
def test_special_values(name: str) -> None:
    """Every special value, and every pair of them for functions of two operands."""
    row = rows.ELEMENTWISE[name]
    count = len(row.operands[0])
    values = np.array([*itertools.product(rows.SPECIAL, repeat=count)]).T
    for dtype in rows.FLOAT:
        agree(name, row, tuple(each.astype(dtype) for each in values))


@pytest.mark.usefixtures("interpreted_chains")
@settings(max_examples=60, derandomize=True)
@given(st.data())
def test_drawn_shapes_and_values(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*rows.ELEMENTWISE]))
    row = rows.ELEMENTWISE[name]
    dtype = data.draw(st.sampled_from([*row.dtypes]))
    shapes = data.draw(mutually_broadcastable_shapes(num_shapes=len(row.operands[0]), min_dims=0))
    operands = [data.draw(arrays(dtype, s, elements=_elements(row, dtype))) for s in shapes[0]]
    agree(name, row, tuple(operands))


def _elements(row: Row, dtype: str) -> st.SearchStrategy[Any]:
    if dtype == "bool":
        return st.booleans()
    if dtype in rows.FLOAT:
        return st.sampled_from(rows.SPECIAL) | st.floats(-9, 9, width=32, allow_subnormal=False)
    low, high = row.values
    return st.integers(max(low, 0) if dtype in rows.UNSIGNED else low, high - 1)


@pytest.mark.usefixtures("interpreted_chains")
@settings(max_examples=20, derandomize=True)
@given(st.data())
def test_hypothesis_draws_our_arrays(data: st.DataObject) -> None:
    """Its strategies for the standard make arrays with our functions, and read our limits."""
    drawn = make_strategies_namespace(xp, api_version="2024.12")
    kinds = drawn.boolean_dtypes() | drawn.numeric_dtypes()
    x = data.draw(drawn.arrays(kinds, drawn.array_shapes()))
    key = data.draw(drawn.indices(x.shape, allow_newaxis=True))
    assert isinstance(x, xp.Array)
    has_nan = x.dtype.kind in ("float", "complex")
    assert np.array_equal(x[key], np.asarray(x)[key], equal_nan=has_nan)
