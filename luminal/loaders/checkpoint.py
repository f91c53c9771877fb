"""One entry for every kind of checkpoint: a folder, a `.gguf`, a llama2.c `.bin`, or a Hub id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from luminal.errors import LoadError
from luminal.loaders import hub
from luminal.loaders.gguf import read_gguf
from luminal.loaders.gguf_llama import gguf_tokenizer, llama_config, llama_weights
from luminal.loaders.json_file import read_json
from luminal.loaders.llama2c import read_llama2c, read_llama2c_tokenizer
from luminal.loaders.llama_config import LlamaConfig, from_hugging_face, pick_weights
from luminal.loaders.mapped import Array
from luminal.loaders.safetensors_file import read_safetensors, read_sharded
from luminal.loaders.tokenizer import Tokenizer, read_tokenizer_json


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as it lies on disk; the weights are read-only views of mapped files.

    `weights` has exactly the names of llama_config.expected_shapes, in the dtypes of the file.
    """

    config: LlamaConfig
    weights: Mapping[str, Array]
    tokenizer: Tokenizer | None
    path: Path


def load_checkpoint(path_or_id: str | Path, tokenizer: str | Path | None = None) -> Checkpoint:
    """Read a model from a folder, a `.gguf` or `.bin` file, or the Hugging Face Hub.

    `tokenizer` names a tokenizer.json, a llama2.c tokenizer file, a `.gguf`, or a folder, where
    the model has none of its own. Raises LoadError for whatever is missing, damaged or unknown.
    """
    path = _locate(path_or_id)
    if path.is_dir():
        config, weights, own = _from_folder(path)
    elif path.suffix == ".gguf":
        file = read_gguf(path)
        config = llama_config(file, path)
        weights = pick_weights(config, llama_weights(file), path)
        own = None if tokenizer else gguf_tokenizer(file.metadata, path)
    elif path.suffix == ".bin":
        config, weights = read_llama2c(path)
        own = None
    else:
        raise LoadError(
            f"{path}: unknown kind of file; pass a folder with config.json and safetensors, "
            f"a .gguf, or a llama2.c .bin"
        )
    chosen = read_tokenizer(Path(tokenizer)) if tokenizer else own
    if chosen is not None and chosen.vocab_size > config["vocab_size"]:
        raise LoadError(
            f"{tokenizer or path}: the tokenizer has {chosen.vocab_size} tokens, the model "
            f"{config['vocab_size']}; pass the tokenizer the model was trained with"
        )
    return Checkpoint(config, weights, chosen, path)


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json or its folder, a llama2.c `.bin`, or a `.gguf`."""
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise LoadError(f"{path}: no such file; pass a tokenizer.json, a llama2.c .bin or a .gguf")
    if path.suffix == ".json":
        return read_tokenizer_json(path)
    if path.suffix == ".bin":
        return read_llama2c_tokenizer(path)
    if path.suffix == ".gguf":
        return gguf_tokenizer(read_gguf(path).metadata, path)
    raise LoadError(
        f"{path}: unknown kind of tokenizer; pass a tokenizer.json, a llama2.c .bin or a .gguf"
    )


def _locate(path_or_id: str | Path) -> Path:
    path = Path(path_or_id).expanduser()
    if path.exists():
        return path
    if isinstance(path_or_id, str) and hub.is_hub_id(path_or_id):
        return hub.fetch(path_or_id)
    raise LoadError(
        f"{path_or_id}: no such file or folder; pass a folder, a .gguf, a llama2.c .bin, or a "
        f"Hugging Face id of the form owner/name"
    )


def _from_folder(folder: Path) -> tuple[LlamaConfig, dict[str, Array], Tokenizer | None]:
    if not (folder / "config.json").is_file():
        raise LoadError(f"{folder}: no config.json in it{_hint(folder)}")
    config = from_hugging_face(read_json(folder / "config.json"), folder / "config.json")
    weights = pick_weights(config, _folder_tensors(folder), folder)
    tokenizer_path = folder / "tokenizer.json"
    tokenizer = read_tokenizer_json(tokenizer_path) if tokenizer_path.is_file() else None
    return config, weights, tokenizer


def _folder_tensors(folder: Path) -> dict[str, Array]:
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        return read_sharded(index)
    if single.is_file():
        return read_safetensors(single)
    raise LoadError(
        f"{folder}: no model.safetensors and no model.safetensors.index.json in it; other formats "
        f"are to be converted to safetensors first"
    )


def _hint(folder: Path) -> str:
    models = sorted(p.name for p in folder.iterdir() if p.suffix in (".gguf", ".bin"))
    return f"; pass one of its files: {', '.join(models)}" if models else ""
