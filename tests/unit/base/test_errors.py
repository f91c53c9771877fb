"""Every error can be caught as Luminal's and as the builtin a user expects."""

from __future__ import annotations

import pytest

from luminal.base import errors


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("ShapeError", ValueError),
        ("DTypeError", TypeError),
        ("DimError", ValueError),
        ("GraphError", ValueError),
        ("InputError", ValueError),
        ("CompileError", RuntimeError),
        ("LoadError", ValueError),
        ("VerifyError", AssertionError),
    ],
)
def test_both_bases(name: str, builtin: type[Exception]) -> None:
    assert issubclass(getattr(errors, name), errors.LuminalError)
    assert issubclass(getattr(errors, name), builtin)
