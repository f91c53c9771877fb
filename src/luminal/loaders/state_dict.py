"""`lm.load`: the arrays of a file, whatever its format."""

from __future__ import annotations

from pathlib import Path

from luminal.base.errors import LoadError
from luminal.loaders.mapped import Array, given_path, open_file
from luminal.loaders.safetensors_file import read_safetensors, read_sharded

PICKLES = (b"PK\x03\x04", b"\x80\x02\x8a\x0a")  # torch.save: a zip archive, before 1.6 a pickle


def load(path: str | Path) -> dict[str, Array]:
    """Arrays by name from a safetensors file, its `.index.json`, or a GGUF file, of
    several the first.

    They are read-only views of the mapped file, for `module.load_state_dict`. Raises LoadError.
    """
    path = given_path(path)
    if path.name.endswith(".index.json"):
        return read_sharded(path)
    with open_file(path) as file:
        begin = file.read(4)
    if begin in PICKLES and path.suffix in (".npz", ".npy"):
        raise LoadError(
            f"{path}: NumPy's own format; convert it once, with "
            "lm.save(new_path, dict(np.load(path)))"
        )
    if begin in PICKLES:
        raise LoadError(
            f"{path}: a PyTorch pickle, which can run code when it is read; convert it once, with "
            "safetensors.torch.save_file(torch.load(path), new_path)"
        )
    if begin == b"GGUF":
        from luminal.loaders.gguf import read_split_gguf  # late, as in checkpoint.py

        return {name: tensor.array() for name, tensor in read_split_gguf(path).tensors.items()}
    return read_safetensors(path)
