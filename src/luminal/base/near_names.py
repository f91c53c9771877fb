"""Names that are nearly right, or right elsewhere: what was meant, for errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

ELSEWHERE = {
    "max_new_tokens": ("max_tokens",),
    "max_length": ("max_tokens", "context"),
    "num_return_sequences": ("n",),
    "num_epochs": ("epochs",),
    "learning_rate": ("lr",),
    "stop_strings": ("stop",),
    "in_channels": ("in_features",),
    "out_channels": ("out_features",),
    "gradient_accumulation_steps": ("accumulate",),
    "max_grad_norm": ("clip_norm",),
    "torch_dtype": ("compute_dtype", "dtype"),
    "n_ctx": ("context",),
}
"""Names of other libraries, and ours."""
NUMPYS = (("axis", "dim"), ("dims", "dim"), ("keepdims", "keepdim"))
"""NumPy's names of parameters that methods of Tensors take as well, and ours."""
_UNEXPECTED = re.compile(r"got an unexpected keyword argument '(\w+)'")


def suggestion(name: object, names_known: Iterable[str]) -> str:
    """ "; did you mean 'x'?", where one of the known names is like `name` or means the same."""
    if not isinstance(name, str):  # users' values of any kind are looked up
        return ""
    names = [*names_known]
    likely = [other for other in ELSEWHERE.get(name, ()) if other in names]
    likely = likely or get_close_matches(name, names, 1, 0.6)
    return f"; did you mean {likely[0]!r}?" if likely else ""


def explained(
    error: TypeError, function: Callable[..., Any], keywords: Mapping[str, Any]
) -> TypeError:
    """The error of a call, with what was meant where one of `keywords` is no keyword of it."""
    # Python's own message says which keyword is unknown; that it may be NumPy's or PyTorch's word
    # for one of ours is what a user needs to hear.
    match = _UNEXPECTED.search(str(error))
    if match is None or match[1] not in keywords:
        return error
    parameters = inspect.signature(function).parameters
    if match[1] in parameters:
        listed = parameters[match[1]].kind is inspect.Parameter.VAR_POSITIONAL
        fix = f"; pass {match[1]} by position, without its name" if listed else ""
    else:
        numpys = [theirs for theirs, ours in NUMPYS if ours in parameters]
        fix = suggestion(match[1], parameters) or suggestion(match[1], numpys)
    return TypeError(f"{error}{fix}") if fix else error


def suggesting(function: Callable[P, R]) -> Callable[P, R]:
    """Has a call with an unknown keyword argument say which one is like it."""

    @wraps(function)
    def calling(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            told = explained(error, function, kwargs)
            if told is error:
                raise
        # Outside the handler: the user sees one error, not another that came while handling the
        # first.
        raise told

    return calling


def methods_with_suggestions(kind: type) -> None:
    """Has the methods of a class whose names are public do as `suggesting` says."""
    for name, member in [*vars(kind).items()]:
        if inspect.isfunction(member) and not name.startswith("_"):
            method = suggesting(member)
            method.__module__, method.__qualname__ = kind.__module__, f"{kind.__qualname__}.{name}"
            setattr(kind, name, method)  # which pickle finds by these names


def with_suggestions(classes: Iterable[type]) -> None:
    """Has the constructors of classes do as `suggesting` says."""
    for kind in classes:
        if "__init__" in vars(kind):
            setattr(kind, "__init__", suggesting(vars(kind)["__init__"]))  # noqa: B010
