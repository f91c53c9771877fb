"""Exported programs give the bits of the executable, in a process without a compiler and from C."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import exported
from luminal.backends.cpu import hwcaps
from luminal.runtime.executable import Executable
from tests.fuzz.cpu_run import compiled
from tests.fuzz.graphs import random_case
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
HERE = Path(__file__).parent
INCLUDE = Path(lm.__file__).parent / "include"
rng = np.random.default_rng(7)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="writes libraries of Linux")


def keep(
    folder: Path,
    name: str,
    exe: Executable,
    inputs: Mapping[str, Array],
    dims: Mapping[str, int],
    states: Mapping[Any, Array] | None = None,
) -> None:
    """Exports a program beside what a run of it gives."""
    states = states or {}
    for state, value in states.items():
        state.set(value)
    ends = exe._signature.intervals  # of the dims that the program needs
    greatest = {dim: min(ends[dim][1], n + 3) for dim, n in dims.items() if dim in ends}
    exe.export(folder / f"{name}.lum", greatest)
    first = {state: state.numpy().copy() for state in states}
    outputs = exe(inputs, dims=dims)
    arrays = {f"output.{key}": np.array(value) for key, value in outputs.items()}
    names = [state.name for state in states]  # of which a file makes the second "NAME.2"
    alone = {s.name: (s.numpy(), first[s]) for s in states if names.count(s.name) == 1}
    for key, (now, before) in alone.items():
        kind = "same" if now.tobytes() == before.tobytes() else "state"
        arrays[f"{kind}.{key}"] = now
    arrays |= {f"input.{key}": value for key, value in inputs.items()}
    arrays |= {f"dim.{key}": np.array(dims[key]) for key in greatest}
    raw = {k: a if a.dtype.isbuiltin == 1 else a.view(f"u{a.itemsize}") for k, a in arrays.items()}
    np.savez(folder / f"{name}.npz", **raw)


def run_elsewhere(folder: Path) -> str:
    """What a process without compilers says of the programs of a folder."""
    command = [sys.executable, str(HERE / "run_exported.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def drawn(folder: Path, seed: int) -> None:
    """A program of the fuzzers: two generators take turns."""
    from tests.fuzz.programs.grown import torch_program  # asks for PyTorch
    from tests.fuzz.programs.record import case_of, record

    if seed % 2:
        case = random_case(seed)
        exe = compiled(case.graph)[0]
    else:
        program = torch_program(seed)[0]
        recording = record(program)
        case = case_of(recording, recording.cx.graph(), program, 0)
        exe = lm.compile(recording.cx)
    keep(folder, f"drawn{seed}", exe, case.inputs, case.dims, case.states)


@pytest.mark.parametrize("chunk", mostly_long(range(200), 1))
def test_drawn_programs(tmp_path: Path, chunk: int) -> None:
    for seed in (2 * chunk, 2 * chunk + 1):
        drawn(tmp_path, seed)
    assert run_elsewhere(tmp_path) == "2 programs ran\n"


# --- programs that people write -------------------------------------------------------------------


def rows(n: int) -> Array:
    return rng.standard_normal((n, 8)).astype(np.float32)


def linear() -> Executable:
    cx = lm.Graph()
    s = cx.dim("s", 1, 100)
    cx.require((s % 2).eq(1))
    x = cx.tensor((s, 8), name="x")
    (x @ cx.weight((8, 16), name="w")).softmax(-1).output("y")
    exe = lm.compile(cx)
    exe.set({"w": rng.standard_normal((8, 16)).astype(np.float32)})
    return exe


def decoder() -> Executable:
    """Looks up tokens, and adds to what it remembers."""
    cx = lm.Graph()
    t = cx.dim("t", 1, 16)
    ids = cx.tensor((t,), lm.int32, name="ids")
    table = cx.weight((50, 8), name="table")
    held = lm.State((50,), name="held")
    value = cx.read(held) + table[ids].sum().tanh()
    cx.assign(held, value)
    value.output("held")
    exe = lm.compile(cx)
    exe.set({"table": rng.standard_normal((50, 8)).astype(np.float32)})
    return exe


def test_dims_and_what_is_refused(tmp_path: Path) -> None:
    exe = linear()
    program = lm.load_exported(exe.export(tmp_path / "linear.lum", {"s": (3, 51)}))
    assert program.dims == {"s": (3, 51)}
    assert repr(program.inputs[0]) == "x: f32[s, 8]"
    for n in (3, 51, 7):
        x = rows(n)
        assert np.array_equal(program(x=x)["y"], exe(x=x)["y"])
    for inputs, error, words in [
        ({"x": rows(53)}, lm.DimError, "s: 53 is outside 3..51"),
        ({"x": rows(4)}, lm.InputError, r"requirement .*% 2 == 1 does not hold \(with s = 4\)"),
        ({"x": rows(5)[:, :7]}, lm.ShapeError, r"x: expected shape \(5, 8\), which is \[s, 8\]"),
        ({"x": rows(5)[0]}, lm.ShapeError, "x: expected 2 dimensions"),
        ({"x": "text"}, lm.DTypeError, "x"),
        ({}, lm.InputError, "missing: x"),
        ({"x": rows(5), "z": 1}, lm.InputError, "unknown: z"),
    ]:
        with pytest.raises(error, match=words):
            program(inputs)
    with pytest.raises(lm.InputError, match="threads: less than 0"):
        program(x=rows(5), threads=-1)
    with pytest.raises(lm.DimError, match="q: no such dim; the dims are s"):
        program(x=rows(5), dims={"q": 1})
    for wrong in ("5", 5.0, True):
        with pytest.raises(lm.DimError, match=f"s: {wrong!r} is not an int"):
            program(x=rows(5), dims={"s": wrong})
        with pytest.raises(lm.DimError, match=f"s: {wrong!r} is not an int"):
            exe.export(tmp_path / "x.lum", {"s": wrong})
        with pytest.raises(lm.InputError, match=f"threads: {wrong!r} is not an int"):
            program(x=rows(5), threads=wrong)
    with pytest.raises(lm.DimError, match=r"s: 500 is outside its interval 1\.\.100"):
        exe.export(tmp_path / "x.lum", {"s": 500})
    with pytest.raises(lm.DimError, match=r"s: 9\.\.3 is empty"):
        exe.export(tmp_path / "x.lum", {"s": (9, 3)})
    assert [file.name for file in tmp_path.iterdir()] == ["linear.lum"]


def test_shapes_that_do_not_agree(tmp_path: Path) -> None:
    """Whose dim it is, is said as the executable says it."""
    cx = lm.Graph()
    s = cx.dim("s", 1, 9)
    (cx.tensor((s, 2), name="x") + cx.tensor((s, 1), name="z")).output("y")
    exe = lm.compile(cx)
    program = lm.load_exported(exe.export(tmp_path / "two.lum"))
    inputs = {"x": np.ones((3, 2), np.float32), "z": np.ones((4, 1), np.float32)}
    for options in ({}, {"dims": {"s": 5}}):
        texts = []
        for run in (exe, program):
            with pytest.raises(lm.DimError, match="all occurrences of a dim agree") as caught:
                run(inputs, **options)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


def test_extents_that_are_not_bare(tmp_path: Path) -> None:
    cx = lm.Graph()
    s, odd = cx.dim("s", 1, 9), cx.dim("a, b", 1, 9)
    x = cx.tensor((s * 2, odd), name="x")
    z = cx.tensor((odd, s), name='we"ird\n\\ näme,]')
    (x @ z).output("y")
    exe = lm.compile(cx)
    program = lm.load_exported(exe.export(tmp_path / "odd.lum"))
    arrays = {"x": rows(4)[:, :3], 'we"ird\n\\ näme,]': rows(3)[:, :2]}
    assert np.array_equal(program(arrays)["y"], exe(arrays)["y"])
    with pytest.raises(lm.ShapeError, match=r"x: expected shape \(4, 3\), which is \[s \* 2"):
        program(arrays | {"x": rows(5)[:, :3]})


def test_what_is_computed_and_not_returned(tmp_path: Path) -> None:
    cx = lm.Graph()
    s = cx.dim("s", 1, 40)
    x = cx.tensor((s, 8), name="x")
    kept = x.exp()
    kept.keep()
    (kept @ x.T).output("y")
    exe = lm.compile(cx)
    program = lm.load_exported(exe.export(tmp_path / "kept.lum"))
    for n in (40, 3):
        rows_of = rows(n)
        assert np.array_equal(program(x=rows_of)["y"], exe(x=rows_of)["y"])


def test_states_go_on_and_indices_are_checked(tmp_path: Path) -> None:
    exe = decoder()
    ids = np.array([3, -50, 49], np.int32)
    exe(ids=ids)
    program = lm.load_exported(exe.export(tmp_path / "decoder.lum"))
    for step in (ids, ids[:1], ids):
        assert np.array_equal(program(ids=step)["held"], exe(ids=step)["held"])
    kept = program.states["held"]
    for wrong in (50, -51):
        given = np.array([0, wrong, -60], np.int32)
        with pytest.raises(lm.InputError) as live:
            exe(ids=given)
        with pytest.raises(lm.InputError) as error:
            program(ids=given)
        text = f"ids: index {wrong} is out of range for an extent of 50; indices lie in -50..49"
        assert str(live.value).startswith(text)
        assert str(error.value) == f"{live.value} (with t = 3)"
    assert np.array_equal(program.states["held"], kept)
    program.reset()
    assert not np.array_equal(program.states["held"], kept)


def test_wrong_indices_of_two_dtypes_are_named(tmp_path: Path) -> None:
    cx = lm.Graph()
    table = cx.constant(np.arange(7, dtype=np.float32))
    small = cx.tensor((3,), "uint8", name="small").cast("int64")
    table.take(small).output("y")
    table.take(cx.tensor((3,), "int8", name="100%sure")).output("z")  # a name as printf's formats
    table.take(cx.tensor((3,), "uint16", name="plain")).output("plain")  # nothing is wrapped
    exe = lm.compile(cx)
    program = lm.load_exported(exe.export(tmp_path / "take.lum"))
    fine = np.array([6, 1, 0])
    for small, sure, plain in ((200, 0, 0), (0, 7, 0), (0, -128, 0), (7, 7, 0), (0, 0, 7)):
        given = {"small": np.uint8([6, small, 0]), "100%sure": np.int8([1, 1, sure])}
        given["plain"] = np.uint16([plain, 6, 6])
        with pytest.raises(lm.InputError, match="out of range for an extent of 7") as live:
            exe(given)
        with pytest.raises(lm.InputError) as error:
            program(given)
        assert str(error.value) == str(live.value)
    given = {"small": fine, "100%sure": fine, "plain": fine}
    assert all(np.array_equal(found, fine) for found in program(given).values())


def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    first, second = linear(), linear()
    x = rows(3)
    program = lm.load_exported(first.export(tmp_path / "linear.lum"))
    assert lm.load_exported(tmp_path / "linear.lum") is program
    newer = lm.load_exported(second.export(tmp_path / "linear.lum"))
    for each, exe in ((program, first), (newer, second)):
        assert np.array_equal(each(x=x)["y"], exe(x=x)["y"])


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    exe, folder = linear(), tmp_path / "weights"
    folder.mkdir()
    file, weights = tmp_path / "linear.lum", folder / "linear.weights"
    inside = exe.export(tmp_path / "inside.lum").stat().st_size
    assert exe.export(file, weights=weights).stat().st_size < inside
    x = rows(33)
    wanted = exe(x=x)["y"]
    whole = weights.read_bytes()
    for data in (b"", whole[:70], whole[:-1], b"x" + whole[1:]):
        weights.write_bytes(data)
        with pytest.raises(lm.LoadError, match="these are not the weights of this program"):
            lm.load_exported(file)
    weights.unlink()
    with pytest.raises(lm.LoadError, match="the program's weights: No such file"):
        lm.load_exported(file)
    weights.write_bytes(whole)
    folder = tmp_path.rename(tmp_path.with_name("moved"))
    assert np.array_equal(lm.load_exported(folder / "linear.lum")(x=x)["y"], wanted)


def test_arrays_that_lie_otherwise(tmp_path: Path) -> None:
    exe = linear()
    program = lm.load_exported(exe.export(tmp_path / "linear.lum"))
    wide = rng.standard_normal((8, 10)).astype(np.float32)
    x = wide.T[1::2]
    assert np.array_equal(program(x=x)["y"], exe(x=np.ascontiguousarray(x))["y"])
    odd = np.frombuffer(b"\0" + rows(5).tobytes(), np.float32, offset=1).reshape(5, 8)
    assert np.array_equal(program(x=odd)["y"], exe(x=odd.copy())["y"])


def test_threads_take_turns(tmp_path: Path) -> None:
    exe = linear()
    program = lm.load_exported(exe.export(tmp_path / "linear.lum"))
    inputs = [rows(n) for n in (1, 33, 99)] * 4
    expected = [exe(x=x)["y"] for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        results = [*pool.map(lambda x: program(x=x)["y"], inputs)]
    assert all(map(np.array_equal, results, expected))


# --- C --------------------------------------------------------------------------------------------

IN_C = r"""
#include "luminal.h"
#include <stdlib.h>

