"""Functions with the signatures of torch.nn.functional: activations, normalisations, losses."""

from luminal.frontend.foreign import absent as _absent
from luminal.frontend.foreign import in_place as _in_place
from luminal.frontend.handle import of_tensors as _of_tensors
from luminal.frontend.names.table import offered as _offered

globals().update({name: _of_tensors(f, name) for name, f in _offered("functional").items()})
globals().update({name: _of_tensors(_in_place(f), name) for name, f in _offered("inplace").items()})
__all__ = sorted(_offered("functional", "inplace"))


def __getattr__(name: str) -> object:
    raise _absent("luminal.nn.functional", name, __all__.__contains__)
