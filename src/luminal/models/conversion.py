"""Models from one kind of file to another: folders, GGUF files, safetensors files of weights."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.loaders.ggml.mixes import CHOICES, MIXES, few_of, types_of, why_not
from luminal.loaders.ggml.named_blocks import METHOD, named, with_blocks
from luminal.loaders.ggml.quantize import quantized
from luminal.loaders.ggml.types import BLOCKS, PLAIN
from luminal.loaders.gguf import StoredTensor, read_gguf, read_split_gguf
from luminal.loaders.gguf_tokenizer import WHOLE_FILE
from luminal.loaders.mapped import Array, given_path
from luminal.loaders.state_dict import load as load_arrays
from luminal.loaders.write_atomic import new_folder
from luminal.loaders.write_gguf import NAMES, save_gguf
from luminal.loaders.write_gguf_tokenizer import tokenizer_metadata
from luminal.loaders.write_safetensors import save_safetensors
from luminal.models.checkpoint import Checkpoint, load_checkpoint, locate
from luminal.models.gguf.export import gguf_model
from luminal.models.quantized import FILES

KINDS = ("f32", "f16", "bf16", *CHOICES)
_FLOATS = tuple(map(np.dtype, (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)))
_FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10,
    "Q3_K": 11, "Q3_K_M": 12, "Q4_K": 14, "Q4_K_M": 15, "Q5_K": 16, "Q5_K_M": 17, "Q6_K": 18,
    "IQ4_NL": 25, "BF16": 32,
}  # fmt: skip
"""`general.file_type` by the mix, or the type of most weights."""
_WEIGHTS = "model.safetensors"
_OTHER_FILES = (".bin", ".onnx", ".pt", ".pth")


@dataclass(frozen=True, slots=True)
class Written:
    """One of `count` tensors of a GGUF file as it is made: its values, of so many bytes in the
    source, and what is `stored`; `kept`: why it is not packed, where that was asked for.
    """

    name: str
    values: Array
    nbytes: int
    stored: StoredTensor
    kept: str | None
    count: int


Told = Callable[[Written], None]


def convert(
    source: str | Path,
    target: str | Path,
    dtype: str | None = None,
    tokenizer: str | Path | None = None,
    told: Told | None = None,
    adapter: str | Path | None = None,
) -> None:
    """Writes a model in the files of `source` as a `.gguf`, a `.safetensors`, or a new folder.

    `source`: what `load` takes, or a `.safetensors`, whose arrays keep their names. `dtype`: of the
    weights, one of KINDS; without it matrices stay what they are, and packed ones become f32 but in
    GGUF files. Beside packed matrices and in GGUF files vectors are f32, as readers expect, and
    matrices whose rows are no whole blocks f16. Folders and safetensors files have packed ones as
    `luminal.loaders.ggml.named_blocks` says. `tokenizer`: a file, where the model has none.
    `adapter`: a folder of PEFT, merged into the weights. `told` hears of each tensor, where they
    are packed. All is written or nothing. Raises LoadError for a damaged source, InputError for
    what cannot be said there.
    """
    place = given_path(target)
    kind = _checked(dtype, place)
    path = locate(source)
    if place.is_file() and (
        # Weights are mapped from the source while the target is written.
        place.samefile(path) or (path.is_dir() and place.parent.samefile(path))
    ):
        raise InputError(f"{place}: is read from; write another file")
    if path.suffix == ".safetensors":
        if adapter is not None:
            raise InputError(f"{path}: an adapter is merged into a whole model; give its folder")
        _convert_arrays(path, place, kind, told)
        return
    if path.suffix == place.suffix == ".gguf" and tokenizer is None and adapter is None:
        _convert_gguf(path, place, kind, told)
        return
    checkpoint = load_checkpoint(path, tokenizer, adapter=adapter)
    if place.suffix == ".gguf":
        metadata, tensors = gguf_model(checkpoint)
        stored = _all_stored(path, tensors, kind, told)
        rows = len(tensors["token_embd.weight"])
        words = _tokenizer_metadata(
            checkpoint, path, rows, has_other_tokenizer=tokenizer is not None
        )
        metadata |= {"general.name": path.stem} | _general(stored, kind) | words
        save_gguf(place, stored, metadata)
    elif place.suffix == ".safetensors":
        save_safetensors(place, _arrays(path, checkpoint, kind, told), {"format": "pt"})
    else:
        weights = _arrays(path, checkpoint, kind, told)
        _write_folder(
            place, checkpoint, path, kind, weights, has_other_tokenizer=tokenizer is not None
        )


def _checked(dtype: str | None, place: Path) -> str | None:
    if dtype is not None and dtype not in KINDS:
        raise InputError(f"convert: dtype {dtype!r} is not known; it is one of {', '.join(KINDS)}")
    kind = None if dtype is None else dtype.upper()
    if place.suffix in _OTHER_FILES:
        raise InputError(f"{place}: cannot be written; name a .gguf, a .safetensors or a folder")
    return kind


def _convert_arrays(path: Path, place: Path, kind: str | None, told: Told | None) -> None:
    """Weights without a configuration."""
    arrays = with_blocks(load_arrays(path), False, path)
    if place.suffix == ".gguf":
        save_gguf(place, _all_stored(path, arrays, kind, told))
    elif place.suffix == ".safetensors":
        save_safetensors(place, _in_kind(path, arrays, kind, told))
    else:
        raise InputError(f"{path}: weights alone make no model; name a .gguf or a .safetensors")


def _convert_gguf(path: Path, place: Path, kind: str | None, told: Told | None) -> None:
    """One GGUF file of all that a model is in, of any architecture."""
    file = read_split_gguf(path)
    metadata = {key: value for key, value in file.metadata.items() if not key.startswith("split.")}
    tensors = file.tensors
    if kind is not None:
        tensors = _all_stored(path, tensors, kind, told)
        metadata |= _general(tensors, kind)
    save_gguf(place, tensors, metadata)


# --- weights


def _cast(name: str, array: Array, kind: str | None) -> Array:
    """Floats in another dtype. Raises InputError where its range is too small."""
    if kind is None or array.dtype not in _FLOATS:
        return array
    with np.errstate(over="ignore"):
        # An infinity that was there before is the model's own and stays; only one that the cast
        # makes is refused.
        cast = array.astype(PLAIN[kind])
    if kind == "F16" and not np.isfinite(cast).all() and np.isfinite(array).all():
        raise InputError(f"{name}: has values beyond f16's 65504; use bf16 or f32")
    return cast


def _all_stored(
    path: Path,
    tensors: Mapping[str, Array | StoredTensor],
    kind: str | None,
    told: Told | None,
    stay: Mapping[str, Array] | None = None,
) -> dict[str, StoredTensor]:
    """The tensors of a GGUF file, one after the other. `stay`: others, of which it is told."""
    if kind is None or kind in PLAIN:
        return {name: _stored(name, _values(tensor), kind) for name, tensor in tensors.items()}
    rows = {name: tensor.shape[-1] for name, tensor in tensors.items() if len(tensor.shape) > 1}
    # Types of all tensors before any is packed: a mix gives some of them more bits by their name
    # and place.
    types = types_of(kind, rows)
    packed_ones: dict[str, StoredTensor] = {}
    stay = stay or {}
    count = len(tensors) + len(stay)
    reasons = dict.fromkeys(stay, "is no matrix of floats")
    for name, array in stay.items():
        if told is not None:
            same = StoredTensor(array.dtype.name, array.shape, array)
            told(Written(name, array, array.nbytes, same, reasons[name], count))
    for name, tensor in tensors.items():
        array, kept = _values(tensor), _refusal(name, tensor, types)
        if kept is None:
            stored = StoredTensor(types[name], array.shape, quantized(name, array, types[name]))
        elif isinstance(tensor, StoredTensor) and tensor.kind == types.get(name):
            stored = tensor
        else:
            stored = _stored(name, array, "F16")
        if kept is not None:
            reasons[name] = kept
        packed_ones[name] = stored
        if told is not None:
            before = tensor.data if isinstance(tensor, StoredTensor) else tensor
            told(Written(name, array, before.nbytes, stored, kept, count))
    if not any(tensor.kind in types.values() for tensor in packed_ones.values()):
        raise InputError(f"{path}: nothing in it can be {kind.lower()}: {few_of(reasons)}")
    return packed_ones


def _values(tensor: Array | StoredTensor) -> Array:
    return tensor.array() if isinstance(tensor, StoredTensor) else tensor


def _refusal(name: str, tensor: Array | StoredTensor, types: Mapping[str, str]) -> str | None:
    """Why a tensor is not packed."""
    is_packed = isinstance(tensor, StoredTensor) and tensor.kind not in PLAIN
    dtype = tensor.data.dtype if isinstance(tensor, StoredTensor) else tensor.dtype
    if len(tensor.shape) < 2 or not (is_packed or dtype in _FLOATS):
        return "is no matrix of floats"
    if name not in types:
        return why_not(name, tensor.shape[-1])
    if isinstance(tensor, StoredTensor) and tensor.kind == types[name]:
        return f"is {tensor.kind} already"
    return None


def _stored(name: str, array: Array, kind: str | None) -> StoredTensor:
    """Numbers of a GGUF file."""
    values = np.require(_cast(name, array, "F32" if array.ndim < 2 else kind), requirements="C")
    if values.dtype not in NAMES:
        raise InputError(f"{name}: {array.dtype} has no place in GGUF; leave it out")
    return StoredTensor(NAMES[values.dtype], values.shape, values)


def _general(tensors: Mapping[str, StoredTensor], kind: str | None) -> dict[str, Any]:
    """What readers show of the types of tensors."""
    most = kind if kind is not None and kind in MIXES else _most(tensors)
    return {"general.file_type": _FILE_TYPES.get(most, 0), "general.quantization_version": 2}


def _most(tensors: Mapping[str, StoredTensor]) -> str:
    """The type of most numbers."""
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        counts[tensor.kind] += int(np.prod(tensor.shape))
    return max(counts, key=counts.__getitem__, default="F32")


def _in_kind(
    path: Path, tensors: Mapping[str, Array], kind: str | None, told: Told | None
) -> dict[str, Array]:
    """Arrays of files of plain arrays. What is no float stays, and what has more dims than a
    matrix, whose last one need not be what is summed over.
    """
    if kind is None or kind in PLAIN:
        return {name: _cast(name, array, kind) for name, array in tensors.items()}
    flat = {
        n: matrix for n, matrix in tensors.items() if matrix.ndim < 3 and matrix.dtype in _FLOATS
    }
    kept = {name: array for name, array in tensors.items() if name not in flat}
    for name, stored in _all_stored(path, flat, kind, told, dict(kept)).items():
        key, data = named(name, stored.data) if stored.kind in BLOCKS else (name, stored.data)
        kept[key] = data
    return kept


def _arrays(
    path: Path, checkpoint: Checkpoint, kind: str | None, told: Told | None
) -> dict[str, Array]:
    """All weights in one dtype; a folder's in their own unless another is asked for."""
    tensors = checkpoint.tensors
    if kind is None and checkpoint.path.name != "config.json":
        stored = {n: StoredTensor(NAMES[a.dtype], a.shape, a) for n, a in tensors.items()}
        kind = _most(stored)
    return _in_kind(path, tensors, kind, told)


