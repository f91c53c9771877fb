"""Object code into this process's memory: sections laid out, references resolved, pages protected.

Code of ours is position-independent and small: it refers to its own constants and functions by
distance, and to libc and libm by calls. So few kinds of relocation occur, and a process that runs
kept code only needs no LLVM to load it. What is outside may be too far for a distance: its address
stands in a slot, and a call goes to a jump through that slot. Tables for unwinding are left out:
nothing is thrown through code of ours. What differs between machines is a table each
(`relocations.py`).

ELF: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from luminal.backends.cpu import systems
from luminal.backends.cpu.relocations import ENTRY, MACHINES, Leads, Row, address
from luminal.backends.cpu.systems import PAGE
from luminal.base.errors import CompileError

KERNEL = "kernel"

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")

_SYMBOLS, _RELOCATIONS, _ZEROS = 2, 4, 8  # kinds of sections
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4  # their flags
_UNWINDING = ".eh_frame"


class LoadedCode:
    """Object code in this process. Its addresses hold while this object is referenced, and for ever
    once the interpreter ends: threads may still run in it.
    """

    __slots__ = ("__weakref__", "symbols")

    def __init__(self, start: int, size: int, symbols: dict[str, int]) -> None:
        self.symbols = symbols
        weakref.finalize(self, systems.unmap, start, size).atexit = False

    @property
    def address(self) -> int:
        """The address of `kernel`."""
        return self.symbols[KERNEL]


def link(object_bytes: bytes, symbols: tuple[str, ...], foreign: Mapping[str, int]) -> LoadedCode:
    """The code of an object file, with the addresses of `symbols`, which it defines.

    What it does not define has the address that `foreign` gives, or is looked for in the process.
    Raises CompileError where something is missing, or is of a kind that is not loaded here.
    """
    image = Image(object_bytes)
    constants = aligned(image.put_code(0), PAGE)
    variables = aligned(image.put_constants(constants), PAGE)
    size = aligned(image.put_variables(variables), PAGE)
    start = systems.mapped(size, constants)
    code = LoadedCode(start, size, {name: start + image.place_of(name) for name in symbols})
    data = bytearray(size)
    image.fill(data)
    for word in image.words():
        target = start + word.place if word.place is not None else _outside(word.name, foreign)
        address(data, word.at, target + word.addend)
    systems.fill(start, data, constants, variables)
    return code


def _outside(name: str, foreign: Mapping[str, int]) -> int:
    return foreign[name] if name in foreign else systems.address_of(name)


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int

    @property
    def access(self) -> int:
        return self.flags & (_WRITE | _EXECUTE)


class _Symbol(NamedTuple):
    """`section`: 0 for what the object does not define."""

    name: str
    section: int
    value: int


class _Reference(NamedTuple):
    """A reference to a symbol by its number, at a byte of a section."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class Word(NamedTuple):
    """Eight bytes of an image, `at` a place of it, that hold an address: of the image's `place`, or
    where that is None of the symbol `name`, which the object does not define; and `addend`.
    """

    at: int
    name: str
    place: int | None
    addend: int


