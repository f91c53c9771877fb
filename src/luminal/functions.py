"""PyTorch's functions of tensors: `torch.f` as `lm.f`.

Where torch.Tensor has the method too, `lm.f` is `Tensor.f`. What torch.nn.functional has (norms,
embedding, pooling) is called as there. `luminal.array_api` has the names of the array API
standard in the standard's own sense. Tests walk over PyTorch's names.
"""

from luminal.frontend.handle import of_tensors as _of_tensors
from luminal.frontend.names.table import offered as _offered

globals().update({name: _of_tensors(f, name) for name, f in _offered("lm").items()})
__all__ = sorted(_offered("lm"))
