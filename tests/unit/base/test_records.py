"""`luminal.base.records.dataclass` makes what the standard library's makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from luminal.base import records

OPTIONS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"slots": True, "eq": False},
    {"frozen": True, "slots": True, "kw_only": True},
]
both = pytest.mark.parametrize("make", [dataclasses.dataclass, records.dataclass])
Make = Callable[..., Any]


def point(make: Make, **options: bool) -> Any:
    @make(**options)
    class Point:
        kinds: ClassVar[int] = 2
        x: int
        y: int = 3
        seen: list[int] = field(default_factory=list, compare=False)
        hidden: int = field(default=7, init=False, repr=False, hash=False)

        def __post_init__(self) -> None:
            self.seen.append(self.x)

    return Point


def one(make: Make) -> Any:
    @make(frozen=True, slots=True)
    class One:
        """Has a text."""

        only: Any

    return One


def told(do: Callable[[], Any]) -> Any:
    """What it gives, or raises; without a class, which differs."""
    try:
        found = do()
    except Exception as error:
        return type(error), str(error).replace("luminal.base.records.", "")
    return found


@pytest.mark.parametrize("options", OPTIONS)
def test_it_behaves_alike(options: dict[str, bool]) -> None:
    seen = []
    for make in (dataclasses.dataclass, records.dataclass):
        kind = point(make, **options)
        a, b, other = kind(x=1), kind(x=1, y=3), kind(x=2)
        values: list[Any] = [
            repr(a), a == b, a == other, a == 1, a.__eq__(1), a.seen, a.hidden,
            told(lambda a=a: hash(a) if options.get("eq", True) else 0),
            told(lambda a=a, other=other: a < other),
            told(lambda a=a, other=other: (a <= other, a > other, a >= other)),
            told(lambda kind=kind: kind(1, 2)), told(lambda kind=kind: kind()),
            told(lambda kind=kind: kind(x=1, z=2)), told(lambda kind=kind: kind(1, hidden=2)),
            told(lambda a=a: setattr(a, "x", 5)),
            told(lambda a=a: delattr(a, "x")), [f.name for f in dataclasses.fields(kind)],
            told(lambda kind=kind: dataclasses.replace(kind(x=1), y=8)),
            told(lambda kind=kind: dataclasses.asdict(kind(x=1))), kind.__match_args__,
            kind.__dataclass_params__.frozen, kind.__dataclass_params__.eq,
            "__dict__" in dir(a), [*inspect.signature(kind).parameters], kind.kinds,
            str(copy.copy(b)), str(copy.deepcopy(b)),
        ]  # fmt: skip
        seen.append([value if isinstance(value, list | tuple) else str(value) for value in values])
    for plain, ours in zip(*seen, strict=True):
        assert str(plain) == str(ours)


@both
def test_of_one_field_and_of_itself(make: Make) -> None:
    kind = one(make)
    assert kind(1) == kind(1) != kind((1,))
    assert hash(kind(1)) == hash((1,))
    assert kind.__doc__ == "Has a text."
    held: list[Any] = []
    held.append(kind(held))
    assert repr(held[0]).endswith("One(only=[...])")


@both
def test_what_a_class_has_of_its_own_stays(make: Make) -> None:
    @make(frozen=True, slots=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    assert (Own(1) == Own(2), hash(Own(1)), repr(Own(1))) == (True, 5, "own")


@both
def test_inherited_fields_come_first(make: Make) -> None:
    @make(frozen=True, slots=True)
    class Base:
        x: int

    @make(frozen=True, slots=True)
    class Derived(Base):
        y: int = 2

    assert str(Derived(1)).endswith("Derived(x=1, y=2)")
    assert Derived(1) != Base(1)
    for name in "xyz":  # of z the library's says TypeError
        expected = (
            TypeError if name == "z" and make is dataclasses.dataclass else FrozenInstanceError
        )
        with pytest.raises(expected):
            setattr(Derived(1), name, 3)


@records.dataclass(frozen=True, slots=True)
class Kept:
    x: int
    y: tuple[int, ...] = ()


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, (2,)))) == Kept(1, (2,))
    assert copy.deepcopy(Kept(1)) == Kept(1)


INTERRUPTED = """
import sys
import luminal as lm
from luminal.base import records
from luminal.shape.evaluation import compiled

def interrupt(frame, event, argument):
    if frame.f_code.co_name == "<module>":
        raise KeyboardInterrupt

def make():
    @records.dataclass
    class Made:
        x: int

def evaluate():
    compiled(lm.Graph().dim("n", 1, 8) * 2, ("n",))

caught = 0
for each in (make, evaluate):
    sys.settrace(interrupt)
    try:
        each()
    except KeyboardInterrupt:
        caught += 1
    sys.settrace(None)
print(caught)
"""


def test_a_process_that_caught_an_interrupt_ends_well() -> None:
    """Python would end it by the signal, if that came while a text was executed."""
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr
