"""What of the Metal Shading Language no header can say in C++: attributes of parameters."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.simt.signature import Signature

_KERNEL = re.compile(
    r"(?:\[\[max_total_threads_per_threadgroup\((\d+)\)\]\]\s*)?kernel\s+void\s+(\w+)\s*"
    r"\(((?:[^()]|\(\w*\))*)\)\s*\{"
)
_PARAMETER = re.compile(r"\s*(.*?)\s*(\w+)\s*\[\[\s*(\w+)\s*(?:\((\d+)\))?\s*\]\]\s*", re.DOTALL)
_BETWEEN_PARAMETERS = re.compile(r",(?![^<]*>)")
_ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\]")
_THREADGROUP_VARIABLE = re.compile(
    r"^(\s*(?:alignas\(\d+\)\s+)?)threadgroup\s+(?=[\w:<>, ]+?\s+\w+\s*(?:\[[^\]]*\]\s*)*;)", re.M
)
_VALUES = {
    "thread_position_in_threadgroup": "simt::At{simt::thread_index()}",
    "threadgroup_position_in_grid": "simt::At{simt::group_index()}",
    "threads_per_threadgroup": "simt::At{simt::group_size()}",
    "threadgroups_per_grid": "simt::At{simt::group_count()}",
    "thread_position_in_grid": "simt::thread_in_grid()",
    "threads_per_grid": "simt::threads_in_grid()",
    "thread_index_in_threadgroup": "simt::thread_in_group()",
    "thread_index_in_simdgroup": "simt::lane()",
    "simdgroup_index_in_threadgroup": "(simt::thread_in_group() / simt::warp_size())",
    "threads_per_simdgroup": "simt::warp_size()",
}


class _Parameter(NamedTuple):
    type: str
    attribute: str
    index: int

    @property
    def value(self) -> str:
        """C++ of the value that a launch gives it."""
        if self.attribute == "threadgroup":
            return f"({self.type})simt::dynamic_shared()"
        if self.attribute != "buffer":
            return _VALUES[self.attribute]
        held = self.type.removesuffix("&").strip()
        return f"*({held}*)arguments[{self.index}]"


def _parameter(text: str) -> _Parameter:
    match = _PARAMETER.fullmatch(text)
    assert match, f"a parameter of a Metal kernel without an attribute: {text.strip()!r}"
    type_, _, attribute, index = match.groups()
    return _Parameter(type_, attribute, int(index or 0))


def _signature(name: str, parameters: list[_Parameter], most_threads: int) -> Signature:
    values = ", ".join(parameter.value for parameter in parameters)
    buffers = sorted((p for p in parameters if p.attribute == "buffer"), key=lambda p: p.index)
    held = [parameter.type.removesuffix("&").strip() for parameter in buffers]
    sizes = ", ".join([*(f"sizeof({type_})" for type_ in held), "0"])
    wrapper = f"SIMT_METAL_KERNEL({name}, ({values}), {sizes})"
    return Signature(name, wrapper, most_threads)


def metal_kernels(text: str) -> list[Signature]:
    """The kernels; a buffer's index is its place among a launch's arguments."""
    return [
        _signature(
            name,
            [_parameter(each) for each in _BETWEEN_PARAMETERS.split(parameters)],
            int(threads or 1024),
        )
        for threads, name, parameters in _KERNEL.findall(text)
    ]


def rewritten_metal(text: str) -> str:
    """The text without attributes, its threadgroup variables told from pointers to such."""
    return _ATTRIBUTE.sub("", _THREADGROUP_VARIABLE.sub(r"\1SIMT_SHARED ", text))
