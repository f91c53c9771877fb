"""Functions that Luminal compiles whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from luminal import luminal_backend


def compiled(function: Callable[..., Any], **how: Any) -> Any:
    """The function through `torch.compile`; an error where a part of it would be PyTorch's."""
    return torch.compile(
        function, backend=luminal_backend, fullgraph=True, options={"fallback": "error"}, **how
    )
