"""The door for PyTorch: `torch.compile(model, backend="luminal")`.

Dynamo captures Python, and AOTAutograd makes a functional graph of aten operators (of a training
step a forward and a backward one). `translation` records it with the library's functions, and
`compiled` runs the program on the tensors' own memory.
"""

from luminal.base import installation

try:
    from luminal.torch_backend.backend import luminal_backend
    from luminal.torch_backend.coverage import explain, supported_ops
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "torch":
        raise
    raise ModuleNotFoundError(
        f"luminal.torch_backend: PyTorch is not installed; {installation.hint('torch')}"
    ) from None

__all__ = ["explain", "luminal_backend", "supported_ops"]
