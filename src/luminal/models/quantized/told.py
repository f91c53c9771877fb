"""What is said of a model's packed matrices: which stayed so, and which were decoded, and why."""

from __future__ import annotations

from collections import Counter

from luminal.frontend.matrices.packed import Packed
from luminal.models.checkpoint import Checkpoint
from luminal.models.decoder import Decoder


def told(checkpoint: Checkpoint, model: Decoder, keep: bool) -> str:
    """One line on the matrices of a model, empty where none was or is packed, nor changed by an
    adapter. `keep`: they were to stay packed.
    """
    return "; ".join(filter(None, (_packing(checkpoint, model, keep), checkpoint.adapter)))


def _packing(checkpoint: Checkpoint, model: Decoder, keep: bool) -> str:
    packing = checkpoint.packing
    matrices = [held for held in model.parameters() if isinstance(held, Packed)]
    if packing is None and not matrices:
        return ""
    kinds = Counter(held.kind for held in matrices)
    parts = [f"{count} packed as {kind}" for kind, count in kinds.items()]
    dtype = model.compute_dtype
    if matrices:
        by_bytes = dtype is not None and dtype.size == 1
        parts[-1] += ", multiplied as bytes" if by_bytes else ", decoded where they are read"
    if packing is None:
        return ", ".join(parts)
    left = packing.matrices - len(matrices)
    decoded = packing.decoded or ({} if keep else {"keep_quantized=True keeps them": left})
    parts += [f"{count} decoded ({reason})" for reason, count in decoded.items() if count]
    joined = left - sum(decoded.values())
    if joined > 0:
        parts.append(f"{joined} decoded (joined, cut or changed after they were read)")
    return f"{packing.method}: {packing.matrices} matrices, {', '.join(parts)}"