int main(int count, char **words) {
    const char *error = NULL;
    const luminal_model *model = luminal_open(words[1], &error);
    if (!model) { printf("%s\n", error); return 1; }
    printf("%s: %s %s %s in %lld..%lld\n", model->inputs[0].name, model->inputs[0].dtype,
           model->inputs[0].shape, model->dims[0].name, (long long)model->dims[0].least,
           (long long)model->dims[0].most);
    int64_t dims[] = {atoll(words[2])}, extents[4];
    luminal_extents(model, dims, extents);
    float *x = malloc(sizeof(float) * extents[0] * extents[1]);
    float *y = malloc(sizeof(float) * extents[2] * extents[3]);
    for (int64_t k = 0; k < extents[0] * extents[1]; ++k) x[k] = 0.125f * (k % 37) - 2;
    const void *inputs[] = {x};
    void *outputs[] = {y};
    if ((error = luminal_run(model, dims, inputs, outputs, 0))) { printf("%s\n", error); return 1; }
    for (int64_t k = 0; k < extents[2] * extents[3]; ++k) printf("%a ", y[k]);
    inputs[0] = NULL;
    printf("\n%s\n", luminal_run(model, dims, inputs, outputs, 1));
    return 0;
}
"""


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A C program that runs `linear`."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    asked = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=False)
    if asked.stdout.split("-")[0] != platform.machine():
        pytest.skip(f"the C compiler is for {asked.stdout.strip()}")
    folder = tmp_path_factory.mktemp("c")
    (folder / "main.c").write_text(IN_C)
    flags = [
        "-std=c99",
        "-D_DEFAULT_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
    ]
    command = [compiler, *flags, f"-I{INCLUDE}", "main.c", "-o", "main", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "main"


def test_from_c(tmp_path: Path, in_c: Path) -> None:
    exe = linear()
    file = exe.export(tmp_path / "linear.lum")
    x = (0.125 * (np.arange(33 * 8) % 37) - 2).astype(np.float32).reshape(33, 8)
    done = subprocess.run([in_c, file, "33"], capture_output=True, text=True, check=True)
    described, values, error = done.stdout.splitlines()
    assert described == "x: float32 [s, 8] s in 1..100"
    wanted = exe(x=x)["y"].reshape(-1)
    assert [float.fromhex(word) for word in values.split()] == wanted.tolist()
    assert error.startswith("a pointer is null")
    done = subprocess.run([in_c, file, "101"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[1]) == (1, "s: must lie in 1..100")
    done = subprocess.run(
        [in_c, tmp_path / "no.lum", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no.lum" in done.stdout


def test_weights_in_a_file_of_their_own_from_c(tmp_path: Path, in_c: Path) -> None:
    exe = linear()
    file, weights = tmp_path / "linear.lum", tmp_path / "linear.weights"
    exe.export(file, weights=weights)
    x = (0.125 * (np.arange(33 * 8) % 37) - 2).astype(np.float32).reshape(33, 8)
    done = subprocess.run([in_c, file, "33"], capture_output=True, text=True, check=True)
    values = done.stdout.splitlines()[1].split()
    assert [float.fromhex(word) for word in values] == exe(x=x)["y"].reshape(-1).tolist()
    whole = weights.read_bytes()
    for data in (whole[:-1], b"x" + whole[1:]):
        weights.write_bytes(data)
        done = subprocess.run([in_c, file, "3"], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "linear.weights: these are not the weights" in done.stdout


# --- files ----------------------------------------------------------------------------------------


def test_files_that_do_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = linear().export(tmp_path / "linear.lum")
    whole = file.read_bytes()
    for name, data, words in [
        ("short", whole[:-1], "it was cut, copy it again"),
        ("head", whole[:63], "has another format"),
        ("empty", b"", "has another format"),
        ("text", b"#!/bin/sh\n" * 100, "has another format"),
        ("long", whole + b"\0", "it was cut, copy it again"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(lm.LoadError, match=words):
            lm.load_exported(tmp_path / name)
    with pytest.raises(lm.LoadError, match="there is no such file"):
        lm.load_exported(tmp_path / "none")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags\t\t: fpu vme\n")
    monkeypatch.setattr(exported, "CPUINFO", cpuinfo)
    monkeypatch.setattr(hwcaps, "words", lambda: (0, 0, 0))
    with pytest.raises(lm.LoadError, match=r"needs a CPU with .*LUMINAL_TARGET=avx2 or baseline"):
        lm.load_exported(file)


def test_programs_that_are_not_exported(tmp_path: Path) -> None:
    cx = lm.Graph()
    n = cx.dim("n")
    x = cx.tensor((n, 4), name="x")
    (((x @ x.T).exp() @ x).argsort(0) @ x.cast(lm.int64).T).output("y")
    exe = lm.compile(cx)
    with pytest.raises(lm.CompileError, match=r"n has no greatest value.* dims=\{'n': 512\}"):
        exe.export(tmp_path / "x.lum")
    with pytest.raises(lm.CompileError, match=r"takes .* TiB; give smaller ones, as dims="):
        exe.export(tmp_path / "x.lum", {"n": 2**31 - 2})
    with pytest.raises(lm.CompileError, match="compile the graph with backend='cpu'"):
        lm.compile(cx, backend="reference").export(tmp_path / "x.lum")
    with pytest.raises(lm.InputError, match="cannot be written"):
        linear().export(tmp_path / "no folder" / "x.lum")
    cx = lm.Graph()
    (cx.tensor((3, 8), name="x") @ cx.weight((8, 8), name="w")).output("y")
    with pytest.raises(lm.InputError, match="1 weights have no value: w"):
        lm.compile(cx).export(tmp_path / "x.lum")
    assert not [*tmp_path.iterdir()]
