"""Adapters of PEFT, merged into the weights that they change.

LoRA (Hu et al., arXiv 2106.09685) adds `scale * B @ A` to a matrix W (out, in), with A (r, in) and
B (out, r); the scale is lora_alpha / r, with use_rslora lora_alpha / sqrt(r) (arXiv 2312.03732).
DoRA (Liu et al., arXiv 2402.09353) then gives each output's row of the sum the length that the
`lora_magnitude_vector` (out) says. A folder has both matrices of each module that it changes, and
whole tensors of those in `modules_to_save` and of biases, which take the places of the model's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from luminal.base.errors import LoadError
from luminal.base.near_names import suggestion
from luminal.base.records import dataclass
from luminal.frontend.handle import Array
from luminal.frontend.matrices.packed import Packed
from luminal.loaders.fields import Fields
from luminal.loaders.ggml.types import unpacked
from luminal.loaders.json_file import read_json
from luminal.loaders.mapped import WEIGHT_DTYPES, given_path, is_there
from luminal.loaders.safetensors_file import read_safetensors
from luminal.loaders.shown import shown

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
A, B, MAGNITUDE, BIAS = "lora_A.weight", "lora_B.weight", "lora_magnitude_vector", "lora_B.bias"
OF_TABLES = {"lora_embedding_A": A, "lora_embedding_B": B}
PARTS = (A, B, BIAS, *OF_TABLES, f"{MAGNITUDE}.weight", MAGNITUDE)
REFUSED = (
    "layer_replication", "target_parameters", "trainable_token_indices", "alora_invocation_tokens",
    "use_qalora", "use_bdlora", "arrow_config", "megatron_config",
)  # fmt: skip
"""Keys that change what an adapter is, where they hold anything."""
CHANGES_BASE = "pissa", "olora", "corda", "loftq"
"""How values of `init_lora_weights` begin with which the model's own matrices were changed too."""
MOST_RANK = 1 << 16
HEAD, HEADS = "lm_head.weight", ("lm_head.weight", "embed_out.weight")
TABLE = re.compile(r"(.*\.)?(embed_tokens|wte|word_embeddings|embed_in|embeddings)\.weight")
"""The names of embeddings, which are the head as well where there is no tensor of HEADS."""


