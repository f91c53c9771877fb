"""The reference on one rank of several: what is together goes through the engines of the mesh."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from luminal.backends.reference.interpreter import Arrays
from luminal.base.errors import InputError
from luminal.hlir.attributes import CollectiveAttrs
from luminal.hlir.ops import Node
from luminal.hlir.semantics import Array, Dims, extents
from luminal.runtime.ranks import Engines, request


class Together(Arrays):
    """Plain arrays, and the engine of each mesh axis for what ranks do together."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def apply(self, node: Node, dims: Dims, args: Sequence[Array]) -> tuple[Array, ...]:
        """The results of a node; of a collective once all ranks have come."""
        attrs = node.attrs
        if not isinstance(attrs, CollectiveAttrs):
            return super().apply(node, dims, args)
        engine = self._engines.get(attrs.axis)
        if engine is None:
            raise InputError(
                f"{attrs.kind} over {attrs.axis!r}: no engine for this mesh axis; compile the "
                "graph with mesh="
            )
        source = np.ascontiguousarray(args[0])
        target = np.zeros(extents(node.types[0].shape, dims), source.dtype)
        flat = [array.reshape(-1) for array in (source, target)]
        if not attrs.reduction:
            flat = [array.view(np.uint8) for array in flat]
        engine.wait(engine.start(attrs.kind, *flat, **request(attrs, attrs.label)), first=True)
        return (target,)
