"""Where PyTorch has a graph's tensors, and the backend that computes there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from luminal.backends.registry import OF_DLPACK
from luminal.memory import dlpack_device
from luminal.torch_backend.errors import UnsupportedError

HOST = torch.device("cpu")


def device_of(module: GraphModule, key: str = "val") -> torch.device:
    """The device that a graph's tensors lie on, where that of the host's memory does not count: a
    program takes such tensors to the device, and leaves there what PyTorch has there. `key`: where
    nodes have tensors without data.

    Raises UnsupportedError for several devices, and for one that Luminal has no backend for.
    """
    held: Iterable[Any] = tree_leaves([node.meta.get(key) for node in module.graph.nodes])
    devices = {x.device for x in held if isinstance(x, torch.Tensor)} - {HOST}
    names = " and ".join(sorted(map(str, devices)))
    if len(devices) > 1:
        raise UnsupportedError(
            f"a graph of tensors on {names}: a program runs on one device; compile the module of "
            "each device by itself"
        )
    if any(device.type != "cuda" for device in devices):
        raise UnsupportedError(
            f"a graph of tensors on {names}: programs take those of CPUs, CUDA and ROCm"
        )
    return devices.pop() if devices else HOST


def backend_of(device: torch.device) -> str:
    """The name of Luminal's backend for such a device; PyTorch calls ROCm's GPUs "cuda" too."""
    if device == HOST:
        return "cpu"
    kind = dlpack_device.ROCM if getattr(torch.version, "rocm", None) else dlpack_device.CUDA
    return f"{OF_DLPACK[kind]}:{index_of(device)}"


def index_of(device: torch.device) -> int:
    """Which of its kind it is."""
    return device.index or 0
