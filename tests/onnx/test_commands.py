"""`luminal run`, `bench` and `info` of files of models."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from luminal.cli.main import main
from luminal.loaders.write_gguf import save_gguf
from luminal.loaders.write_safetensors import save_safetensors

MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[n, 3] x) => (float[n, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> {
  a = Relu(x)
  y = Add(a, a)
}
"""


@pytest.fixture
def luminal_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the command in this process: its output, or the message that it ends with."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["luminal", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return printed.out if caught.value.code == 0 else f"{caught.value.code}{printed.err}"

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def test_run(luminal_command, model: Path, tmp_path: Path):
    np.save(tmp_path / "x.npy", np.array([[1, -2, 3]], np.float32))
    printed = luminal_command(
        "run", model, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npz", "--profile"
    )
    assert "y: float32[1, 3]" in printed
    assert "[[2. 0. 6.]]" in printed
    assert "kernel" in printed
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], [[2, 0, 6]])
    assert "y: float32[4, 3]" in luminal_command("run", model, "--random", "--dims", "n=4")
    assert "give --dims n=SIZE" in luminal_command("run", model, "--random")
    assert "give --input FILE.npy for each, or --random" in luminal_command("run", model)
    assert "must have the form NAME=SIZE" in luminal_command("run", model, "--dims", "n:4")
    named = ("run", model, "--random", "--dims", "n=4", "--dims")
    assert "--dims m=4: there is no such dim; the open dims are n" in luminal_command(*named, "m=4")
    assert "no memory for an array of [10000000000" in luminal_command(*named, "n=10000000000000")
    given = ("run", model, "--input", tmp_path / "x.npy", "--dims")
    assert "--dims n=4: x has 1; leave it out" in luminal_command(*given, "n=4")
    assert "y: float32[1, 3]" in luminal_command(*given, "n=1")
    assert "cannot be read" in luminal_command("run", tmp_path / "none.onnx")
    for wrong, why in ((model, "takes a .npy file"), (tmp_path, "Is a directory")):
        found = luminal_command("run", model, "--input", wrong)
        assert f"--input {wrong}: " in found
        assert why in found
        assert "allow_pickle" not in found


def test_bench_compares_with_onnx_runtime(luminal_command, model: Path):
    printed = luminal_command("bench", model, "--dims", "n=4", "--blocks", "1")
    assert "luminal" in printed
    assert "onnxruntime" in printed
    assert "ms" in printed


def test_info(luminal_command, model: Path, tmp_path: Path):
    printed = luminal_command("info", model)
    assert "2 nodes, 1 weights of 24 B, operator sets ai.onnx 17" in printed
    assert "float32[n, 3]" in printed
    assert "Relu" in printed
    arrays = {"a.weight": np.zeros((64, 32), np.float32), "b": np.ones((3,), np.float16)}
    save_safetensors(tmp_path / "w.safetensors", arrays)
    save_gguf(tmp_path / "w.gguf", arrays)
    for name in ("w.safetensors", "w.gguf"):
        printed = luminal_command("info", tmp_path / name)
        assert "64 x 32" in printed
        assert "2 tensors, 8.2 kB" in printed
    assert "takes a .onnx, .gguf or .safetensors file" in luminal_command("info", "x.txt")
