"""The CPU backend as on macOS or Windows, on Linux: `python -m tests.backends.cpu.systems.stand_in
SYSTEM [pytest arguments]`. Without arguments a few programs run.

Code is compiled for that system, so it passes arguments as that system does and calls that system's
functions; these are made over Linux's (`shims`, `memory`). What Python calls of the team goes
through a function that changes the convention where it is another.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from typing import Any

import pytest

from luminal.backends.cpu import host, linker, machine_code, systems, target, team
from luminal.backends.cpu.host import Host
from luminal.backends.cpu.linker import LoadedCode
from luminal.backends.cpu.systems import darwin, posix, windows
from tests.backends.cpu.systems import shims
from tests.backends.cpu.systems.memory import Mac, Windows

SYSTEMS = {
    "darwin": "apple-darwin24.0.0-elf",
    "darwin-before-14.4": "apple-darwin22.0.0-elf",
    "windows": "pc-windows-msvc-elf",
}
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64"}

_used: list[LoadedCode] = []  # code that runs here as long as the process


def install(name: str) -> Mac | Windows:
    """Turns this process into one of that system; its libraries."""
    linux = target.detect()

    def loaded(text: str, names: tuple[str, ...]) -> dict[str, int]:
        code = linker.link(machine_code.compile_object(text, linux), names, {})
        _used.append(code)
        return code.symbols

    is_windows = name == "windows"
    prefix, text = ("win_", shims.WINDOWS) if is_windows else ("mac_", shims.MAC)
    symbols = loaded(text, shims.defined(text, prefix))
    own = {symbol.removeprefix(prefix): address for symbol, address in symbols.items()}
    if name == "darwin-before-14.4":
        own = {symbol: address for symbol, address in own.items() if "os_sync" not in symbol}
    triple = f"{ARCHITECTURES[platform.machine()]}-{SYSTEMS[name]}"
    facts = Host(triple, linux.cpu, host.host().features)
    _set(target, host_facts=lambda: facts)
    target.detect.cache_clear()
    if not is_windows:
        process = ctypes.CDLL(None)
        mac = Mac(lambda symbol: own.get(symbol) or _address(process, symbol))
        _set(posix, libc=lambda: mac)
        _set(darwin, libc=lambda: mac)
        _take(darwin)
        return mac
    machine = Windows(own.get)  # what is not made for its convention is not there
    _set(windows, _library=lambda name: machine, _libraries=lambda: [machine])
    _take(windows)
    _change_convention(lambda address: loaded(shims.entered(address), ("kernel",))["kernel"])
    return machine


def _address(library: Any, symbol: str) -> int | None:
    try:
        return ctypes.cast(library[symbol], ctypes.c_void_p).value
    except AttributeError:
        return None


def _take(system: Any) -> None:
    functions = {name: getattr(system, name) for name in ("mapped", "fill", "unmap", "find")}
    _set(systems, **functions)


def _change_convention(entered: Callable[[int], int]) -> None:
    """Has Python enter the team's functions through such of Linux's convention."""
    builtin, initialize = team.builtin, team._initialize
    _set(
        team,
        builtin=lambda name, address: builtin(name, entered(address)),
        _initialize=lambda address: initialize(entered(address)),
    )


def _set(module: Any, **values: object) -> None:
    for name, value in values.items():
        assert hasattr(module, name)
        setattr(module, name, value)


if __name__ == "__main__":
    libraries = install(sys.argv[1])
    if len(sys.argv) == 2:
        from tests.backends.cpu.systems import programs

        programs.check()
        pages = libraries.invalidated if isinstance(libraries, Mac) else libraries.flushed
        print("pieces of code:", len(pages))
    else:
        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]]))
