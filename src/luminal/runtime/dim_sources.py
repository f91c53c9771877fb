"""Inputs that no output reads, but whose shapes say how long a dim is: `zeros_like(x)` reads none
of x and has its shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from luminal.hlir.attributes import InputAttrs
from luminal.hlir.ops import Value
from luminal.runtime.arrays import Array, accept
from luminal.runtime.binding import InputSpec, Signature, given_dims

Shapes = tuple[tuple[int, ...] | None, ...]
"""Of every source in order; None where it was not given."""


# A dim need not stand bare in a shape: sums and products are solved for the one dim that nothing
# else tells. Squares, quotients and remainders have several solutions, so they say none.
class DimSources:
    """The declared inputs that give dims which no input of the signature gives."""

    def __init__(self, signature: Signature, declared: Mapping[str, Value]) -> None:
        shapes = [spec.shape for spec in signature.inputs]
        lacking = set(signature.needed) - given_dims(shapes)
        read = {spec.name for spec in signature.inputs}
        self.specs: list[InputSpec] = []
        self._slots: dict[Any, int] = {}  # by name and by Value
        for name, value in declared.items():
            attrs = value.node.attrs
            if not isinstance(attrs, InputAttrs) or name in read:
                continue
            if lacking & given_dims([*shapes, attrs.shape]):
                self._slots[name] = self._slots[value] = len(self.specs)
                self.specs.append(InputSpec(*attrs))

    def __len__(self) -> int:
        return len(self.specs)

    @property
    def none(self) -> Shapes:
        """The shapes where no source is given."""
        return (None,) * len(self.specs)

    def taken(self, shapes: Shapes, leaf: Any, value: Any) -> Shapes | None:
        """`shapes` with that of `value`, given for `leaf`; None where that is no source.

        Raises DTypeError where the value is no array of the source's dtype.
        """
        slot = self._slots.get(leaf)
        if slot is None:
            return None
        spec = self.specs[slot]
        source_shape = accept(spec.name, value, spec.dtype).shape
        return (*shapes[:slot], source_shape, *shapes[slot + 1 :])

    def completed(self, shapes: Shapes, values: Mapping[str, Array]) -> Shapes:
        """`shapes`, those of arrays set on the graph in the open places."""
        return tuple(
            values[spec.name].shape if shape is None and spec.name in values else shape
            for spec, shape in zip(self.specs, shapes, strict=True)
        )

    def given(self, shapes: Shapes) -> Sequence[tuple[InputSpec, tuple[int, ...]]]:
        """The inputs and shapes of the sources that are given, for `Signature.resolve`."""
        pairs = zip(self.specs, shapes, strict=True)
        return [(spec, shape) for spec, shape in pairs if shape is not None]
