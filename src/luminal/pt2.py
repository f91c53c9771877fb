"""Modules of PyTorch compiled ahead, by torch.export: `luminal.pt2.compile(module, inputs)`."""

from luminal.torch_backend.exported import CompiledModel, compile

__all__ = ["CompiledModel", "compile"]
