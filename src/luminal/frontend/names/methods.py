"""The methods that Tensors have by the table of names."""

from luminal.base.near_names import suggesting
from luminal.frontend.handle import Handle
from luminal.frontend.names.table import offered


class Methods(Handle):
    """What Tensor inherits: functions whose first parameter is the Tensor."""

    __slots__ = ()


for _name, _function in offered("method").items():
    _method = suggesting(_function)
    # the names by which pickle finds it
    _method.__module__, _method.__qualname__ = "luminal.frontend.tensor", f"Tensor.{_name}"
    setattr(Methods, _name, _method)
