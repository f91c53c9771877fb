"""Nested tuples, lists, dicts and named tuples of leaves: taken apart and put together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any


def leaves(tree: Any) -> list[Any]:
    """The leaves in order; dicts in the order of their keys' insertion. None holds no leaf."""
    return [leaf for _, leaf in paths(tree)]


def paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf): the path is the keys and positions, joined by dots."""
    if isinstance(tree, dict):
        children = [(str(key), child) for key, child in tree.items()]
    elif isinstance(tree, tuple | list):
        children = [(str(k), child) for k, child in enumerate(tree)]
    elif tree is None:
        return
    else:
        yield prefix, tree
        return
    for key, child in children:
        yield from paths(child, f"{prefix}.{key}" if prefix else key)


def structure(tree: Any) -> Hashable:
    """Equal for trees that differ in their leaves only."""
    if isinstance(tree, dict):
        return (dict, tuple((key, structure(child)) for key, child in tree.items()))
    if isinstance(tree, tuple | list):
        return (type(tree), tuple(structure(child) for child in tree))
    return None if tree is None else "leaf"


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with `function` applied to each leaf, in the order of `leaves`."""
    if isinstance(tree, dict):
        return {key: map_leaves(function, child) for key, child in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, child) for child in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(map_leaves(function, child) for child in tree)
    return None if tree is None else function(tree)
