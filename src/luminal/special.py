"""Special functions under the names of torch.special."""

from luminal.frontend.handle import of_tensors as _of_tensors
from luminal.frontend.names.table import offered as _offered

globals().update({name: _of_tensors(f, name) for name, f in _offered("special").items()})
__all__ = sorted(_offered("special"))
