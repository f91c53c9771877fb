"""From the shapes a caller gives to the values of all dims, with every rule checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from luminal.base.dtypes import DType
from luminal.base.errors import DimError, GraphError, InputError, ShapeError
from luminal.base.lines import told
from luminal.base.records import dataclass
from luminal.hlir.attributes import Shape
from luminal.hlir.graph import Graph
from luminal.hlir.substitute import used_dims
from luminal.program.quantities import Quantities
from luminal.shape.expression import Expression, Symbol

Interval = tuple[int, int]
Dims = dict[str, int]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One Input of a graph, what a caller has to give; or an output likewise."""

    name: str
    shape: Shape
    dtype: DType

    @property
    def text(self) -> str:
        """The shape of the input as text, such as `(s, 64)`."""
        return f"({', '.join(map(str, self.shape))}{',' if len(self.shape) == 1 else ''})"


class Bound(NamedTuple):
    """The dims of a run, and the values of the Signature's quantities for them."""

    dims: Dims
    values: tuple[int, ...]


class Signature:
    """The inputs and dims of a graph, and the rules that a run's shapes and dims must meet.

    `intervals` narrows the graph's own; `coordinates` are dims that every run of this process has
    alike, those of its rank. A dim that is cut into `parts` stands for a rank's own part, and a
    caller names the whole. Raises GraphError if two inputs share a name.
    """

    def __init__(
        self,
        graph: Graph,
        intervals: Mapping[str, Interval] | None = None,
        coordinates: Mapping[str, int] | None = None,
        parts: Mapping[str, int] | None = None,
    ) -> None:
        self.inputs = tuple([InputSpec(*node.attrs) for node in graph.by_op().get("Input", ())])
        self.requirements = graph.requirements
        self._required_at = graph.required_at
        # A set has another order in each process, and the order here decides how dims are numbered.
        symbols = sorted(used_dims(graph), key=lambda symbol: symbol.name)
        self.intervals = {s.name: _interval(s) for s in symbols} | dict(intervals or {})
        self._symbols = symbols
        self.needed = tuple(symbol.name for symbol in symbols)
        self.declared = frozenset(dim.name for dim in graph.dims) | frozenset(self.needed)
        coordinates = coordinates or {}
        self._coordinates = {n: coordinates[n] for n in self.declared & coordinates.keys()}
        self._parts = dict(parts or {})
        self.quantities = Quantities(self.needed)
        add = self.quantities.add
        self._extents = [tuple(map(add, spec.shape)) for spec in self.inputs]
        self._conditions = tuple(map(add, self.requirements))
        names = [spec.name for spec in self.inputs]
        for name in names:
            if names.count(name) > 1:
                raise GraphError(f"{name}: two inputs have this name; rename one")

    def resolve(
        self,
        shapes: Sequence[tuple[int, ...]],
        named_dims: Mapping[Any, int],
        beside: Sequence[tuple[InputSpec, tuple[int, ...]]] = (),
    ) -> Bound:
        """The value of every dim, for one shape per input and the dims a caller names.

        `beside`: shapes of inputs that are not read (see `dim_sources`). Raises ShapeError or
        DimError that names the value, the rule and the fix.
        """
        # From the bare dims of shapes to those that one equation gives, and only then are all
        # extents checked: an error can so name the input that is at odds instead of the one that
        # came last.
        dims = self._given(named_dims)
        source = dict.fromkeys(dims, "dims")
        shaped_inputs = [*zip(self.inputs, shapes, strict=True), *beside]
        for spec, shape in shaped_inputs:
            _read_dims(spec, shape, dims, source)
        # Bare dims first; one that is left may stand alone in a sum or a product.
        if not all(name in dims for name in self.needed):
            _solve_dims(shaped_inputs, dims)
        for name in self.needed:
            if name not in dims:
                fix = f'pass dims={{"{name}": n}}'
                raise DimError(f"{name}: no input's shape gives this dim; {fix}")
            self._check_interval(name, dims[name])
        # All extents are checked, also those that gave a dim: two inputs may disagree.
        values = self.quantities.evaluate(dims)
        for spec, shape, numbers in zip(self.inputs, shapes, self._extents, strict=True):
            for position, (n, number) in enumerate(zip(shape, numbers, strict=True)):
                if n != values[number]:
                    raise ShapeError(misfit(spec, shape, position, dims))
        for spec, shape in beside:
            for position, extent in enumerate(spec.shape):
                is_known = all(symbol.name in dims for symbol in extent.symbols())
                if is_known and shape[position] != extent.evaluate(dims):
                    raise ShapeError(misfit(spec, shape, position, dims))
        for condition, number in zip(self.requirements, self._conditions, strict=True):
            if not values[number]:
                raise DimError(unmet(condition, dims) + told(self._required_at.get(condition)))
        return Bound(dims, values)

    def upper_ends(self, named_dims: Mapping[Any, int]) -> Dims:
        """The given dims, every other one at its upper end, lowered until the requirements hold.

        Raises DimError for a given dim that is unknown or outside of its interval.
        """
        fixed = self._given(named_dims)
        for name, value in fixed.items():
            if name in self.intervals:
                self._check_interval(name, value)
        return self.fitted({name: self.intervals[name][1] for name in self.needed} | fixed, fixed)

    def limits(self, ends: Mapping[Any, Any]) -> dict[Symbol, Interval]:
        """The least and greatest value of every dim, narrowed to `ends`: the greatest, or both.

        Raises DimError for a dim that is unknown, and for ends outside of its interval.
        """
        names = {key.name if isinstance(key, Symbol) else key: key for key in ends}
        self._given(dict.fromkeys(names, 0))
        limits = {}
        for symbol in self._symbols:
            lo, hi = self.intervals[symbol.name]
            wanted = ends[names[symbol.name]] if symbol.name in names else (lo, hi)
            least, most = wanted if isinstance(wanted, tuple | list) else (lo, wanted)
            for end in (least, most):
                check_int(symbol.name, end)
                self._check_interval(symbol.name, end)
            if least > most:
                raise DimError(f"{symbol.name}: {least}..{most} is empty; give least <= greatest")
            limits[symbol] = int(least), int(most)
        return limits

    def fitted(self, dims: Dims, fixed: Iterable[str]) -> Dims:
        """The dims, those that are not fixed halved until the requirements hold."""
        dims, fixed = dict(dims), frozenset(fixed)
        while broken := [c for c in self.requirements if not c.evaluate(dims)]:
            names = {symbol.name for symbol in broken[0].symbols()} - fixed
            free = [name for name in names if dims[name] > max(0, self.intervals[name][0])]
            if not free:
                break
            # The largest first, which loses the least of a run that is to be looked at near its
            # upper end; by name among equals, so that reports repeat.
            name = max(free, key=lambda name: (dims[name], name))
            dims[name] = max(self.intervals[name][0], dims[name] // 2)
        return dims

    def _check_interval(self, name: str, value: int) -> None:
        lo, hi = self.intervals[name]
        if not lo <= value <= hi:
            parts = self._parts.get(name, 1)  # the whole is what a user has declared
            cut = f" of multiples of {parts}: it is cut into {parts} parts, each {lo}..{hi}"
            raise DimError(
                f"{name}: {value * parts} is outside its interval {lo * parts}..{hi * parts}"
                f"{cut if parts > 1 else ''}"
            )

    def _given(self, named_dims: Mapping[Any, int]) -> Dims:
        dims: Dims = dict(self._coordinates)
        for key, value in named_dims.items():
            name = key.name if isinstance(key, Symbol) else key
            if name not in self.declared:
                names = ", ".join(sorted(self.declared)) or "none"
                raise DimError(f"{name}: no such dim; the dims are {names}")
            check_int(name, value)
            if name in self._coordinates and value != self._coordinates[name]:
                raise DimError(
                    f"{name}: {value}, and this rank's place is {self._coordinates[name]}; "
                    "leave it out"
                )
            dims[name], over = divmod(int(value), self._parts.get(name, 1))
            if over:
                raise DimError(
                    f"{name}: {value} is cut into {self._parts[name]} parts, which do not divide "
                    "it; give a multiple"
                )
        return dims


def check_int(name: str, value: Any) -> None:
    """Raises DimError for the value of a dim that is no int."""
    # True would pass for 1, and is mostly an argument in the wrong place. Integers of NumPy have
    # `__index__` and are welcome.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise DimError(f"{name}: {value!r} is not an int")


def _interval(symbol: Symbol) -> Interval:
    assert symbol.lo is not None
    assert symbol.hi is not None
    return symbol.lo, symbol.hi


def _read_dims(spec: InputSpec, shape: tuple[int, ...], dims: Dims, source: dict[str, str]) -> None:
    """Adds the dims that stand bare in the input's shape to `dims`; raises where two shapes
    disagree.
    """
    if len(shape) != len(spec.shape):
        raise ShapeError(f"{spec.name}: expected shape {spec.text}, got {shape}")
    for extent, n in zip(spec.shape, shape, strict=True):
        if not isinstance(extent, Symbol):
            continue
        earlier = dims.setdefault(extent.name, n)
        if earlier != n:
            first = source[extent.name]
            raise DimError(
                f"{extent.name}: {first} says {earlier}, {spec.name} of shape {shape} says {n}; "
                "all occurrences of a dim agree"
            )
        source.setdefault(extent.name, spec.name)


def _solve_dims(shaped_inputs: Iterable[tuple[InputSpec, tuple[int, ...]]], dims: Dims) -> None:
    """Adds the dims that stand alone in a sum or a product to `dims`: `s + 1` of 8 elements says 7.

    What does not come out whole is left to the check of each extent.
    """
    pairs = [pair for spec, shape in shaped_inputs for pair in zip(spec.shape, shape, strict=True)]
    while True:
        before = len(dims)
        for extent, n in pairs:
            unknown = [symbol for symbol in extent.symbols() if symbol.name not in dims]
            factor = factor_of(unknown, extent)
            if factor is not None and (step := factor.evaluate(dims)):
                name = unknown[0].name
                # The extent is linear in its one unknown, so what it is at 0 is all but the
                # unknown's own part.
                dims[name] = (n - extent.evaluate({**dims, name: 0})) // step
        if len(dims) == before:
            return


def dims_told(
    shaped_inputs: Sequence[tuple[InputSpec, tuple[int, ...]]], named_dims: Mapping[str, int]
) -> Dims:
    """`named_dims`, and the dims that shapes of inputs tell beside them. Raises ShapeError for
    another rank, and DimError where two of them disagree.
    """
    dims = dict(named_dims)
    source = dict.fromkeys(dims, "dims")
    for spec, shape in shaped_inputs:
        _read_dims(spec, shape, dims, source)
    _solve_dims(shaped_inputs, dims)
    return dims


def given_dims(shapes: Iterable[Shape]) -> frozenset[str]:
    """The names of the dims that values of these shapes say."""
    extents = [extent for shape in shapes for extent in shape]
    names: frozenset[str] = frozenset()
    while True:
        unknown = [[s for s in extent.symbols() if s.name not in names] for extent in extents]
        # To a fixed point: a dim that one extent gives may leave another extent with one unknown
        # only.
        pairs = zip(unknown, extents, strict=True)
        solved = {some[0].name for some, extent in pairs if factor_of(some, extent) is not None}
        if not solved:
            return names
        names |= solved


def factor_of(unknown: Sequence[Symbol], extent: Expression) -> Expression | None:
    """What the one unknown is multiplied by in an extent; None if there is no such number."""
    return extent.coefficient(unknown[0]) if len(unknown) == 1 else None


def misfit(spec: InputSpec, shape: tuple[int, ...], position: int, dims: Dims) -> str:
    """The text for a dimension of another length than the dims ask for."""
    extent = spec.shape[position]
    why = "" if extent.is_const else f"; {explained(extent, dims)}"
    return (
        f"{spec.name}: expected shape {spec.text}, got {shape}: "
        f"dimension {position} is {shape[position]}, not {extent.evaluate(dims)}{why}"
    )


def explained(expression: Expression, dims: Mapping[str, int]) -> str:
    """An Expression with its value and its dims: `past + s = 7 with past = 3, s = 4`."""
    names = sorted(symbol.name for symbol in expression.symbols())
    values = ", ".join(f"{name} = {dims[name]}" for name in names)
    return f"{expression} = {expression.evaluate(dims)}" + (f" with {values}" if values else "")


def unmet(condition: Expression, dims: Mapping[str, int]) -> str:
    """The text for a requirement that these dims break: both sides with their values."""
    if condition.op == "and":
        condition = next(part for part in condition.args if not part.evaluate(dims))
    if condition.op not in ("lt", "le", "eq", "ne"):
        return f"requirement {condition} does not hold: {explained(condition, dims)}"
    left, right = condition.args
    names = sorted(symbol.name for symbol in condition.symbols())
    values = ", ".join(f"{name} = {dims[name]}" for name in names)
    sides = f"the left side is {left.evaluate(dims)}, the right side {right.evaluate(dims)}"
    return f"requirement {condition} does not hold: {sides}, with {values}"


def missing_input(spec: InputSpec) -> InputError:
    """The error for an input that no call and no `set` has given."""
    return InputError(
        f"{spec.name}: no value yet; pass an array of shape {spec.text} as "
        f'exe({{"{spec.name}": array}}), or set it on the graph'
    )
