"""Linear algebra under the names of torch.linalg and of the array API's extension."""

from luminal.frontend.handle import of_tensors as _of_tensors
from luminal.frontend.names.table import offered as _offered

globals().update({name: _of_tensors(f, name) for name, f in _offered("linalg").items()})
__all__ = sorted(_offered("linalg"))
