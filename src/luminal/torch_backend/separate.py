"""Tensors whose elements share places: where one is written, PyTorch runs a graph by operators.

Dynamo does not guard how arguments lie to each other. So a graph that writes arguments is compiled
as if all lay apart, and every call looks where they lie. What a graph writes through a view that
has one place for several elements (`x.expand(3, 4).zero_()`) AOTAutograd would add up.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.layout import has_places, memory_order

Call = Callable[..., Any]


@dataclass(slots=True)
class Writes:
    """What AOTAutograd finds out of a graph's arguments: which are `written`, and of which of these
    results are views of open sizes, which it makes as if those lay at the start of their memory.
    """

    written: set[int] = field(default_factory=set)
    by_offset: set[int] = field(default_factory=set)


def writes_shared_places(module: GraphModule) -> bool:
    """Does a graph of Dynamo's write a tensor with one place for several elements, or write at all
    and see what lies around a tensor, by `as_strided`?
    """
    nodes = module.graph.nodes
    written = [x for node in nodes for x in _written(node)]
    through = [x for node in nodes for x in _written_through(node)]
    return any(not _is_plain(x) for x in (*written, *through)) or bool(
        written and any(map(_looks_around, nodes))
    )


def writes_what_may_be_a_copy(module: GraphModule) -> bool:
    """Does a graph of Dynamo's that is trained write what `contiguous()` or the like gave of a
    tensor with gaps that it has written before?

    AOTAutograd takes what an in-place operation gives to lie without the gaps, where `contiguous()`
    copies nothing: the write would be seen in the argument too (so with PyTorch's own backends).
    """
    nodes = [*module.graph.nodes]
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in _held(nodes)):
        return False
    written: set[int] = set()  # memory, so far
    suspects: set[Node] = set()
    for node in nodes:
        targets = _written(node)
        if targets and suspects.intersection(_origins(node)):
            return True
        written.update(map(_memory, targets))
        if _name(node) in _MAY_COPY:
            (x,) = _held([node.args[0]]) or (None,)
            if x is not None and _has_gaps(x) and _memory(x) in written:
                suspects.add(node)
    return False


_MAY_COPY = frozenset(("contiguous", "reshape", "reshape_as", "flatten", "ravel", "to"))


def _origins(node: Node) -> Iterator[Node]:
    """The calls that made what a call takes first, the last one first."""
    while node.args and isinstance(node.args[0], Node):
        node = node.args[0]
        if node.args:
            yield node


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata


def _has_gaps(x: torch.Tensor) -> bool:
    return memory_order(x.shape, x.stride()) is None


def _written(node: Node) -> list[torch.Tensor]:
    name = _name(node)
    is_write = name.endswith("_") and not name.endswith("__")
    if not is_write and name not in _WRITES and not node.kwargs.get("inplace"):
        return []
    return _held([*node.args[:1], node.kwargs.get("input"), node.kwargs.get("out")])


def _written_through(node: Node) -> list[torch.Tensor]:
    """The views, in the same memory, through which a call writes."""
    memories = {_memory(x) for x in _written(node)}
    origins = _held([*_origins(node)]) if memories else []
    return [x for x in origins if _memory(x) in memories]


def _looks_around(node: Node) -> bool:
    if _name(node) != "as_strided":
        return False
    (x,), (y,) = _held([node.args[0]]), _held([node])
    if not _is_fixed(y) or _has_gaps(x):
        return True  # what lies in its gaps is around it too
    (start, end), (first, last) = reach(x), reach(y)
    return bool(first < start or last > end)


def _name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _held(nodes: Sequence[Any]) -> list[torch.Tensor]:
    examples = [node.meta.get("example_value") for node in nodes if isinstance(node, Node)]
    return [x for x in examples if isinstance(x, torch.Tensor)]


_WRITES = frozenset(
    f"{prefix}{name}{suffix}"
    for name in "setitem iadd isub imul itruediv ifloordiv imod ipow iand ior ixor".split()
    for prefix, suffix in (("", ""), ("__", "__"))
)


def separated(module: GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Examples for a graph of Dynamo's; tensors of one storage are replaced by such, without data,
    that have a storage each.
    """
    nodes = module.graph.find_nodes(op="placeholder")
    held = [node.meta.get("example_value") for node in nodes]
    if len(held) != len(inputs):  # of lists
        return list(inputs)
    counts = Counter(_memory(x) for x in held if isinstance(x, FakeTensor))
    return [
        _moved(x) if isinstance(x, FakeTensor) and counts[_memory(x)] > 1 else passed
        for x, passed in zip(held, inputs, strict=True)
    ]


def _moved(x: FakeTensor) -> torch.Tensor:
    """A tensor of the same strides; of one that autograd computed, one that it computed too."""
    if isinstance(x, torch.nn.Parameter) or x.layout is not torch.strided or x.numel() == 0:
        return x
    with x.fake_mode, torch.enable_grad():
        alone = _laid_as(x)
        if x.requires_grad:
            alone.requires_grad_()
            alone = alone if x.is_leaf else _laid_as(x).copy_(alone)
    return alone


def _laid_as(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)


def falling_back(
    compiled: Call, module: GraphModule, inputs: Sequence[Any], writes: Writes, *, falls_back: bool
) -> Call:
    """`compiled` for arguments that lie apart, `module` for others, or an UnsupportedError."""
    places = Places(inputs, writes)
    if places.are_always_apart:
        return compiled
    by_operators: Call = module.forward if falls_back else _refuse

    def call(*args: Any) -> Any:
        return compiled(*args) if places.are_apart(args) else by_operators(*args)

    return call


def left_to_eager(module: GraphModule, reason: str, *, falls_back: bool) -> Call:
    """The graph as PyTorch runs it, with a warning, or an UnsupportedError."""
    if not falls_back:
        raise UnsupportedError(reason)
    warnings.warn(f"luminal: PyTorch runs {reason}", stacklevel=2)
    return module.forward


def _refuse(*_: Any) -> Any:
    raise UnsupportedError("arguments lie over each other, and one of them is written")


class Places:
    """Where a call's tensors lie, if that says whether a program is right for them."""

    __slots__ = ("_are_fixed", "_seen", "_tensors", "_whole", "_written", "are_always_apart")

    def __init__(self, inputs: Sequence[Any], writes: Writes) -> None:
        tensors = {k: x for k, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
        self._tensors = tuple(tensors)
        self._written = frozenset(writes.written & tensors.keys())
        self._whole = frozenset(writes.by_offset & tensors.keys())
        self._are_fixed = not self._whole and all(map(_is_fixed, tensors.values()))
        self.are_always_apart = not self._whole and (
            not self._written
            or (self._are_fixed and len(tensors) == 1 and all(map(_is_plain, tensors.values())))
        )
        self._seen: list[Any] | None = None

    def are_apart(self, args: Sequence[Any]) -> bool:
        """Does every tensor that is written lie apart from all others, and its own elements too?"""
        seen: list[Any]
        if self._are_fixed:  # Dynamo's guards have their sizes and strides
            seen = [args[k].data_ptr() for k in self._tensors]
        else:
            tensors = (args[k] for k in self._tensors)
            seen = [(x.data_ptr(), x.shape, x.stride(), x.storage_offset()) for x in tensors]
        # Training gives the same tensors in each step: one comparison of addresses instead of a
        # look at all pairs.
        if seen == self._seen:
            return True
        is_apart = self._look(args)
        if is_apart:
            self._seen = seen
        return is_apart

    def _look(self, args: Sequence[Any]) -> bool:
        """Looks whether arguments are apart that are not those of the call before."""
        if any(args[k].storage_offset() or not args[k].is_contiguous() for k in self._whole):
            return False
        if not all(_is_plain(args[k]) for k in self._written):
            return False
        # A sweep over the starts finds overlaps in n log n; only those that meet one that is
        # written are looked at closer.
        spans = sorted((*span(args[k]), k) for k in self._tensors if args[k].numel())
        end = end_of_written = 0  # behind the last one so far
        for number, (start, stop, k) in enumerate(spans):
            if start < end_of_written or (start < end and k in self._written):
                before = [j for _, last, j in spans[:number] if last > start]
                if any(self._written & {j, k} and _overlap(args[j], args[k]) for j in before):
                    return False
            end = max(end, stop)
            if k in self._written:
                end_of_written = max(end_of_written, stop)
        return True


def span(x: torch.Tensor) -> tuple[int, int]:
    """The addresses between which a tensor lies."""
    if x.numel() == 0:
        return 0, 0
    start, end = reach(x)
    return x.data_ptr(), x.data_ptr() + (end - start) * x.itemsize


def reach(x: torch.Tensor) -> tuple[int, int]:
    """The elements of its storage between which a tensor lies."""
    start = int(x.storage_offset())
    far = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True) if n)
    return start, start + far + 1


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two arrays whose spans overlap could share an element."""
    if a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr() or a.dtype is not b.dtype:
        return True
    return not any(_are_columns_apart(a, b, pitch) for pitch in {*_steps(a), *_steps(b)})


def _are_columns_apart(a: torch.Tensor, b: torch.Tensor, pitch: int) -> bool:
    """Are two tensors, seen as rows of so many elements, in columns that no row has in common?

    PyTorch's own test looks at fewer elements than there are, where columns are sliced.
    """
    widths = [
        sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True) if step % pitch)
        for x in (a, b)
    ]
    ahead = (b.storage_offset() - a.storage_offset()) % pitch
    return widths[0] < ahead and widths[1] < pitch - ahead


def _steps(x: torch.Tensor) -> list[int]:
    """The strides of what is more than one element along them."""
    return [step for n, step in zip(x.shape, x.stride(), strict=True) if n > 1 and step > 0]


def _is_plain(x: torch.Tensor) -> bool:
    return has_places(x.stride(), x.shape)


def _is_fixed(x: torch.Tensor) -> bool:
    return all(isinstance(n, int) for n in (*x.shape, *x.stride()))
