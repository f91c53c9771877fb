"""Adapters of PEFT kept apart from a model's matrices, so that each request may have its own.

An adapter is trained beside the matrices of a checkpoint. A Decoder has these under other names, in
parts where the checkpoint has several as one, and sometimes turned or with rows in another order.
So a matrix of row numbers takes the way of the weights: what it becomes says where B's rows go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from luminal.base.errors import LoadError
from luminal.frontend.handle import Array
from luminal.loaders.shown import shown
from luminal.models.adapters import BIAS, MAGNITUDE, A, Adapter, B, stored_name
from luminal.models.architectures import architecture_of
from luminal.models.checkpoint import Checkpoint
from luminal.models.decoder import Decoder
from luminal.nn.adapted import AdaptedLinear, Adapters
from luminal.nn.linear import Linear

Pair = tuple[Array, Array]
"""A (rank, in) and B (out, rank), which has the scale."""


def keep_apart(model: Decoder, checkpoint: Checkpoint, adapters: Mapping[str, Adapter]) -> None:
    """Puts adapters, by name, beside the matrices of a checkpoint's model, as `model.adapters`.

    Raises LoadError for one that does not fit the model, or that can only be merged; the model is
    then as it was.
    """
    linears = {
        path: part
        for path, part in model.named_modules()
        if type(part) is Linear and part is not model.lm_head
    }
    pairs: dict[str, dict[int, Pair]] = {}
    for number, adapter in enumerate(adapters.values(), 1):
        _check_apart(adapter)
        for module in adapter.modules:
            for path, pair in _pairs(adapter, module, checkpoint, model):
                if path not in linears:
                    raise _only_merged(adapter, f"it changes {shown(module)}, which is no Linear")
                wanted, got = tuple(linears[path].weight.shape), (len(pair[1]), pair[0].shape[1])
                if wanted != got:
                    raise adapter.wrong(
                        f"{module}.{B}", pair[1], f"must add to a matrix {list(wanted)} of the "
                        f"model, and with its {A} gives one of {list(got)}"
                    )  # fmt: skip
                pairs.setdefault(path, {})[number] = pair
    kept = Adapters([*adapters])
    for path, of_adapters in pairs.items():
        parent, _, name = path.rpartition(".")
        layer = AdaptedLinear(linears[path], path, *_stacked(of_adapters, 1 + len(adapters)), kept)
        setattr(model.get_submodule(parent), name, layer)
    model.adapters = kept


def _check_apart(adapter: Adapter) -> None:
    """Raises LoadError for an adapter that is more than pairs of matrices."""
    if adapter.whole:
        raise _only_merged(adapter, f"it replaces {shown(next(iter(adapter.whole)))} as a whole")
    for module, parts in adapter.modules.items():
        if MAGNITUDE in parts:
            raise _only_merged(adapter, "it is a DoRA, which scales the model's own rows")
        if "is_table" in parts:
            raise _only_merged(adapter, f"it changes the embedding {shown(module)}")
        if BIAS in parts:
            raise _only_merged(adapter, f"it changes the bias of {shown(module)}")


def _only_merged(adapter: Adapter, why: str) -> LoadError:
    return LoadError(
        f"{adapter.path}: {why}, so it cannot be kept apart and chosen by name; merge it into the "
        "model: `luminal merge MODEL ADAPTER OUT`, or --adapter FOLDER without a name"
    )


def _pairs(
    adapter: Adapter, module: str, checkpoint: Checkpoint, model: Decoder
) -> Iterator[tuple[str, Pair]]:
    """What an adapter adds to each of the Linears that a module of the checkpoint has become."""
    name = stored_name(f"{module}.weight", checkpoint.tensors)
    if name not in checkpoint.tensors:
        raise adapter.missing(name, checkpoint.tensors)
    rank, scale = adapter.scale(module)
    a, b = (adapter.modules[module][part] for part in (A, B))
    for part, array, got in ((A, a, a.shape[:1]), (B, b, b.shape[1:])):
        if array.ndim != 2 or got != (rank,):
            raise adapter.wrong(f"{module}.{part}", array, f"must be a matrix of rank {rank}")
    scaled = np.float32(scale) * b.astype(np.float32)
    for path, rows in _rows(adapter, name, (len(b), a.shape[1]), checkpoint, model).items():
        yield path, (a.astype(np.float32), scaled[rows])


def _rows(
    adapter: Adapter, name: str, shape: tuple[int, int], checkpoint: Checkpoint, model: Decoder
) -> dict[str, Array]:
    """Which rows of a matrix of the checkpoint each Linear has, by the Linears' paths."""
    # From 1 on, so that a matrix that is multiplied by something does not keep its numbers either.
    numbers = np.broadcast_to(np.arange(1, shape[0] + 1, dtype=np.float32)[:, None], shape)
    turned = adapter.fields.flag("fan_in_fan_out", False)
    architecture = architecture_of(checkpoint.config, checkpoint.path)
    try:
        parts = architecture.weights({name: numbers.T if turned else numbers}, model.config)
    except LoadError:  # of a matrix that is read with others alone, as those of experts
        parts = {}
    else:
        if not parts:
            raise _only_merged(
                adapter, f"it changes {shown(name)}, which the language model does not read"
            )
    rows: dict[str, Array] = {}
    for path, part in parts.items():
        if part.ndim == 2 and part.shape[1] == shape[1] and (part == part[:, :1]).all():
            rows[path.removesuffix(".weight")] = part[:, 0].astype(np.int64) - 1
    together = np.sort(np.concatenate([*rows.values(), np.zeros(0, np.int64)]))
    if len(rows) < len(parts) or not np.array_equal(together, np.arange(shape[0])):
        raise _only_merged(adapter, f"it changes {shown(name)}, whose rows are not rows of Linears")
    return rows


def _stacked(pairs: Mapping[int, Pair], count: int) -> Pair:
    """The matrices of all adapters, by number; zeros for those without, and beyond a rank."""
    first = next(iter(pairs.values()))
    rank = max(len(a) for a, _ in pairs.values())
    stacked_a = np.zeros((count, rank, first[0].shape[1]), np.float32)
    stacked_b = np.zeros((count, len(first[1]), rank), np.float32)
    for number, (a, b) in pairs.items():
        stacked_a[number, : len(a)] = a
        stacked_b[number, :, : len(a)] = b
    return stacked_a, stacked_b
