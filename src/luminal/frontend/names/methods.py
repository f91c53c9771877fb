"""The methods that Tensors have by the table of names."""

from luminal.frontend.handle import Handle, as_method
from luminal.frontend.names.table import offered


class Methods(Handle):
    """What Tensor inherits: functions whose first parameter is the Tensor."""

    __slots__ = ()


for _name, _function in offered("method").items():
    setattr(Methods, _name, as_method(_function, _name))
