"""Runs exported programs where no compiler can be imported: `python run_exported.py FOLDER`.

Each `NAME.lum` lies beside `NAME.npz`, with `dim.S`, `input.X`, and the expected `output.Y` and
`state.K`, or `same.K` where that has not changed. Prints which differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

for module in ("llvmlite", "egglog", "torch"):
    sys.modules[module] = None  # type: ignore[assignment]

import luminal as lm  # noqa: E402


def part(arrays: dict[str, np.ndarray], kind: str) -> dict[str, np.ndarray]:
    return {n.partition(".")[2]: a for n, a in arrays.items() if n.startswith(f"{kind}.")}


def main() -> None:
    files = sorted(Path(sys.argv[1]).glob("*.lum"))
    for file in files:
        with np.load(file.with_suffix(".npz")) as stored:
            arrays = dict(stored)
        program = lm.load_exported(file)
        dims = {name: int(value) for name, value in part(arrays, "dim").items()}
        for threads in (1, 2):
            program.reset()
            named = part(arrays, "input")
            inputs = {a.name: named[a.name].view(a.dtype.numpy) for a in program.inputs}
            results = program(inputs, dims=dims, threads=threads) | {
                f"state.{name}": value for name, value in program.states.items()
            }
            expected = part(arrays, "output") | {
                f"state.{name}": value
                for kind in ("state", "same")  # what a program does not touch is not in its file
                for name, value in part(arrays, kind).items()
                if kind == "state" or name in program.states
            }
            for name, value in expected.items():
                if results[name].tobytes() != value.tobytes():
                    print(f"{file.name}: {name} differs, {threads} threads")
    print(f"{len(files)} programs ran")
    compilers = [
        m for m in ("luminal.algebra", "luminal.compiler", "luminal.egraph") if m in sys.modules
    ]
    assert not compilers, compilers


if __name__ == "__main__":
    main()
