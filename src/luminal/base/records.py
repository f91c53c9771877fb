"""`dataclass`, in a third of the time of the standard library's: a start makes a hundred classes.

That one compiles a text for each of the seven methods of a frozen class. Here one text has those
that run often, and all classes share the others. What a class is and does is the same;
`dataclasses.fields`, `replace` and the like take it as ever.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True, kw_only=False):
        """The class as a data class, as `dataclasses.dataclass` makes it."""

        def made(cls):
            return _made(cls, frozen, slots, eq, kw_only)

        return made if cls is None else made(cls)


_plain = dataclasses.dataclass
_PARAMS, _NONE = "__dataclass_params__", SimpleNamespace(frozen=False)
_set: Callable[[Any, str, Any], None] = object.__setattr__


def _made(cls: Any, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> Any:
    own_names = frozenset(vars(cls))
    cls.__doc__ = cls.__doc__ or cls.__name__  # the library would write a signature
    # The library refuses a frozen class below one that is not, and the reverse, so it is told what
    # the bases are; that this class is frozen is put in by `_frozen`.
    inherits = any(base.__dict__.get(_PARAMS, _NONE).frozen for base in cls.__mro__[1:])
    cls = _plain(
        cls, init=False, repr=False, eq=False, frozen=inherits, slots=slots, kw_only=kw_only
    )
    params = cls.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = True, True, eq, frozen
    all_fields = fields(cls)
    methods = _written(cls, all_fields, frozen, eq) | {"__repr__": _repr(all_fields)}
    if frozen:
        methods |= _frozen(cls, all_fields, slots)
    if eq and cls.__dict__.get("__hash__") is None:  # as where only __eq__ is its own
        cls.__hash__, own_names = None, own_names - {"__hash__"}
    for name, method in methods.items():
        if name not in own_names:
            method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)
    return cls


# The library compiles seven texts for a class, 0.4 ms, and a start makes more than a hundred
# classes.
def _written(
    cls: Any, all_fields: tuple[Field[Any], ...], frozen: bool, eq: bool
) -> dict[str, Any]:
    """`__init__`, and where objects are compared `__eq__` and `__hash__`."""
    names_in_text: dict[str, Any] = {"set_": _set, "missing_": MISSING}
    takes: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    for field in all_fields:
        name, default = field.name, ""
        value = name
        if field.default_factory is not MISSING:
            names_in_text[f"make_{name}"] = field.default_factory
            default, factory_call = "missing_", f"make_{name}()"
            value = (
                f"{factory_call} if {name} is missing_ else {name}" if field.init else factory_call
            )
        elif field.default is not MISSING:
            names_in_text[f"of_{name}"] = field.default
            default = f"of_{name}"
            value = name if field.init else default
        if field.init:
            (named if field.kw_only else takes).append(f"{name}={default}" if default else name)
        if field.init or default:
            slot = getattr(cls, name, None)
            if not frozen:
                lines.append(f"self_.{name} = {value}")
            elif isinstance(slot, MemberDescriptorType):  # far quicker than by its name
                names_in_text[f"set_{name}"] = slot.__set__
                lines.append(f"set_{name}(self_, {value})")
            else:
                lines.append(f"set_(self_, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self_.__post_init__()")
    listed = ", ".join(["self_", *takes, *(["*", *named] if named else [])])
    text = "\n ".join([f"def __init__({listed}):", *(lines or ["pass"])])
    if eq:
        compared = [field for field in all_fields if field.compare]
        text += f"""
def __eq__(self_, other_):
 if other_.__class__ is self_.__class__:
  return {_listed("self_", compared)} == {_listed("other_", compared)}
 return NotImplemented"""
    if eq and frozen:
        hashed = [
            field for field in all_fields if (field.compare if field.hash is None else field.hash)
        ]
        text += f"\ndef __hash__(self_):\n return hash({_listed('self_', hashed)})"
    made_methods: dict[str, Any] = {}
    # Of a Ctrl-C that arrives while a text is executed, Python remembers that nobody caught it, and
    # ends by that signal in the end, whoever caught it; not so of code.
    exec(compile(text, "<records>", "exec"), names_in_text, made_methods)
    types = {field.name: field.type for field in all_fields if field.init}
    made_methods["__init__"].__annotations__ = types | {"return": None}
    return made_methods


def _listed(of: str, some_fields: list[Field[Any]]) -> str:
    """The text of a tuple of these fields."""
    return f"({''.join(f'{of}.{field.name}, ' for field in some_fields)})"


def _repr(all_fields: tuple[Field[Any], ...]) -> Any:
    names = [field.name for field in all_fields if field.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__


def _frozen(cls: Any, all_fields: tuple[Field[Any], ...], slots: bool) -> dict[str, Any]:
    names = frozenset(field.name for field in all_fields)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    kept = _pickled(cls, [field.name for field in all_fields]) if slots else {}
    return {"__setattr__": __setattr__, "__delattr__": __delattr__, **kept}


def _pickled(cls: Any, names: list[str]) -> dict[str, Any]:
    """The state is the list of what the slots hold."""
    # By the slots' own setters: the class's `__setattr__` refuses, as it should.
    write = [getattr(cls, name).__set__ for name in names]
    read = attrgetter(*names) if len(names) > 1 else lambda self: [getattr(self, n) for n in names]

    def __getstate__(self: Any) -> list[Any]:
        return [*read(self)]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for set_, value in zip(write, state, strict=True):
            set_(self, value)

    return {"__getstate__": __getstate__, "__setstate__": __setstate__}
