"""What makes complex numbers of real ones, and takes them apart."""

from __future__ import annotations

from typing import Any

from luminal.base import dtypes
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.complex.tensor import ComplexTensor
from luminal.frontend.names.table import offered
from luminal.frontend.pointwise.binary import graph_of
from luminal.memory.parameter import Parameter
from luminal.memory.state import State


def complex_(real: Any, imag: Any) -> ComplexTensor:
    """real + i * imag, of two Tensors of one float dtype, which broadcast. As torch.complex."""
    real, imag = _floats("complex", real, imag)
    return ComplexTensor(real, imag)


def polar(abs: Any, angle: Any) -> ComplexTensor:
    """The complex number of an absolute value and an angle in radians. As torch.polar."""
    size, angle = _floats("polar", abs, angle)
    return ComplexTensor(size * angle.cos(), size * angle.sin())


def view_as_complex(x: Any) -> ComplexTensor:
    """(..., 2) of floats as (...) of complex numbers. As torch.view_as_complex."""
    (x,) = _floats("view_as_complex", x)
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError(f"view_as_complex: the shape is {x.shape}; the last dim must be 2")
    return x._paired()


def view_as_real(z: ComplexTensor | Parameter | State) -> Any:
    """(...) of complex numbers as (..., 2) of floats. As torch.view_as_real."""
    if isinstance(z, Parameter | State):
        z = z.as_tensor()
    if not isinstance(z, ComplexTensor):
        raise DTypeError(f"view_as_real: {z!r} is not complex; lm.complex(re, im) makes one")
    return z._apart()


def imag(z: ComplexTensor) -> Any:
    """The imaginary part. As torch.imag, it is refused of real Tensors."""
    if not isinstance(z, ComplexTensor):
        raise DTypeError(f"imag: {z!r} is not complex; its imaginary part would be 0")
    return z.imag


def _floats(what: str, *values: Any) -> tuple[Any, ...]:
    """Tensors of float32 or float64 that have one shape."""
    held = [x.as_tensor() if isinstance(x, Parameter | State) else x for x in values]
    graph = graph_of(what, held)
    tensors = [graph.constant(x) for x in held]
    kinds = {x.dtype for x in tensors}
    if len(kinds) > 1 or not kinds <= {dtypes.float32, dtypes.float64}:
        names = ", ".join(x.dtype.name for x in tensors)
        raise DTypeError(f"{what}: got {names}; it takes float32 or float64, cast others first")
    return offered("lm")["broadcast_tensors"](*tensors) if len(tensors) > 1 else tuple(tensors)
