"""Jinja as chat templates need it, in a sandbox that bounds what they make.

A template comes with a model that others made, and `{{ "a" * 10**10 }}` would take all memory. So
whatever makes much of little is bounded: products, powers, sums, padding and the whole text.
So is time: each turn of a loop, call, filter and test is a step, and every few steps the clock is
read. Left are `join` and `replace`, and many values that are each below the bound.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from math import prod
from typing import Any, NoReturn

import jinja2
import jinja2.compiler
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

MOST = 1 << 24
"""Characters of a text, items of a list, bits of a number: above all contexts."""
SECONDS = 5.0
"""Of a processor, for a template and what it makes: a thousand times what a long chat takes."""
STEPS = 256
"""From one look at the clock to the next."""
SOURCE = 1 << 20
"""Characters of a template: a hundred times a long one."""
ITEM = 16
"""What an item of a list counts: each may cost as much as some characters."""
SQUARED = frozenset(("pprint", "striptags", "urlize", "wordwrap", "xmlattr"))
"""Filters that may take the square of a text's length."""
PADDING = frozenset(("batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "zfill"))
TURNS = "turns of a loop"
"""The filter of what loops go through, which no template can name."""
_SPECS = {"%": re.compile(r"%([^a-zA-Z%]*)"), "{": re.compile(r"\{[^{}]*:([^{}]*\{?)")}
_BY_ARGUMENT = {"%": "*", "{": "{"}
"""What a format is, and where it takes a width from its arguments."""


def refuse(message: str) -> NoReturn:
    """Raises what a template's `raise_exception` raises."""
    raise jinja2.TemplateError(message)


def bounded(size: float) -> None:
    """Refuses what would be larger than MOST."""
    if size > MOST:
        refuse(f"it makes something of more than {MOST} characters, items or bits")


def size(x: Any) -> int:
    """How large it is in memory, by those."""
    if isinstance(x, int):
        # Python's integers have no end, and a power of two large ones takes all memory.
        return x.bit_length()
    weight = 1 if isinstance(x, str) else ITEM
    return weight * len(x) if hasattr(x, "__len__") else 0


def padded(function: Callable[..., Any], first: Any = "") -> Callable[..., Any]:
    """The function, refused where `first` and all arguments may make a text as long as their
    product.
    """

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        arguments = (first, *args, *kwargs.values())
        # Before it is made: a text of 2^60 characters must be refused while it is still a number.
        bounded(prod(max(1, x if isinstance(x, int) else size(x)) for x in arguments))
        return function(*args, **kwargs)

    return checked


def squared(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, refused for a text so long that its square is too much work."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for argument in (*args, *kwargs.values()):
            bounded(size(argument) ** 2 / ITEM)
        return function(*args, **kwargs)

    return checked


class Budget(threading.local):
    """What the thread's template may still take. A new one begins with `begin`."""

    steps = 0
    end = math.inf

    def begin(self) -> None:
        """Counts steps and time anew, from now on."""
        self.steps, self.end = 0, time.thread_time() + SECONDS

    def step(self) -> None:
        """Notes a step, and refuses a template that takes too many."""
        self.steps += 1
        # The thread's own time: a server under load must not refuse a template for others' work.
        if self.steps % STEPS == 0 and time.thread_time() > self.end:
            refuse(f"it takes more than {SECONDS:g} s and {self.steps} steps; loops in loops?")

    def turns(self, items: Iterable[Any]) -> Iterator[Any]:
        """Gives the items on, and notes a step for each."""
        for item in items:
            self.step()
            yield item

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a step noted for each call."""

        @wraps(function)
        def counting(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return function(*args, **kwargs)

        return counting


def check_format(form: str, kind: str) -> None:
    """Refuses a format that pads by much, or by what it does not say itself."""
    specs = "|".join(_SPECS[kind].findall(form))
    if _BY_ARGUMENT[kind] in specs:
        refuse(f"the format {form[:80]!r} has a width that is an argument; write it as a number")
    bounded(len(form) + sum(map(int, re.findall(r"\d{1,9}", specs))))


class Code(jinja2.compiler.CodeGenerator):
    """`a ~ b` and turns of loops go by the environment, as other operators of the sandbox do."""

    def visit_Template(
        self, node: jinja2.nodes.Template, frame: jinja2.compiler.Frame | None = None
    ) -> None:
        """Writes the whole template, with every loop's items counted."""
        # A template comes with a model from anywhere. Jinja's sandbox keeps it from the machine but
        # not from an endless loop, so every turn counts steps and the clock is looked at now and
        # then.
        for loop in list(node.find_all(jinja2.nodes.For)):
            counted = jinja2.nodes.Filter(loop.iter, TURNS, [], [], None, None, lineno=loop.lineno)
            counted.set_environment(self.environment)
            loop.iter = counted
        super().visit_Template(node, frame)

    def visit_Concat(self, node: jinja2.nodes.Concat, frame: jinja2.compiler.Frame) -> None:
        """Writes a call of `joined` for `a ~ b`."""
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Template(jinja2.Template):
    """One whose whole text is bounded."""

    def render(self, *args: Any, **kwargs: Any) -> str:
        """The text of the template with these values."""
        pieces, count = [], 0
        budget: Budget = self.environment.budget  # type: ignore[attr-defined]
        budget.begin()
        for piece in self.generate(*args, **kwargs):
            count += len(piece)
            bounded(count)
            pieces.append(piece)
        return "".join(pieces)


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The environment of all templates: a sandbox with bounds."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))
    code_generator_class = Code
    template_class = Template

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", Generation],
        )
        self.filters["tojson"] = to_json
        self.filters |= {name: padded(self.filters[name]) for name in PADDING & {*self.filters}}
        self.filters |= {name: squared(self.filters[name]) for name in SQUARED & {*self.filters}}
        self.filters["format"] = self._format
        self.budget = budget = Budget()
        filters: dict[str, Any] = self.filters
        tests: dict[str, Any] = self.tests
        self.filters = {name: budget.counted(function) for name, function in filters.items()}
        self.filters[TURNS] = budget.turns
        self.tests = {name: budget.counted(function) for name, function in tests.items()}
        self.globals.update(raise_exception=refuse, strftime_now=_now)
        lipsum: Any = self.globals["lipsum"]
        self.globals["lipsum"] = padded(lipsum, " " * 1000)  # a paragraph

    def from_string(self, source: Any, *args: Any, **kwargs: Any) -> Any:
        """The template of a text; what is constant in it is computed now."""
        if len(source) > SOURCE:
            refuse(f"it has {len(source)} characters; at most {SOURCE}")
        self.budget.begin()
        return super().from_string(source, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The operator, where what comes of it is bounded."""
        match operator, left, right:
            # Python's integers have no end: a power has as many bits as its exponent is times the
            # base's, a product those of both factors.
            case "**", int(), int():
                bounded(size(left) * max(right, 0))
            case "*", int(), int():
                bounded(size(left) + size(right))
            case "*", _, int():
                bounded(size(left) * max(right, 0))
            case "*", int(), _:
                bounded(size(right) * max(left, 0))
            case "%", str(), _:
                check_format(left, "%")
            case _:
                bounded(size(left) + size(right))
        return super().call_binop(context, operator, left, right)

    def _format(self, form: Any, *args: Any, **named: Any) -> Any:
        return self.call_binop(None, "%", str(form), named or args)

    def joined(self, parts: Iterable[Any]) -> str:
        """The text of `a ~ b`, where it is not too long."""
        texts = [str(part) for part in parts]
        bounded(sum(map(len, texts)))
        return "".join(texts)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """What a template calls as `text.format`, with the format checked."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            check_format(value.__self__, "{")
        return wrapped

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call, such as of a text's method."""
        __self.budget.step()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str) and __obj.__name__ in PADDING:
            __obj = padded(__obj, owner)
        return super().call(__context, __obj, *args, **kwargs)


class Generation(jinja2.ext.Extension):
    """Lets templates mark what an assistant says, which matters to training only."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Any) -> Any:
        """What is between the marks."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def to_json(x: Any, indent: int | None = None, **options: Any) -> str:
    """JSON as transformers writes it: characters stay as they are, for no browser reads them."""
    try:
        if isinstance(indent, int):
            bounded(len(json.dumps(x)) * indent)
        return json.dumps(x, ensure_ascii=False, indent=indent, **options)
    except RecursionError:
        return refuse("lists or objects nest too deeply")


def _now(form: str) -> str:
    return datetime.now().strftime(form)
