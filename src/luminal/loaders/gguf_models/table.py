"""The architectures of GGUF files: their keys and names, and what Hugging Face calls the same.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; names of tensors:
https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/defaults.py.
"""

from __future__ import annotations

from luminal.loaders.gguf_models import experts, gated, recurrent, ungated
from luminal.loaders.gguf_models.architecture import GGUFArchitecture

FAMILIES = (experts, gated, ungated, recurrent)
ARCHITECTURES: tuple[GGUFArchitecture, ...] = tuple(
    each for family in FAMILIES for each in family.ARCHITECTURES
)
"""Those of one name in the order in which they are tried: the more special first."""