# Nothing here is general: code that LLVM makes of our modules has few kinds of relocations.
# Anything else is refused, so an object that was damaged or made otherwise cannot be half linked.
class Image:
    """An object file as it is to lie in memory, perhaps among others.

    `put_code`, `put_constants` and `put_variables` each get where there is room and say where it
    ends; then `fill` writes all that does not depend on where the whole lies, and `words` tells
    which addresses are left.
    """

    def __init__(self, data: bytes) -> None:
        header = _HEADER.unpack_from(data.ljust(_HEADER.size, b"\0"))
        machine = MACHINES.get(header[2])
        if not header[0].startswith(_MAGIC) or machine is None:
            names = " or ".join(machine.name for machine in MACHINES.values())
            raise CompileError(f"linking: these bytes are no object file of {names}")
        self.machine = machine
        self._data = data
        start, size, count = header[6], header[11], header[12]
        rows = _SECTION.iter_unpack(data[start : start + size * count])
        self._sections = [_Section(*row) for row in rows]
        self._names = self._sections[header[13]].offset
        self._symbols = [*self._read_symbols()]
        self._references = [*self._read_references()]
        # What is outside, or asked for by its slot: symbols by number, each once.
        self._apart = list(
            dict.fromkeys(
                reference.symbol
                for reference in self._references
                if self._row(reference.kind, reference.symbol).leads is Leads.SLOT
                or self._symbols[reference.symbol].section == 0
            )
        )
        self._places: dict[int, int] = {}  # of sections by number
        self._jumps: dict[int, int] = {}  # of symbols by number
        self._slots: dict[int, int] = {}

    # Code, constants and variables on pages of their own, since a page has one protection: no page
    # is ever writable and executable.
    def put_code(self, end: int) -> int:
        """Places code, and jumps to what is outside."""
        jumps = aligned(self._put(_EXECUTE, end), ENTRY)
        self._jumps = {symbol: jumps + n * ENTRY for n, symbol in enumerate(self._apart)}
        return jumps + len(self._apart) * ENTRY

    def put_constants(self, end: int) -> int:
        """Places constants, and slots for addresses."""
        slots = aligned(self._put(0, end), ENTRY)
        self._slots = {symbol: slots + n * ENTRY for n, symbol in enumerate(self._apart)}
        return slots + len(self._apart) * ENTRY

    def put_variables(self, end: int) -> int:
        """Places what is written while the code runs."""
        return self._put(_WRITE, end)

    def place_of(self, name: str) -> int:
        """The place of a symbol that the object defines."""
        for number, symbol in enumerate(self._symbols):
            if symbol.name == name and (place := self._place(number)) is not None:
                return place
        raise CompileError(f"linking: the object defines no {name}")

    def fill(self, image: bytearray) -> None:
        """Writes code and data at their places, and the distances between them."""
        for number, place in self._places.items():
            section = self._sections[number]
            if section.kind != _ZEROS:
                image[place : place + section.size] = self._bytes(section)
        for symbol, jump in self._jumps.items():
            self.machine.jump(image, jump, self._slots[symbol])
        for section_number, offset, kind, symbol, addend in self._references:
            row = self._row(kind, symbol)
            if row.leads is not Leads.ADDRESS:
                target = self._target(symbol, kind, row.leads) + addend
                row.fill(image, self._places[section_number] + offset, target)

    def words(self) -> Iterator[Word]:
        """The addresses that stand in it."""
        for symbol, slot in self._slots.items():
            yield self._word(slot, symbol, 0)
        for section, offset, kind, symbol, addend in self._references:
            if self._row(kind, symbol).leads is Leads.ADDRESS:
                yield self._word(self._places[section] + offset, symbol, addend)

    def _word(self, at: int, number: int, addend: int) -> Word:
        name, section, _ = self._symbols[number]
        place = self._place(number)
        if place is None and section != 0:
            raise CompileError(f"linking: {name} is in section {section}, which is not loaded")
        return Word(at, name, place, addend)

    # --- reading

    def _bytes(self, section: _Section) -> bytes:
        return self._data[section.offset : section.offset + section.size]

    def _text(self, start: int) -> str:
        return self._data[start : self._data.index(0, start)].decode()

    def _read_symbols(self) -> Iterator[_Symbol]:
        for section in self._sections:
            if section.kind == _SYMBOLS:
                names = self._sections[section.link].offset
                for name, _, _, where, value, _ in _SYMBOL.iter_unpack(self._bytes(section)):
                    yield _Symbol(self._text(names + name), where, value)

    def _read_references(self) -> Iterator[_Reference]:
        for section in self._sections:
            if section.kind == _RELOCATIONS and self._is_loaded(self._sections[section.info]):
                for row in _RELOCATION.iter_unpack(self._bytes(section)):
                    yield _Reference(section.info, *row)

    def _is_loaded(self, section: _Section) -> bool:
        return bool(section.flags & _ALLOC) and self._text(self._names + section.name) != _UNWINDING

    # --- places

    def _put(self, access: int, end: int) -> int:
        """Places the sections that may be run, written or neither, from `end` on; their end."""
        for number, section in enumerate(self._sections):
            if self._is_loaded(section) and section.access == access:
                self._places[number] = aligned(end, section.alignment)
                end = self._places[number] + section.size
        return end

    def _place(self, number: int) -> int | None:
        """Where a symbol lies that the object defines."""
        _, section, value = self._symbols[number]
        return self._places[section] + value if section in self._places else None

    def _row(self, kind: int, number: int) -> Row:
        row = self.machine.rows.get(kind)
        if row is None:
            raise self._unsupported(kind, number)
        return row

    def _target(self, number: int, kind: int, leads: Leads) -> int:
        """What a distance leads to, as a place in the image."""
        if leads is Leads.SLOT:
            return self._slots[number]
        place = self._place(number)
        if place is not None:
            return place
        if leads is Leads.CALL and self._symbols[number].section == 0:
            return self._jumps[number]
        raise self._unsupported(kind, number)

    def _unsupported(self, kind: int, number: int) -> CompileError:
        name = self._symbols[number].name or "a section"
        return CompileError(f"linking: relocation {kind} to {name} is not supported")


def aligned(place: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-place // max(alignment, 1)) * max(alignment, 1)