# --- what goes with them


def _tokenizer_metadata(
    checkpoint: Checkpoint, path: Path, rows: int, has_other_tokenizer: bool
) -> dict[str, Any]:
    """The tokenizer and the template."""
    metadata: dict[str, Any] = {}
    tokenizer = checkpoint.tokenizer
    if tokenizer is not None:
        named = checkpoint.config.get("eos_token_id")
        # The one that the configuration names comes first, since GGUF has room for one and readers
        # stop there.
        first = named if isinstance(named, list) else [named]
        ends = [number for number in first if number in tokenizer.eos_ids]
        ends += sorted(tokenizer.eos_ids - {*ends})
        text = _tokenizer_text(checkpoint, path, has_other_tokenizer)
        framed = tokenizer.encode("")
        metadata = tokenizer_metadata(text, path, tokenizer.bos_id, ends, framed, rows)
    if checkpoint.chat_template is not None:
        metadata["tokenizer.chat_template"] = checkpoint.chat_template
    return metadata


def _tokenizer_text(checkpoint: Checkpoint, path: Path, has_other_tokenizer: bool) -> str:
    """The `tokenizer.json`, as it was written where there is one."""
    assert checkpoint.tokenizer is not None
    if not has_other_tokenizer and path.is_dir():
        # As it was written: the library's own text leaves out what it does not know, and a
        # converted model should not differ from its source.
        return (path / "tokenizer.json").read_text(encoding="utf-8")
    if not has_other_tokenizer and path.suffix == ".gguf":
        whole = read_gguf(path).metadata.get(WHOLE_FILE)
        if whole is not None:
            return str(whole)
    return checkpoint.tokenizer.to_json()


