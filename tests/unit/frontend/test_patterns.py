"""Tensor.rearrange against NumPy, by drawn patterns, and what it refuses."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import luminal as lm


def drawn(
    rng: random.Random,
) -> tuple[np.ndarray[Any, Any], str, dict[str, int], np.ndarray[Any, Any]]:
    """An array, a pattern for it, the sizes that it needs, and the result."""
    sizes = {name: rng.randint(1, 4) for name in "abcdef"[: rng.randint(1, 6)]}
    rest = [rng.randint(1, 3) for _ in range(rng.randint(0, 2))]
    sides, orders = [], []
    for _ in range(2):
        names = rng.sample([*sizes], len(sizes))
        groups = []
        while names:
            count = min(rng.choice((1, 1, 1, 2, 3)), len(names))
            groups.append([names.pop() for _ in range(count)])
        if rng.random() < 0.3:
            groups.insert(rng.randint(0, len(groups)), [])
        at = rng.randint(0, len(groups))
        sides.append((groups, at))
        flat = [name for group in groups[:at] for name in group]
        orders.append([*flat, *range(len(rest)), *(n for g in groups[at:] for n in g)])
    extents: dict[str | int, int] = dict(enumerate(rest))
    extents.update({name: size for name, size in sizes.items()})  # noqa: C416
    apart = np.arange(math.prod(extents.values())).reshape([extents[n] for n in orders[0]])
    shapes = []
    for groups, at in sides:
        shape = [math.prod(sizes[name] for name in group) for group in groups]
        shapes.append([*shape[:at], *rest, *shape[at:]])
    moved = apart.transpose([orders[0].index(name) for name in orders[1]])
    texts = []
    for groups, at in sides:
        words = [("(" + " ".join(g) + ")") if len(g) > 1 else (g[0] if g else "1") for g in groups]
        texts.append(
            " ".join([*words[:at], *(["..."] if rest or rng.random() < 0.2 else []), *words[at:]])
        )
    if ("..." in texts[0]) != ("..." in texts[1]):
        texts = [text.replace("...", "") for text in texts]
    given = dict[str, int]()
    for group in sides[0][0]:
        left_out = rng.choice(group) if group else None
        given |= {name: sizes[name] for name in group if name != left_out or rng.random() < 0.2}
    return apart.reshape(shapes[0]), " -> ".join(texts), given, moved.reshape(shapes[1])


@pytest.mark.parametrize("seed", range(60))
def test_drawn_patterns(seed: int) -> None:
    x, pattern, sizes, expected = drawn(random.Random(seed))
    y = lm.tensor(x).rearrange(pattern, **sizes)
    assert y.shape == expected.shape, pattern
    np.testing.assert_array_equal(y.numpy(), expected, err_msg=pattern)


def rearranged(x: np.ndarray[Any, Any], left: list[str], right: list[list[str]]) -> Any:
    """By NumPy: `left` names each dim of x."""
    moved = x.transpose([left.index(name) for group in right for name in group])
    extent = dict(zip(left, x.shape, strict=True))
    return moved.reshape([math.prod(extent[name] for name in group) for group in right])


@pytest.mark.parametrize("seed", range(30))
def test_drawn_patterns_with_a_rest(seed: int) -> None:
    """The rest is drawn too: of no dims or several, by itself or joined, anywhere."""
    rng = np.random.default_rng(seed)
    names, rest = ["a", "b", "c"][: int(rng.integers(1, 4))], [f"r{k}" for k in range(seed % 4)]
    at = int(rng.integers(len(names) + 1))
    left = [*names[:at], *rest, *names[at:]]
    x = rng.normal(0, 1, rng.integers(1, 4, len(left))).astype(np.float32)
    order = list(rng.permutation([*names, "..."]))
    cuts = sorted(int(k) for k in rng.choice(len(order) + 1, 2))
    groups = [g for g in (order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[1] :]) if g]
    is_apart = rng.random() < 0.3  # "..." outside of parentheses: each dim by itself
    written, wanted = [], []
    for group in groups:
        if is_apart and "..." in group:
            written += group
            wanted += [[n] for name in group for n in (rest if name == "..." else [name])]
        else:
            written.append(f"({' '.join(group)})")
            wanted.append([n for name in group for n in (rest if name == "..." else [name])])
    pattern = f"{' '.join([*names[:at], '...', *names[at:]])} -> {' '.join(written)}"
    cx = lm.Graph()
    cx.constant(x).rearrange(pattern).output("y")
    expected = rearranged(x, left, wanted)
    found = lm.compile(cx, "reference")({})["y"]
    assert found.shape == expected.shape, pattern
    np.testing.assert_array_equal(found, expected, err_msg=pattern)


def test_dims_and_functions() -> None:
    cx = lm.Graph()
    x = cx.tensor(("n", 12), name="x")
    lm.rearrange(x, "n (h d) -> h (n d)", h=3).output("y")
    data = np.arange(60, dtype=np.float32).reshape(5, 12)
    found = lm.compile(cx)({"x": data})["y"]
    np.testing.assert_array_equal(found, data.reshape(5, 3, 4).transpose(1, 0, 2).reshape(3, 20))


@pytest.mark.parametrize(
    ("pattern", "sizes", "said"),
    [
        ("a b", {}, "has not one arrow"),
        ("a b -> a", {}, "has no 'b' on the right; both sides"),
        ("a b -> a b c", {}, "has no 'c' on the left"),
        ("a a -> a", {}, "has 'a' twice on the left"),
        ("a (b -> a b", {}, "has parentheses that do not pair"),
        ("a ((b) c) -> a b c", {}, "has parentheses that do not pair"),
        ("a (b ...) -> a b ...", {}, r"has \.\.\. in parentheses on the left.*name them"),
        ("a ... -> (... a) ...", {}, r"has '\.\.\.' twice on the right"),
        ("a & -> a", {}, "'&' is no name, 1, "),
        ("a b c -> a b c", {}, r"has 3 dims on the left, x: i64\[4, 6\] has 2"),
        ("a (b c) -> a b c", {}, r"of \(b c\) the sizes of b and c are not known"),
        ("a (b c) -> a b c", {"b": 4}, r"6 of x: i64\[4, 6\] does not divide by 4, of \(b c\)"),
        ("a b -> b a", {"b": 5}, r"b is 5, and x: i64\[4, 6\] has 6"),
        ("a (b c) -> a b c", {"b": -2}, "b is -2; a size is at least 0"),
        ("a b -> b a", {"k": 5}, "has no 'k', whose size is given"),
        ("a 1 -> a 1", {}, r"1 is 1, and x: i64\[4, 6\] has 6"),
    ],
)
def test_what_does_not_fit_is_said(pattern: str, sizes: dict[str, int], said: str) -> None:
    lm.reset()
    with pytest.raises(lm.ShapeError, match=said):
        lm.tensor(np.zeros((4, 6), np.int64), name="x").rearrange(pattern, **sizes)
