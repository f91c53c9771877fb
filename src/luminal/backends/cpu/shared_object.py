"""Object code and data as one shared object, which any process on Linux loads with `dlopen`.

Our own linker has all that is hard: an object's distances are filled in before, and what is left
are whole addresses, each either the library's own start and a number (a relative relocation) or
that of a function of libc or libm, by its name. Weights lie in the file as they lie in memory, so
that loading reads none of them: pages come when they are used, and processes share them. Where they
have a file of their own, the library keeps their place in memory free, and who loads it maps that
file there: no address changes. What holds zeros takes memory and no file.

ELF: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html; numbers of relocations: the
psABIs of x86-64 and AArch64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from luminal.backends.cpu.linker import Image, aligned
from luminal.backends.cpu.relocations import AARCH64, X86_64

SYMBOL, VERSION = "luminal_model", 1
"""The one name that others see of a library, and the version of the record there."""
SEGMENT = 1 << 16
"""What segments are aligned to: the largest page of a system that we run on."""
DATA = 128
"""What data is aligned to, in bytes: as in memory of ours."""
LIBRARIES = ("libm.so.6", "libc.so.6")

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_PAIR = struct.Struct("<QQ")

_SECTIONS = (".text", ".dynsym", ".hash", ".rela.dyn", ".dynstr", ".dynamic")
_TEXT_SECTION = 5  # the number of .dynstr: the first section has none
_R, _RX, _RW = 4, 5, 6
_LOAD, _DYNAMIC, _STACK, _RELRO = 1, 2, 0x6474E551, 0x6474E552
_DYNAMIC_BYTES = 24 * _PAIR.size
_KINDS = {X86_64.number: (1, 8), AARCH64.number: (257, 1027)}  # address of a symbol, relative


class Code(NamedTuple):
    """An object file, and under which names others refer to its symbols."""

    data: bytes
    names: Mapping[str, str]  # the name in the object by the name outside


class Blob(NamedTuple):
    """Data under a name, which is only read; None: memory of zeros, to be written."""

    name: str
    size: int
    data: memoryview | None = None


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    start: int
    in_file: int
    in_memory: int


FIXED = "fixed.begin"
"""The name under which code finds where the data that is only read begins."""


def fixed_bytes(blobs: Sequence[Blob]) -> int:
    """The bytes from `FIXED` to the end of all data that is only read."""
    end = 0
    for blob in blobs:
        if blob.data is not None:
            end = aligned(end, DATA) + blob.size
    return end


def write_fixed(file: BinaryIO, blobs: Sequence[Blob]) -> None:
    """Writes the data that is only read as it lies in memory from `FIXED` on."""
    end = 0
    for blob in blobs:
        if blob.data is not None:
            file.write(b"\0" * (-end % DATA))
            end = aligned(end, DATA) + blob.size
            file.write(blob.data)


def write(file: BinaryIO, codes: Sequence[Code], blobs: Sequence[Blob], whole: bool = True) -> None:
    """Writes the library, of which others see SYMBOL only; without the data that is only read,
    whose place stays free, if it is not to be `whole`.

    Raises CompileError where code is of a kind that is not linked here.
    """
    layout = _Layout(codes, blobs, whole)
    layout.place()
    layout.write(file)


class _Layout:
    """Where everything lies: code, then what is written, then what is read only, then tables."""

    def __init__(self, codes: Sequence[Code], blobs: Sequence[Blob], whole: bool) -> None:
        self._blobs, self._whole = blobs, whole
        self._codes = [(Image(code.data), code.names) for code in codes]
        self._zeros = [blob for blob in blobs if blob.data is None]
        self._fixed = [blob for blob in blobs if blob.data is not None]
        self._where: dict[str, int] = {}  # of names

    def place(self) -> None:
        images = [image for image, _ in self._codes]
        end = self._code = SEGMENT
        for image in images:
            end = image.put_code(aligned(end, DATA))
        self._code_end = end
        self._data = self._dynamic = aligned(end, SEGMENT)
        end = self._data + _DYNAMIC_BYTES
        for image in images:
            end = image.put_constants(aligned(end, DATA))
        self._sealed_end = end = aligned(end, SEGMENT)
        for image in images:
            end = image.put_variables(aligned(end, DATA))
        for image, names in self._codes:
            self._where |= {name: image.place_of(inner) for name, inner in names.items()}
        self._data_end = end
        self._memory_end = self._put(self._zeros, end)
        self._weights = self._where[FIXED] = aligned(self._memory_end, SEGMENT)
        self._weights_end = self._put(self._fixed, self._weights)
        self._tables = aligned(self._weights_end, SEGMENT)

    def _put(self, blobs: Iterable[Blob], end: int) -> int:
        for blob in blobs:
            self._where[blob.name] = start = aligned(end, DATA)
            end = start + blob.size
        return end

    def write(self, file: BinaryIO) -> None:
        image = bytearray(self._data_end)
        for part, _ in self._codes:
            part.fill(image)
        tables = _Tables(self._where[SYMBOL])
        machine = self._codes[0][0].machine
        by_name, relative = _KINDS[machine.number]
        for part, _ in self._codes:
            for word in part.words():
                place = self._where.get(word.name) if word.place is None else word.place
                if place is None:
                    tables.relocate(word.at, by_name, word.addend, word.name)
                else:
                    tables.relocate(word.at, relative, place + word.addend)
        # Behind what takes memory only, places in the file are smaller than in memory.
        weights_at = aligned(self._data_end, SEGMENT)
        fixed = self._weights_end - self._weights if self._whole else 0
        tables_at = aligned(weights_at + fixed, SEGMENT)
        code = self._code, self._code_end - self._code
        data, dynamic, sections = tables.bytes(self._tables, tables_at, code, self._dynamic)
        image[self._dynamic : self._dynamic + len(dynamic)] = dynamic
        segments = [
            *self._loaded(weights_at, tables_at, len(data)),
            _Segment(_DYNAMIC, _RW, self._dynamic, self._dynamic, len(dynamic), len(dynamic)),
            _Segment(_RELRO, _R, self._data, self._data, *(self._sealed_end - self._data,) * 2),
            _Segment(_STACK, _RW, 0, 0, 0, 0),
        ]
        head = self._head(machine.number, segments, tables_at + len(data), len(sections))
        image[: len(head)] = head
        file.write(image)
        if fixed:
            file.write(b"\0" * (weights_at - file.tell()))
            write_fixed(file, self._blobs)
        file.write(b"\0" * (tables_at - file.tell()))
        file.write(data)
        for row in sections:
            file.write(_SECTION.pack(*row))

    def _loaded(self, weights: int, tables: int, tables_size: int) -> list[_Segment]:
        code = self._code_end - self._code
        in_file, in_memory = self._data_end - self._data, self._memory_end - self._data
        fixed = self._weights_end - self._weights
        rows = [
            _Segment(_LOAD, _R, 0, 0, SEGMENT, SEGMENT),
            _Segment(_LOAD, _RX, self._code, self._code, code, code),
            _Segment(_LOAD, _RW, self._data, self._data, in_file, in_memory),
            _Segment(_LOAD, _R, weights, self._weights, fixed if self._whole else 0, fixed),
            _Segment(_LOAD, _R, tables, self._tables, tables_size, tables_size),
        ]
        return [row for row in rows if row.in_memory]

    def _head(self, machine: int, segments: list[_Segment], sections: int, rows: int) -> bytes:
        magic = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        counts = _SEGMENT.size, len(segments), _SECTION.size, rows, _TEXT_SECTION
        head = _HEADER.pack(
            magic, 3, machine, 1, 0, _HEADER.size, sections, 0, _HEADER.size, *counts
        )
        for kind, flags, offset, start, in_file, in_memory in segments:
            alignment = SEGMENT if kind == _LOAD else 16
            head += _SEGMENT.pack(kind, flags, offset, start, start, in_file, in_memory, alignment)
        return head


class _Tables:
    """What the system's loader reads: symbols, their names, and relocations."""

    def __init__(self, record: int) -> None:
        self._text = bytearray(b"\0")
        self._words: dict[str, int] = {}
        self._libraries = [self.word(name) for name in LIBRARIES]
        self._symbols = [bytes(_SYMBOL.size)]
        self._symbols.append(_SYMBOL.pack(self.word(SYMBOL), 1 << 4 | 1, 0, 1, record, 0))
        self._outside: dict[str, int] = {}  # numbers of symbols that others define
        self._relocations = bytearray()

    def word(self, text: str) -> int:
        """Where a name stands among the names."""
        if text not in self._words:
            self._words[text] = len(self._text)
            self._text += text.encode() + b"\0"
        return self._words[text]

    def relocate(self, at: int, kind: int, addend: int, name: str = "") -> None:
        """Has an address written at a place: of a name, or of the library's start; and `addend`."""
        number = 0
        if name:
            number = self._outside.setdefault(name, len(self._symbols))
            if number == len(self._symbols):
                self._symbols.append(_SYMBOL.pack(self.word(name), 1 << 4, 0, 0, 0, 0))
        self._relocations += _RELOCATION.pack(at, number << 32 | kind, addend)

    def bytes(
        self, start: int, offset: int, code: tuple[int, int], dynamic: int
    ) -> tuple[bytes, bytes, list[tuple[int, ...]]]:
        """The tables, which lie at `start` in memory and `offset` in the file; the rows for
        `dynamic` that lead the system's loader to them; and those that lead tools there.
        """
        words = [self.word(name) for name in _SECTIONS]
        count = len(self._symbols)
        # One chain of all symbols: a library of ours is asked for one name.
        hashes = struct.pack(f"<{count + 3}I", 1, count, 1, 0, *range(2, count), 0)
        pieces = [b"".join(self._symbols), hashes, bytes(self._relocations), bytes(self._text)]
        data, places = bytearray(), []
        for piece in pieces:
            places.append(len(data))
            data += piece + b"\0" * (-len(piece) % 8)
        symbols, table, relocations, text = (start + place for place in places)
        rows = [(1, library) for library in self._libraries]
        rows += [(4, table), (5, text), (6, symbols), (10, len(pieces[3])), (11, _SYMBOL.size)]
        rows += [(7, relocations), (8, len(pieces[2])), (9, _RELOCATION.size)]
        rows += [(24, 0), (30, 8), (0x6FFFFFFB, 1), (0, 0)]  # bind all functions when it is loaded
        led = b"".join(_PAIR.pack(*row) for row in rows)
        sections: list[tuple[int, ...]] = [(0,) * 10]
        sections.append((words[0], 1, 6, code[0], code[0], code[1], 0, 0, 16, 0))
        kinds = (11, _TEXT_SECTION, 1, 24), (5, 2, 0, 4), (4, 2, 0, 24), (3, 0, 0, 0)
        for k, (kind, link, info, size) in enumerate(kinds):
            at, length = places[k], len(pieces[k])
            sections.append(
                (words[k + 1], kind, 2, start + at, offset + at, length, link, info, 8, size)
            )
        sections.append((words[5], 6, 3, dynamic, dynamic, len(led), _TEXT_SECTION, 0, 8, 16))
        return bytes(data), led, sections
