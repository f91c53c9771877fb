"""Random programs for many ranks: a mesh, and how leaves and values in the middle lie on it.

A program is one of `tests.fuzz.programs`, whose extents mostly divide. Marks in the middle are
steps of it; how leaves lie is kept by their seeds, so that a program can be shrunk. One in three is
trained: every Parameter that the outputs depend on gets a step of descent with momentum.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import luminal as lm
from luminal.distribute.mesh import Mesh, Spec
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import Body, ShardAttrs
from luminal.hlir.graph import Builder, Graph
from luminal.memory.state import Assignable, State
from luminal.shape import view as views
from luminal.shape.expression import const
from tests.distributed.directed import inner
from tests.fuzz.programs.form import Dim, Extent, Leaf, Program
from tests.fuzz.programs.grown import STEPS, grow, outputs_of
from tests.fuzz.programs.growth import FLOATS, Growth, Style
from tests.fuzz.programs.record import Recording

MESHES = (
    *(Mesh((2,), ("a",)), Mesh((4,), ("a",)), Mesh((2, 2), ("a", "b")), Mesh((8,), ("a",))),
    *(Mesh((3,), ("a",)), Mesh((2, 4), ("a", "b")), Mesh((2, 2, 2), ("a", "b", "c"))),
)
EXTENTS = (2, 4, 4, 6, 8, 8, 12, 16, 16, 24)
STYLE = Style(runs=1, wild=0.03, large=0.0, max_points=1 << 13)


@dataclass(frozen=True)
class Setting:
    """Where a program runs: the mesh, how leaves lie, by their seeds, and who else is there."""

    mesh: Mesh
    leaves: Mapping[int, Spec]
    is_trained: bool = False
    momentum: Mapping[int, Spec] = field(default_factory=dict)
    order: str = "tree"
    small: int = 4096  # bytes up to which all parts are sent to all
    by_marks: bool = False  # inputs lie as a mark behind them says, not as distribution is told


@dataclass(frozen=True)
class Case:
    """A recorded program: its graph, and what distribution is told."""

    recorded: lm.Graph
    graph: Graph
    dims: dict[str, int]
    arrays: dict[str, Any]
    inputs: dict[str, Spec] | None
    states: dict[Assignable, Spec]


def sharded(x: Tensor, spec: Spec) -> Tensor:
    """The value, which lies so from here on."""
    return x.graph.wrap(x.graph.builder.make("Shard", [x.value], ShardAttrs(spec)).value)


def doubled(*args: Any) -> None:
    """What a hand-written kernel does."""
    args[-1][...] = args[0] * 2 + args[0].mean()


def looped(x: Tensor, *held: Tensor) -> tuple[Tensor, Tensor]:
    """A Loop over States, which adds them to what it carries: the sum, and what each trip has
    assigned to its State, turned around. What Python records has no such Loops.
    """
    inner, outer, type_ = Builder(), x.graph.builder, x.value.type
    sum_, one = (inner.input(f"arg{k}", *type_) for k in range(2))
    total = inner.apply("Add", sum_, one)
    new = inner.view(inner.apply("Mul", total, one), views.flip(type_.shape, 0))
    body = Body((sum_.node, one.node), (total, new))
    states = tuple(tensor.state for tensor in held)
    streams = [[tensor.value for tensor in held]]
    start = x.detach().value  # no derivative goes through a Loop that Python does not record
    results = outer.loop(const(len(held)), body, [start], streams, [], (states,))
    return x.graph.wrap(results[0]), x.graph.wrap(results[1])


class Ranked(Growth):
    """A growth of values that mostly can be cut."""

    mesh: Mesh = MESHES[0]

    def _dims(self) -> tuple[Dim, ...]:
        if self.rng.random() < 0.25:
            values = (9, 12, 24) if self.mesh.size == 3 else (8, 16, 24)
            return (Dim("s", 8, 64, (self.rng.choice(values),)),)
        return ()

    def _palette(self) -> list[Extent]:
        rng = self.rng
        sizes = (3, 6, 9, 12) if self.mesh.shape[0] == 3 else EXTENTS
        extents: list[Extent] = [rng.choice(sizes) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        if rng.random() < 0.2:
            extents.append(1)
        if rng.random() < 0.15:
            extents.append(rng.choice((3, 5, 7)))
        return extents + [dim.name for dim in self.dims] * 2


RAGGED = 0.25
"""How often an axis that does not divide a dimension cuts it all the same."""


def spec_for(rng: random.Random, mesh: Mesh, shape: Sequence[Extent], share: float = 0.7) -> Spec:
    """A drawn spec that mostly divides the shape; a dim is taken to divide."""
    names: list[list[str]] = [[] for _ in shape]
    left = [n if isinstance(n, int) else mesh.size * 3 for n in shape]
    if not any(n == "s" or isinstance(n, int) for n in shape):
        return tuple(map(tuple, names))
    for axis in rng.sample(mesh.names, len(mesh.names)):
        ranks, is_ragged = mesh.ranks(axis), rng.random() < RAGGED
        fits = [
            k
            for k, n in enumerate(left)
            if (n and n % ranks == 0 and (isinstance(shape[k], int) or shape[k] == "s"))
            or (is_ragged and isinstance(shape[k], int))
        ]
        if fits and rng.random() < share:
            k = rng.choice(fits)
            names[k].append(axis)
            left[k] = -(-left[k] // ranks)
    return tuple(map(tuple, names))


def marked(g: Growth) -> None:
    """A value that lies in a certain way from here on."""
    assert isinstance(g, Ranked)
    x = g.pick((*FLOATS, "float32", "float32", "int32", "int64", "bool"))
    spec = spec_for(g.rng, g.mesh, x.shape)
    g.add(f"sharded(_0, {spec!r})", x, torch="_0")


def by_hand(g: Growth) -> None:
    """A kernel that nothing is known of, which sees all of its operand."""
    x = g.static(("float32",), 1, 2)
    if not x.points:
        g.reject()
    g.add("doubled(_0)", x, torch="_0 * 2 + _0.mean()")


def again(g: Growth) -> None:
    """What a derivative computes again."""
    x = g.pick(("float32",), 1, 2, 3)
    g.add("lm.checkpoint(lambda x: (x.tanh() * x).exp() * 0.25)(_0)", x,
          torch="(_0.tanh() * _0).exp() * 0.25")  # fmt: skip


def heads(g: Growth) -> None:
    """A dimension taken apart, its parts moved, turned by halves and put together again."""
    x = g.pick(("float32", "float32", "float64"), 2, 3)
    n = x.shape[-1]
    if not isinstance(n, int) or n % 4 or not n:
        g.reject()
    y = g.add(f"_0.unflatten(-1, ({n // 4}, 4)).transpose(-2, -3)", x)
    if g.rng.random() < 0.6:
        y = g.add("lm.cat([-_0[..., 2:], _0[..., :2]], -1) * 0.5 + _0", y)
    if g.rng.random() < 0.5:
        y = g.add("(_0 @ _1.mT * 0.5).softmax(-1) @ _1", y, g.like(y.shape, y.dtype))
    g.add("_0.transpose(-2, -3).flatten(-2)", y)


def embedded(g: Growth) -> None:
    """Rows of a table by integers, whose gradient is a Scatter."""
    n, width = g.rng.choice((6, 8, 12, 16)), g.extent()
    if not isinstance(width, int):
        g.reject()
    table = g.like((n, width), "float32")
    at = g.leaf(g.shape(1, 2), "int64", f"below {n}")
    g.add("F.embedding(_0, _1)", at, table, torch="_1[_0]")


def entropy(g: Growth) -> None:
    """The loss of classes, whose rows are picked by integers."""
    x = g.static(("float32",), 2)
    rows, n = x.shape
    if not rows or not n:
        g.reject()
    at = g.leaf((rows,), "int64", f"below {n}")
    g.add("F.cross_entropy(_0, _1)", x, at)


def summed(g: Growth) -> None:
    """Sums that meet after one dimension or several have been summed."""
    x = g.pick(("float32", "int32", "int64"), 2, 3)
    y = g.like(x.shape, x.dtype)
    k = g.axis(x)
    keep = g.rng.choice(("", ", keepdim=True"))
    kinds = (f"_0.sum({k}{keep}) + _1.sum({k}{keep})", f"(_0.sum({k}{keep}) * 3).sum(0{keep})")
    kinds += (f"_0.sum({k}, keepdim=True) + _1", f"lm.maximum(_0.amax({k}), _1.amax({k}))")
    kinds += (f"_0.amax({k}, keepdim=True) - _1", f"(_0.sum({k}) - _1.sum({k})).amax(0)")
    g.add(g.rng.choice(kinds), x, y)


RANKED: tuple[Callable[[Growth], None], ...] = (
    *(marked,) * 5,
    *(by_hand, again, heads, heads, embedded, embedded, entropy, summed, summed),
)
DRAWS = (*STEPS, *RANKED)


def drawn(seed: int) -> tuple[Program, Setting]:
    """The program of a seed, and where it runs."""
    rng = random.Random(f"ranks {seed}")
    mesh = rng.choice(MESHES[:4] * 3 + MESHES[4:])
    kind = type("_Ranked", (Ranked,), {"mesh": mesh})
    g = kind(rng, STYLE)
    g.recording.names |= NAMES
    kinds = list(dict.fromkeys(DRAWS))
    chosen = {*rng.sample(kinds, rng.randint(4, len(kinds))), marked}
    if rng.random() < 0.3:
        chosen.discard(marked)
    grow(g, [step for step in DRAWS if step in chosen], rng.randint(3, 18))
    return g.program(outputs_of(g, 4)), setting_of(g)


def directed(seed: int, step: Callable[[Growth], None]) -> tuple[Program, Setting]:
    """A program of this step alone, where it leads to one, and where it runs."""
    rng = random.Random(f"ranks by {step.__name__} {seed}")
    meshes = [m for m in MESHES if step is not inner or len(m.names) > 1]
    g = type("_Ranked", (Ranked,), {"mesh": rng.choice(meshes)})(rng, STYLE)
    g.recording.names |= NAMES
    while not g.values:
        grow(g, [step], 1)
    return g.program(outputs_of(g, 4)), setting_of(g)


def setting_of(g: Ranked) -> Setting:
    """Where a grown program runs, and how its leaves lie."""
    rng, mesh = g.rng, g.mesh
    leaves, momentum = {}, {}
    share = rng.choice((0.6, 0.9, 1.0))
    for node in g.nodes:
        if isinstance(node, Leaf) and node.kind != "constant":
            if rng.random() < share:
                leaves[node.seed] = spec_for(rng, mesh, node.shape, 0.8)
            momentum[node.seed] = spec_for(rng, mesh, node.shape)
    trained = rng.random() < 0.35
    order = rng.choice(("tree", "tree", "engine"))
    small = rng.choice((8, 64, 4096))
    return Setting(mesh, leaves, trained, momentum, order, small, rng.random() < 0.3)


NAMES = {
    "sharded": sharded,
    "looped": looped,
    "doubled": lm.custom_kernel(
        "doubled",
        doubled,
        results=lambda x: (x.shape, x.dtype),
        vjp=lambda operands, results, cotangents: [cotangents[0] * 2 + cotangents[0].mean()],
    ),
}


def case_of(program: Program, setting: Setting) -> Case:
    """The program recorded, with its steps of descent."""
    made = Recording()
    made.names |= NAMES
    for dim in program.dims:
        made.dim(dim.name, dim.lo, dim.hi)
    for node in program.nodes:
        tensor = made.make(node)
        if setting.by_marks and isinstance(node, Leaf) and node.kind == "input":
            tensor = sharded(tensor, setting.leaves.get(node.seed, ((),) * len(node.shape)))
        made.tensors.append(tensor)
    cx = made.cx
    for k, number in enumerate(program.outputs):
        cx.output(made.tensors[number], f"out{k}")
    for leaf, value in program.assigns:
        cx.assign(made.tensors[leaf].state, made.tensors[value])
    env = program.env(0)
    owners: dict[Assignable, Leaf] = {**made.parameters, **made.states}
    states = {o: setting.leaves[l.seed] for o, l in owners.items() if l.seed in setting.leaves}
    if setting.is_trained:
        states |= descend(made, program, setting)
    inputs = {n: setting.leaves[l.seed] for n, l in made.inputs.items() if l.seed in setting.leaves}
    graph = cx.graph()
    used = {node.attrs.name for node in graph.by_op().get("Input", ())}
    arrays = {n: leaf.array(env, 0) for n, leaf in made.inputs.items() if n in used}
    told = None if setting.by_marks else {n: s for n, s in inputs.items() if n in used}
    return Case(cx, graph, env, arrays, told, states)


def descend(made: Recording, program: Program, setting: Setting) -> dict[Assignable, Spec]:
    """A step of descent with momentum for each Parameter that the outputs depend on."""
    outputs = [made.tensors[k] for k in program.outputs]
    outputs = [y.to(lm.float32) for y in outputs if y.dtype.is_float]
    if not outputs:
        return {}
    loss = sum(((y * 0.125).tanh().sum() for y in outputs[1:]), (outputs[0] * 0.125).tanh().sum())
    loss.backward()
    specs: dict[Assignable, Spec] = {}
    for parameter, leaf in made.parameters.items():
        gradient = made.cx.constant(parameter).grad
        if gradient is None:
            continue
        state = State(parameter.shape, parameter.dtype, name=f"{parameter.name}.momentum")
        specs[state] = setting.momentum.get(leaf.seed, ((),) * len(parameter.shape))
        momentum = made.cx.read(state) * 0.5 + gradient
        made.cx.assign(state, momentum)
        made.cx.assign(parameter, made.cx.constant(parameter) - momentum * 0.125)
    return specs
