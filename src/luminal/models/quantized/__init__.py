"""Folders whose matrices other programs have packed, in the layouts of these.

`quantization_config` in `config.json` names the method; a module of this folder reads each. What a
matrix becomes is the same for all: a Packed Parameter where the packing has the file's values and
the matrices are to be kept, else an array of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from luminal.base.errors import LoadError
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import Array, is_there
from luminal.loaders.shown import shown
from luminal.models.quantized import awq, bitsandbytes, compressed, float8, gptq
from luminal.models.quantized.parts import Loaded

READERS: Mapping[str, Callable[[Mapping[str, Array], Fields, bool, Path], Loaded]] = {
    "gptq": gptq.read,
    "awq": awq.read,
    "bitsandbytes": bitsandbytes.read,
    "compressed-tensors": compressed.read,
    "fp8": float8.read,
    "fbgemm_fp8": float8.read,
}
"""By `quant_method`."""
CODES = "int8", "uint8", "float8_e4m3fn", "float8_e5m2"
"""Dtypes of which no weight is without a scale."""
FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Where the methods' first programs wrote what later stood in `config.json`."""


def section_of(config: Mapping[str, Any], folder: Path) -> Any:
    """What a folder says of its packing, be it in a file of AutoGPTQ's or AutoAWQ's own."""
    if "quantization_config" in config:
        section = config["quantization_config"]
        # The first files of bitsandbytes name no method, only the number of bits.
        if (
            isinstance(section, Mapping)
            and "quant_method" not in section
            and (section.get("load_in_4bit") or section.get("load_in_8bit"))
        ):
            return {**section, "quant_method": "bitsandbytes"}
        return section
    for name, method in FILES.items():
        if is_there(folder / name):
            return {"quant_method": method, **read_json(folder / name)}
    return None


def reads(section: Any) -> bool:
    """Whether a `quantization_config` is of a method that is read."""
    method = section.get("quant_method") if isinstance(section, Mapping) else None
    return isinstance(method, str) and method in READERS


def read(
    tensors: Mapping[str, Array],
    section: Mapping[str, Any],
    keep: bool,
    config: Path,
    path: Path,
    from_the_right: bool = False,
) -> Loaded:
    """The weights of a folder whose configuration has such a section, under the names of floats.

    `keep`: matrices stay packed where they can. `config` and `path` are the files, for messages.
    `from_the_right`: the model's files of floats have matrices as (in, out), as GPT-2's; all
    methods pack them as (out, in), and here they are turned back and decoded.
    Raises LoadError for what the method does not have, and for tensors that do not fit each other
    or the section.
    """
    fields = Fields(section, config, "quantization_config")
    loaded = READERS[section["quant_method"]](tensors, fields, keep and not from_the_right, path)
    if from_the_right:
        loaded.turn("matrices that multiply from the right" if keep else None)
    for name, array in loaded.tensors.items():
        if not isinstance(array, Packed) and str(array.dtype) in CODES:
            raise LoadError(
                f"{path}: {loaded.method}: tensor {shown(name)} is {array.dtype}"
                f"{shown(list(array.shape))}, and no scale is there beside it; download the file "
                "again"
            )
    return loaded
