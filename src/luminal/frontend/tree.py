"""Trees of tuples, lists and dicts with values at their leaves (pytrees)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from luminal.records import dataclass


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree without its leaves: the kind of container and its parts. `None` has no leaves."""

    kind: type | None  # None: a leaf
    keys: tuple[Any, ...] = ()
    parts: tuple[Tree, ...] = ()

    def build(self, leaves: Sequence[Any]) -> Any:
        """The tree with these leaves, in order."""
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(leaves)
        if self.kind is type(None):
            return None
        built = [part._build(leaves) for part in self.parts]
        if self.kind is dict:
            return dict(zip(self.keys, built, strict=True))
        if hasattr(self.kind, "_fields"):  # a NamedTuple
            return self.kind(*built)
        return self.kind(built)

    def paths(self, prefix: str = "") -> list[str]:
        """Each leaf's place, as one writes it behind the tree: `[0]['h']`."""
        if self.kind is None:
            return [prefix]
        pairs = zip(self.keys, self.parts, strict=True)
        return [path for key, part in pairs for path in part.paths(f"{prefix}[{key!r}]")]


def _no_leaf(part: Any) -> bool:
    return False


def flatten(tree: Any, is_leaf: Callable[[Any], bool] = _no_leaf) -> tuple[list[Any], Tree]:
    """The leaves from left to right, and the shape that builds the tree again.

    `is_leaf`: containers that are taken as leaves.
    """
    if tree is None:
        return [], Tree(type(None))
    if is_leaf(tree):
        return [tree], Tree(None)
    if isinstance(tree, dict):
        keys: tuple[Any, ...] = tuple(tree)
        children = list(tree.values())
    elif isinstance(tree, tuple | list):
        keys, children = tuple(range(len(tree))), list(tree)
    else:
        return [tree], Tree(None)
    flat = [flatten(child, is_leaf) for child in children]
    kind = dict if isinstance(tree, dict) else type(tree)
    return [leaf for part, _ in flat for leaf in part], Tree(kind, keys, tuple(s for _, s in flat))
