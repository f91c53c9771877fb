"""Whether NVRTC is installed here, for tests that compile texts for CUDA."""

from __future__ import annotations

import pytest

from luminal.backends.cuda import nvrtc
from luminal.base.errors import CompileError


def _is_installed() -> bool:
    try:
        nvrtc.version()
    except CompileError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not _is_installed(), reason="NVRTC is not installed (extra cuda)")