def _write_folder(
    place: Path,
    checkpoint: Checkpoint,
    path: Path,
    kind: str | None,
    weights: Mapping[str, Array],
    has_other_tokenizer: bool,
) -> None:
    """A folder; what a folder has beside its weights comes along."""
    config = dict(checkpoint.config)
    dtypes = Counter(a.dtype.name for a in weights.values() if a.dtype in _FLOATS)
    config["torch_dtype"] = max(dtypes, key=dtypes.__getitem__, default="float32")
    config.pop("dtype", None)  # as newer files call it
    if kind is not None and kind not in PLAIN:
        config["quantization_config"] = {"quant_method": METHOD, "type": kind.lower()}
    with new_folder(place) as folder:
        if path.is_dir():
            for file in sorted(path.iterdir()):
                if file.suffix in (".json", ".jinja", ".model", ".txt") and file.is_file():
                    shutil.copyfile(file, folder / file.name)
            # The weights are one file of floats now: an index, or a word of how they were packed,
            # would mislead its readers.
            for name in (f"{_WEIGHTS}.index.json", *FILES):
                (folder / name).unlink(missing_ok=True)
        if checkpoint.tokenizer is not None and (has_other_tokenizer or not path.is_dir()):
            text = _tokenizer_text(checkpoint, path, has_other_tokenizer)
            (folder / "tokenizer.json").write_text(text, encoding="utf-8")
            _write_json(folder / "tokenizer_config.json", _tokenizer_settings(checkpoint))
            ends = {"eos_token_id": sorted(checkpoint.tokenizer.eos_ids)}
            _write_json(
                folder / "generation_config.json",
                {"bos_token_id": checkpoint.tokenizer.bos_id, **ends},
            )
        _write_json(folder / "config.json", config)
        save_safetensors(folder / _WEIGHTS, weights, {"format": "pt"})


def _tokenizer_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """What goes beside a tokenizer.json."""
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for role in ("bos", "eos"):
        number = checkpoint.config.get(f"{role}_token_id")
        if checkpoint.tokenizer is not None and type(number) is int:
            settings[f"{role}_token"] = checkpoint.tokenizer.name_of(number)
    if checkpoint.chat_template is not None:
        settings["chat_template"] = checkpoint.chat_template
    return settings


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
