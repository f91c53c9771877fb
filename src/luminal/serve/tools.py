"""The functions that a text may call, and the JSON schema that it obeys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from luminal.base.records import dataclass
from luminal.loaders.shown import shown
from luminal.serve.errors import refused
from luminal.serve.fields import Fields, object_of

MOST_SCHEMA = 1 << 16  # characters: what follows it takes time and memory by its length
MOST_TOOLS = 128
VALUES = ("const", "enum", "default", "examples")  # keywords of JSON Schema that hold no schema
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON schema of all of a text, as JSON; `parts`: those that the request's fields gave."""

    text: str
    parts: Mapping[str, str]

    @property
    def field(self) -> str:
        """What errors call it: the field that it is from, or what has all of them."""
        return next(iter(self.parts)) if len(self.parts) == 1 else "tools"


def tools_of(body: Fields, flat: bool = False) -> list[dict[str, Any]]:
    """Functions that the text may call, as chat templates read them. `flat`: each is an object with
    the function's fields, as in `/v1/responses`, else they are those of its field `function`.
    """
    tools = []
    for tool in body.objects("tools", MOST_TOOLS):
        tool.choice("type", ("function",), "function")
        function = tool
        if not flat:
            function = tool.object("function") or object_of(None, tool.name("function"))
        name, description = function.text("name"), function.text("description")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        if not name:
            raise refused(function.name("name"), "it is missing")
        # Only that it is an object: whether it is a schema, its compiler says in a process of its
        # own, under limits.
        object_of(parameters, function.name("parameters"))
        function.flag("strict")
        function.end()
        tool.end()
        about = {"name": name, "description": description or "", "parameters": parameters}
        tools.append({"type": "function", "function": about})
    return tools


def form_of(
    body: Fields, tools: list[dict[str, Any]], flat: bool = False
) -> tuple[Schema | None, tuple[str, ...]]:
    """The schema that all of the text obeys, if there is one, and the functions it may call.

    `flat`: fields lie as in `/v1/responses`, see `tools_of`.
    """
    names = tuple(tool["function"]["name"] for tool in tools)
    choice = body.get("tool_choice")
    field, schema = _text_format(body) if flat else ("response_format", _response_schema(body))
    if isinstance(choice, dict):
        names = (_chosen(object_of(choice, "tool_choice"), names, flat),)
    else:
        words = ("none", "auto", "required")
        choice = body.choice("tool_choice", words, "auto" if tools else "none")
    if choice in ("none", "auto"):
        return schema, names if choice == "auto" else ()
    if not tools:
        raise refused("tool_choice", "a call is required, but there are no tools")
    if schema is not None:
        raise refused(field, "all of the text is a required call; leave one of them out")
    return call_schema(tools, names, flat), names


def schema_of(field: str, schema: Any) -> Schema:
    """What a field asks all of a text to obey. Raises ApiError for one that is too large."""
    text = _text(field, schema)
    return Schema(text, {field: text})


def _text_format(body: Fields) -> tuple[str, Schema | None]:
    """What the field `text` of `/v1/responses` asks for."""
    text = body.object("text")
    form = None if text is None else text.object("format")
    field = "text.format"
    schema: Any = None
    if form is not None:
        form.needed("type")
        kind = form.choice("type", ("text", "json_object", "json_schema"), "")
        schema = {"type": "object"} if kind == "json_object" else None
        if kind == "json_schema":
            schema = form.get("schema")
            if not isinstance(schema, dict):
                raise refused("text.format.schema", f"{shown(schema)} is no schema")
            form.ignore("name", "description", "strict")
        form.end()
    if text is not None:
        text.ignore("verbosity")
        text.end()
    return field, None if schema is None else schema_of(field, schema)


def _text(field: str, schema: Any) -> str:
    """A schema as JSON; refuses one that would take long to follow."""
    text = json.dumps(schema)
    if len(text) > MOST_SCHEMA:
        raise refused(
            field,
            f"a schema of {len(text)} characters as JSON; at most {MOST_SCHEMA}: make it smaller",
        )
    return text


def _chosen(choice: Fields, names: Sequence[str], flat: bool) -> str:
    """The function that must be called."""
    choice.choice("type", ("function",), "function")
    function = choice
    if not flat:
        function = choice.object("function") or object_of(None, choice.name("function"))
    name = function.text("name")
    if name not in names:
        raise refused("tool_choice", f"{shown(name)} is none of the tools")
    function.end()
    choice.end()
    return str(name)


def call_schema(tools: list[dict[str, Any]], names: Sequence[str], flat: bool = False) -> Schema:
    """A call of one of these functions, as `{"name": ..., "arguments": {...}}`."""
    parts: dict[str, str] = {}
    calls: list[Any] = []
    # A choice among one needs no `anyOf`, and the references below must know at which place each
    # schema will lie.
    several = sum(tool["function"]["name"] in names for tool in tools) > 1
    for number, function in enumerate(tool["function"] for tool in tools):
        if function["name"] in names:
            field = f"tools[{number}]{'' if flat else '.function'}.parameters"
            parts[field] = _text(field, function["parameters"])
            place = (f"#/anyOf/{len(calls)}" if several else "#") + "/properties/arguments"
            arguments = _moved(function["parameters"], place)
            about = {"name": {"const": function["name"]}, "arguments": arguments}
            required = {"required": ["name", "arguments"], "additionalProperties": False}
            calls.append({"type": "object", "properties": about} | required)
    return Schema(_text("tools", {"anyOf": calls} if several else calls[0]), parts)


def _moved(schema: Any, place: str) -> Any:
    """A schema that lies at a place of a larger one: what it refers to in itself has moved."""
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, Any] = {}
    for key, value in schema.items():
        # Below these keys names are the user's: a property that is called "const" holds a schema
        # like any other.
        if key in NAMED and isinstance(value, dict):
            moved[key] = {name: _moved(inner, place) for name, inner in value.items()}
        else:
            moved[key] = value if key in VALUES else _moved(value, place)
    refers = schema.get("$ref")
    if isinstance(refers, str) and (refers == "#" or refers.startswith("#/")):
        moved["$ref"] = place + refers[1:]
    return moved


def _response_schema(body: Fields) -> Schema | None:
    """What `response_format` asks for."""
    form = body.object("response_format")
    if form is None:
        return None
    form.needed("type")
    kind = form.choice("type", ("text", "json_object", "json_schema"), "")
    schema: Any = {"type": "object"} if kind == "json_object" else None
    if kind == "json_schema":
        about = form.object("json_schema")
        schema = None if about is None else about.get("schema")
        if about is None or not isinstance(schema, dict):
            raise refused("response_format.json_schema.schema", f"{shown(schema)} is no schema")
        about.ignore("name", "description", "strict")
        about.end()
    form.end()
    if schema is None:
        return None
    return schema_of("response_format", schema)
