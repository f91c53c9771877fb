"""Functions by element. Numbers may stand on either side of those of two operands."""

from functools import partial as _partial

from luminal.array_api.array import of_arrays as _of_arrays
from luminal.array_api.array import promoting as _promoting
from luminal.frontend.names.table import offered as _offered

for _place, _wrap in (
    ("array", _of_arrays),
    ("promoted", _promoting),
    ("literal", _partial(_promoting, literal=True)),
):
    globals().update({name: _wrap(f, name) for name, f in _offered(_place).items()})

__all__ = sorted(_offered("array", "promoted", "literal"))