WRAPPERS = frozenset(("model", "language_model", "vision_model"))
"""Modules around others, of which a model that sees has others in memory than in its files."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter's configuration, the matrices by module and part, and the tensors that it has as
    a whole; `path` is the file of both.
    """

    fields: Fields
    modules: Mapping[str, Mapping[str, Array]]
    whole: Mapping[str, Array]
    path: Path

    def merged(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """A model's tensors with the adapter in them, each in its dtype; packed ones that change
        are float32. Raises LoadError for a module that the model does not have, or of other sizes.
        """
        changed = dict(tensors)
        table = _tied_table(tensors)
        for stored, array in self.whole.items():
            # What an adapted embedding adds to its name is left out.
            name = stored_name(stored.replace(".base_layer.", "."), tensors)
            there = tensors.get(name)
            # A head that was tied to the embedding has no tensor before it is trained on its own.
            if there is None and name != HEAD:
                raise self.missing(name, tensors)
            if there is not None and tuple(there.shape) != array.shape:
                raise self.wrong(name, array, f"must have the model's shape {list(there.shape)}")
            changed[name] = array
        for module, parts in self.modules.items():
            name = stored_name(f"{module}.weight", tensors)
            if name == HEAD and table is not None:
                changed.setdefault(name, tensors[table])
            if name not in changed:
                raise self.missing(name, tensors)
            changed[name] = self._sum(module, parts, _floats(changed[name]))
            if BIAS in parts:
                bias_name = f"{name.removesuffix('.weight')}.bias"
                bias = changed.get(bias_name)
                if bias is None or bias.shape != parts[BIAS].shape:
                    raise self.wrong(
                        f"{module}.{BIAS}", parts[BIAS], "must fit a bias of the model"
                    )
                more = np.float32(self.scale(module)[1]) * parts[BIAS].astype(np.float32)
                changed[bias_name] = _rounded(bias.astype(np.float32) + more, bias.dtype)
        if table is not None and self._is_alone(table, tensors):
            changed.setdefault(HEAD, tensors[table])
        return changed

    def _is_alone(self, table: str, tensors: Mapping[str, Any]) -> bool:
        """Was an embedding trained without the head that it is, too?"""
        # PEFT puts a layer in front of the embedding, or a copy in its place; the head goes on
        # reading the model's own matrix.
        module = table.removesuffix(".weight")
        saved = self.fields.values.get("modules_to_save")
        names = saved if isinstance(saved, list) else []
        whole = (stored_name(name, tensors) for name in self.whole)
        copied = table in whole and module.endswith(tuple(map(str, names)))
        tying = self.fields.flag("ensure_weight_tying", False)
        changed = (stored_name(f"{name}.weight", tensors) for name in self.modules)
        return (table in changed or copied) and not tying

    @property
    def text(self) -> str:
        """What is told of it: its kind and rank, and how many matrices it changes."""
        kind = "DoRA" if self.fields.flag("use_dora", False) else "LoRA"
        count, rank = len(self.modules), self.fields.integer("r")
        return f"{kind} of rank {rank} merged into {count} matrices"

    def wrong(self, name: str, array: Array, rule: str) -> LoadError:
        """An error about a tensor of the adapter."""
        return LoadError(
            f"{self.path}: tensor {shown(PREFIX + name)} is {array.dtype}"
            f"{shown(list(array.shape))}: it {rule}; take the adapter of this model, or download "
            "it again"
        )

    def missing(self, name: str, tensors: Mapping[str, Any]) -> LoadError:
        """An error about a tensor that the model does not have."""
        return LoadError(
            f"{self.path}: changes {shown(name)}, which the model does not have"
            f"{suggestion(name, tensors)}; give the model that the adapter was trained on"
        )

    def _sum(self, module: str, parts: Mapping[str, Array], weight: Array) -> Array:
        """W with what the adapter adds."""
        rank, scale = self.scale(module)
        turned = self.fields.flag("fan_in_fan_out", False) or self._is_table(module)
        rows, columns = weight.shape[::-1] if turned else weight.shape
        for part, shape in ((A, (rank, columns)), (B, (rows, rank))):
            if parts[part].shape != shape:
                raise self.wrong(
                    f"{module}.{part}", parts[part], f"must have the shape {list(shape)}, as r is "
                    f"{rank} and the model's matrix is {list(weight.shape)}"
                )  # fmt: skip
        low = parts[B].astype(np.float32) @ parts[A].astype(np.float32)
        wide = weight.astype(np.float32)
        value = (wide.T if turned else wide) + np.float32(scale) * low
        if MAGNITUDE in parts:
            lengths = np.sqrt(np.square(value, dtype=np.float64).sum(1))
            if parts[MAGNITUDE].shape != (rows,) or not lengths.all():
                raise self.wrong(
                    f"{module}.{MAGNITUDE}", parts[MAGNITUDE], f"must be a vector of {rows}, and "
                    "no row of the matrix may be 0"
                )  # fmt: skip
            value = value * (parts[MAGNITUDE].astype(np.float64) / lengths)[:, None]
        return _rounded(value.T if turned else value, weight.dtype)

    def _is_table(self, module: str) -> bool:
        """Is it an embedding, whose rows are inputs?"""
        return "is_table" in self.modules[module]

    def scale(self, module: str) -> tuple[int, float]:
        """The rank of a module's matrices, and what their product is multiplied by."""
        rank = _by_pattern(self.fields, "rank_pattern", module, int)
        alpha = _by_pattern(self.fields, "alpha_pattern", module, float)
        rank = self.fields.integer("r", most=MOST_RANK) if rank is None else rank
        if alpha is None:
            alpha = self.fields.number("lora_alpha", 8)
        root = self.fields.flag("use_rslora", False)
        return rank, alpha / (math.sqrt(rank) if root else rank)


def stored_name(name: str, tensors: Mapping[str, Any]) -> str:
    """The name that a tensor of an adapter has among a model's: itself, or the one that differs in
    `WRAPPERS` alone.
    """
    if name in tensors:
        return name
    # PEFT has the names of modules in memory, and transformers writes files with older ones.
    inner = _unwrapped(name)
    alike = [other for other in tensors if _unwrapped(other) == inner]
    return alike[0] if len(alike) == 1 else name


@cache
def _unwrapped(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _tied_table(tensors: Mapping[str, Any]) -> str | None:
    """The name of the embedding, where it is the head, too."""
    if not {*HEADS}.isdisjoint(map(_unwrapped, tensors)):
        return None
    return next(filter(TABLE.fullmatch, tensors), None)


def _floats(weight: Any) -> Array:
    """A matrix of the model as an array of floats."""
    return weight.numpy() if isinstance(weight, Packed) else unpacked(np.asarray(weight))


def _rounded(value: Array, dtype: Any) -> Array:
    rounded = np.ascontiguousarray(value.astype(dtype))
    rounded.flags.writeable = False  # a Parameter keeps such an array without a copy
    return rounded


def _by_pattern(fields: Fields, key: str, module: str, kind: type) -> Any:
    """What the first pattern that a module's name ends with says, or None."""
    patterns = fields.section(key)
    for pattern in patterns.values:
        if _is_like(module, pattern, fields):
            return (
                patterns.integer(pattern, most=MOST_RANK)
                if kind is int
                else patterns.number(pattern)
            )
    return None


def _is_like(module: str, pattern: str, fields: Fields) -> bool:
    try:
        return re.fullmatch(rf"(.*\.)?(?:{pattern})", module) is not None
    except (re.error, RecursionError, OverflowError) as error:
        raise LoadError(
            f"{fields.path}: {shown(pattern)} is no regular expression: {shown(error)}"
        ) from None


# --- reading --------------------------------------------------------------------------------------


def read_adapter(folder: str | Path) -> Adapter:
    """The adapter in a folder of PEFT. Raises LoadError for what is missing, damaged, not known, or
    contradicts itself.
    """
    place = given_path(folder)
    if not is_there(place / CONFIG):
        raise LoadError(
            f"{place}: no {CONFIG} in it; give a folder that PEFT's save_pretrained wrote"
        )
    fields = Fields(read_json(place / CONFIG), place / CONFIG)
    _check_settings(fields)
    path = place / WEIGHTS
    if not is_there(path):
        raise LoadError(
            f"{place}: no {WEIGHTS} in it; save_pretrained(..., safe_serialization=True) of PEFT "
            "writes one"
        )
    modules: dict[str, dict[str, Array]] = {}
    whole: dict[str, Array] = {}
    for name, array in read_safetensors(path).items():
        inner = name.removeprefix(PREFIX)
        if inner == name or array.dtype not in WEIGHT_DTYPES:
            raise LoadError(
                f"{path}: tensor {shown(name)} is {array.dtype}{shown(list(array.shape))}: it must "
                f"be floats, and its name begin with {PREFIX}; download the adapter again"
            )
        if not np.isfinite(array.astype(np.float32)).all():
            raise LoadError(
                f"{path}: tensor {shown(name)} holds NaN or infinity, and must hold finite "
                "numbers; download the adapter again"
            )
        part = next((part for part in PARTS if inner.endswith(f".{part}")), None)
        if part is None:
            whole[inner] = array
            continue
        parts = modules.setdefault(inner.removesuffix(f".{part}"), {})
        if part in OF_TABLES:
            parts["is_table"] = array
        parts[OF_TABLES.get(part, part.removesuffix(".weight") if MAGNITUDE in part else part)] = (
            array
        )
    adapter = Adapter(fields, modules, whole, path)
    _check_tensors(adapter)
    return adapter


def _check_settings(fields: Fields) -> None:
    """Raises LoadError for settings that are not followed."""
    kind = fields.text("peft_type", "LORA")
    if kind != "LORA":
        raise LoadError(
            f"{fields.path}: peft_type is {shown(kind)}, which is not read; merge it with PEFT "
            "(merge_and_unload), and load what it saves"
        )
    for key in REFUSED:
        if fields.values.get(key):
            raise LoadError(
                f"{fields.path}: {key} is {shown(fields.values[key])}, which is not followed; "
                "merge the adapter with PEFT (merge_and_unload), and load what it saves"
            )
    begun = fields.values.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(CHANGES_BASE):
        raise LoadError(
            f"{fields.path}: init_lora_weights is {shown(begun)}, with which the model's own "
            "matrices were changed before the training; save the adapter with PEFT's "
            "path_initial_model_for_weight_conversion"
        )
    fields.integer("r", most=MOST_RANK)
    fields.number("lora_alpha", 8)
    for key in ("use_rslora", "use_dora", "fan_in_fan_out"):
        fields.flag(key, False)


def _check_tensors(adapter: Adapter) -> None:
    """Raises LoadError where tensors are without each other, or other than the settings say."""
    fields, path = adapter.fields, adapter.path
    if not adapter.modules and not adapter.whole:
        raise LoadError(f"{path}: no tensor in it; download the adapter again")
    needed = [A, B, *([MAGNITUDE] if fields.flag("use_dora", False) else [])]
    for module, parts in adapter.modules.items():
        for part in needed:
            if part not in parts:
                raise LoadError(
                    f"{path}: there is no tensor {shown(f'{PREFIX}{module}.{part}')}, which belongs"
                    " to the other parts of the module; download the adapter again"
                )
        if MAGNITUDE in parts and MAGNITUDE not in needed:
            raise adapter.wrong(
                f"{module}.{MAGNITUDE}",
                parts[MAGNITUDE],
                f"is DoRA's, and {CONFIG} has no use_dora",
            )
        if MAGNITUDE in parts and "is_table" in parts:
            raise adapter.wrong(
                f"{module}.{MAGNITUDE}", parts[MAGNITUDE], "must not be an embedding's, which is "
                "not read"
            )  # fmt: skip
    _check_targets(adapter)


def _check_targets(adapter: Adapter) -> None:
    """Raises LoadError for a module that target_modules does not mean, and for a name there that
    no tensor has.
    """
    fields = adapter.fields
    targets = fields.values.get("target_modules")
    if targets is None or targets == "all-linear":
        return
    if isinstance(targets, str):
        patterns = [targets]
        listed = {m: _is_like(m, targets, fields) for m in adapter.modules}
    else:
        patterns = fields.listed("target_modules", str)
        listed = {
            m: any(f".{m}".endswith(f".{target}") for target in patterns) for m in adapter.modules
        }
        for target in patterns:
            if not any(f".{m}".endswith(f".{target}") for m in adapter.modules):
                raise LoadError(
                    f"{adapter.path}: has no tensors of {shown(target)}, which target_modules of "
                    f"{CONFIG} has; download the adapter again"
                )
    for module, is_target in listed.items():
        if not is_target:
            raise LoadError(
                f"{adapter.path}: changes {shown(module)}, which target_modules of {CONFIG} does "
                f"not have: {shown(patterns)}; download the adapter again"
            )
