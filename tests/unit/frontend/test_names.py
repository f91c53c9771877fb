"""The table of names: what is derived from it, and that no public name is lost."""

from __future__ import annotations

import inspect
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.frontend.names.table import TABLE, homes, offered
from tests import names

PLACES = (
    "method", "lm", "functional", "inplace", "linalg", "special", "numpy", "array", "promoted",
    "literal",
)  # fmt: skip


def test_stubs_are_those_of_the_table() -> None:
    texts = names.stubs()
    stale = [path.name for path, text in texts.items() if path.read_text() != text]
    assert stale == [], "run `make names`"
    assert {*names.PACKAGE.rglob("*.pyi")} == {*texts}, "a .pyi that the table does not make"


def test_no_public_name_is_lost() -> None:
    stored = names.PUBLIC_NAMES.read_text().splitlines()
    now = names.public_names()
    lost = sorted({*stored} - {*now})
    assert lost == [], "give these names back; if one is to go, docs/changes.md tells users why"
    assert now == stored, "run `make names`, which lists the new ones"


def test_each_name_of_a_place_stands_once() -> None:
    """A second row would take the first one's name silently."""
    told = []
    for line in TABLE.splitlines():
        row, bar, places = line.partition("|")
        first, *others = row.split() or [""]
        own = others if first.endswith(":") else [first, *others]
        for word in places.split() if bar else ():
            place, colon, listed = word.partition(":")
            told += [(place, name) for name in (listed.split(",") if colon else own)]
    assert {place for place, _ in told} == {*PLACES}
    assert len(told) == len({*told}), sorted({each for each in told if told.count(each) > 1})
    assert not {*homes("functional")} & {*homes("inplace")}
    assert len({*homes("array", "promoted", "literal")}) == sum(
        len(homes(place)) for place in ("array", "promoted", "literal")
    )


def test_places_offer_what_the_table_says() -> None:
    for name, function in offered("method").items():
        assert inspect.unwrap(getattr(lm.Tensor, name)) is inspect.unwrap(function)
    for owner, places in (
        (lm, ["lm"]), (lm.nn.functional, ["functional", "inplace"]), (lm.linalg, ["linalg"]),
        (lm.special, ["special"]), (lm.array_api, ["array", "promoted", "literal"]),
    ):  # fmt: skip
        for name, function in offered(*places).items():
            assert inspect.unwrap(getattr(owner, name)) is inspect.unwrap(function), name
    assert all(isinstance(getattr(np, name), np.ufunc) for name in offered("numpy"))


def test_what_is_derived_has_signatures_docs_and_names() -> None:
    assert str(inspect.signature(lm.clip)) == str(inspect.signature(lm.Tensor.clip))
    assert list(inspect.signature(lm.nn.functional.celu).parameters) == ["x", "alpha"]
    assert lm.exp.__doc__ == lm.Tensor.exp.__doc__ != ""
    assert lm.Tensor.exp.__qualname__ == "Tensor.exp"
    assert pickle.loads(pickle.dumps(lm.Tensor.exp)) is lm.Tensor.exp
    x = lm.tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="did you mean 'keepdim'"):
        x.sum(0, keepdin=True)  # type: ignore[call-arg]
    with pytest.raises(lm.DTypeError, match="det: got a ndarray in the place of a Tensor"):
        lm.linalg.det(np.eye(2))  # type: ignore[arg-type]


ADDED = '''

def cube(x: Tensor) -> Tensor:
    """x ** 3."""
    return x * x * x
'''

SHOWN = """
import numpy as np
import luminal as lm
x = lm.tensor([2.0])
calls = [x.cube(), x.third_power(), lm.cube(x), lm.nn.functional.cube(x), lm.array_api.cube(x)]
assert all(float(y) == 8 for y in calls)
assert {"cube", "third_power"} <= {*lm.__all__} and "cube" in lm.array_api.__all__
from tests import names
names.main()
"""


def test_an_operation_is_one_function_and_one_row(tmp_path: Path) -> None:
    """In a copy of the package: then it is a method, a function of all places, and typed."""
    root = Path(__file__).parents[3]
    package = tmp_path / "luminal"
    shutil.copytree(root / "src" / "luminal", package)
    (tmp_path / "tests" / "unit" / "frontend").mkdir(parents=True)
    shutil.copy(root / "tests" / "names.py", tmp_path / "tests")
    unary, table = package / "frontend/pointwise/unary.py", package / "frontend/names/table.py"
    unary.write_text(unary.read_text() + ADDED)
    row = "    cube third_power | method lm functional array:cube\n"
    table.write_text(table.read_text().replace("pointwise.unary\n", f"pointwise.unary\n{row}", 1))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SHOWN], check=True, cwd=tmp_path, env=environment)
    for path, line in {
        "functions.pyi": "third_power = _unary.cube",
        "frontend/names/methods.pyi": "    cube = _unary.cube",
        "nn/functional.pyi": "cube = _unary.cube",
        "array_api/elementwise.pyi": "cube: Callable[..., Any]",
    }.items():
        assert line in (package / path).read_text().splitlines()
    assert "luminal:Tensor cube" in (tmp_path / "tests/unit/frontend/public_names.txt").read_text()
