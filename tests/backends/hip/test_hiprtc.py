"""hiprtc is asked for one code object, and its complaint is shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from luminal.backends.hip import hiprtc
from luminal.base.errors import CompileError

DONE = SimpleNamespace(name="HIPRTC_SUCCESS")
REFUSED = SimpleNamespace(name="HIPRTC_ERROR_COMPILATION")
LOG, CODE = b"kernel:1:1: error: no\0", b"\x7fELF"


class Compiler:
    """As hip-python's module, for texts of which those with "no" are refused."""

    hiprtcResult = SimpleNamespace(HIPRTC_SUCCESS=DONE)

    def hiprtcCreateProgram(self, text: bytes, *_: Any) -> Any:
        return DONE, text

    def hiprtcCompileProgram(self, text: bytes, count: int, options: list[bytes]) -> Any:
        self.options = options
        assert count == len(options)
        return (REFUSED if b"no" in text else DONE,)

    def hiprtcGetProgramLogSize(self, _: bytes) -> Any:
        return DONE, len(LOG)

    def hiprtcGetProgramLog(self, _: bytes, log: bytearray) -> Any:
        log[:] = LOG
        return (DONE,)

    def hiprtcGetCodeSize(self, _: bytes) -> Any:
        return DONE, len(CODE)

    def hiprtcGetCode(self, _: bytes, code: bytearray) -> Any:
        code[:] = CODE
        return (DONE,)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(hiprtc, "_bindings", lambda: made)
    return made


def test_a_text_becomes_code_without_contraction(compiler: Compiler) -> None:
    assert hiprtc.compile("yes", "gfx942") == CODE
    assert b"--offload-arch=gfx942" in compiler.options
    assert b"-ffp-contract=off" in compiler.options


def test_a_refused_text_comes_with_the_compilers_words(compiler: Compiler) -> None:
    with pytest.raises(CompileError, match=r"refuses a kernel for gfx942:\nkernel:1:1: error: no"):
        hiprtc.compile("no", "gfx942")
