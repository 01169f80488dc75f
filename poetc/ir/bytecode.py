"""Reading MLIR bytecode: sections, attributes and types, operations.

The format is that of https://mlir.llvm.org/docs/BytecodeFormat. What a dialect writes of its own is
read by its `Decoders`. Attributes become what Python has for them where a value matters: strings,
booleans, `Dense` elements; everything else becomes the `Text` that MLIR has for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

MAGIC = b"ML\xefR"

_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _IR = range(5)
_PROPERTIES = 8
"""Kinds of sections."""

_VERSION = 6
"""The version of the format; MLIR and StableHLO write it since 2023."""

_MAX_DEPTH = 40
"""The deepest nesting of attributes in attributes, and of regions in regions; deeper is junk."""

_MAX_TEXT = 1 << 22
"""Characters of an attribute; more come from one that has others many times over."""

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Text:
    """An attribute as MLIR spells it."""

    text: str


@dataclass(frozen=True)
class Location:
    """Where an operation is from: `file:line`."""

    text: str


@dataclass(frozen=True)
class Dense:
    """Elements: their tensor type and their bytes, or those of one that all are equal to."""

    type: str
    data: bytes


@dataclass(eq=False)
class Value:
    """An argument of a block or a result of an operation."""

    type: str


@dataclass(eq=False)
class Op:
    """An operation. Its attributes and properties are decoded when they are asked for."""

    name: str
    source: str | None
    attributes: int | None
    properties: tuple[int, int]
    results: list[Value]
    operands: list[Value]
    regions: list[list[Block]] = field(default_factory=list)


@dataclass
class Block:
    """A block: its arguments, and operations."""

    arguments: list[Value]
    ops: list[Op]


class UnsupportedError(Exception):
    """The file has something that this reader does not know."""


class DamagedError(Exception):
    """The bytes are not what the format asks for."""


class Cursor:
    """Reads numbers and bytes one after the other."""

    def __init__(self, data: bytes, begin: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, begin, len(data) if end is None else end

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > self.end - self.at:
            raise DamagedError(f"{count} bytes at offset {self.at} are missing")
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def number(self) -> int:
        """A number without a sign; zeros at the end of its first byte say how many follow."""
        first = self.byte()
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        extra = (first & -first).bit_length() - 1
        return int.from_bytes(bytes([first]) + self.take(extra), "little") >> extra + 1

    def signed(self) -> int:
        """A number with a sign."""
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def count(self) -> int:
        """How many things follow, each at least a byte."""
        found = self.number()
        if found > self.end - self.at:
            raise DamagedError(
                f"{found} entries at offset {self.at} are more than the file has bytes"
            )
        return found

    def list(self, read: Callable[[], Any]) -> list[Any]:
        """Several things behind their number."""
        return [read() for _ in range(self.count())]

    def name(self) -> str:
        """Text up to a zero."""
        stop = self.data.find(b"\0", self.at, self.end)
        if stop < 0:
            raise DamagedError(f"the text at offset {self.at} has no end")
        found = self.data[self.at : stop]
        self.at = stop + 1
        return found.decode()

    def section(self) -> tuple[int, Cursor]:
        """The next section: its kind, and what reads it."""
        kind, length = self.byte(), self.number()
        if kind & 0x80:
            alignment = self.number()
            if alignment == 0 or alignment > 1 << 16:
                raise DamagedError(f"an alignment to {alignment} bytes")
            self.take(-self.at % alignment)
        begin = self.at
        self.take(length)
        return kind & 0x7F, Cursor(self.data, begin, self.at)


@dataclass(frozen=True)
class Decoders:
    """How a dialect writes its attributes and its types, by the number that each begins with."""

    attributes: Mapping[int, Callable[[Entries], Any]]
    types: Mapping[int, Callable[[Entries], str]]


@dataclass(frozen=True)
class _Entry:
    """Where an attribute or a type is."""

    dialect: str
    cursor: tuple[int, int]
    is_encoded: bool
    """In the way of its dialect; else it is text."""


class Entries(Cursor):
    """Reads one attribute or type, which may refer to others."""

    def __init__(self, reader: Reader, begin: int, end: int) -> None:
        super().__init__(reader.data, begin, end)
        self._reader = reader

    def attribute(self) -> Any:
        """The attribute that a number stands for."""
        return self._reader.attribute(self.number())

    def type(self) -> str:
        """The type that a number stands for."""
        return self._reader.type(self.number())

    def string(self) -> str:
        """The string that a number stands for."""
        return self._reader.string(self.number())

    def blob(self) -> bytes:
        """Bytes behind their number."""
        return self.take(self.number())

    def integer(self, bits: int) -> int:
        """A number of that many bits."""
        if bits > 64:
            raise UnsupportedError(f"numbers of {bits} bits")
        return self.byte() if bits <= 8 else self.signed()


class Reader:
    """Reads a file. Attributes and types are decoded when something asks for them."""

    def __init__(
        self, data: bytes, dialects: Mapping[str, Decoders], is_known: Callable[[str], bool]
    ) -> None:
        """`is_known` says which operations there may be, by their names."""
        self.data, self._dialects, self._is_known = data, dialects, is_known
        cursor = Cursor(data, len(MAGIC))
        version = cursor.number()
        if version != _VERSION:
            raise UnsupportedError(f"version {version} of the format (known is {_VERSION})")
        cursor.name()  # What wrote it.
        sections: dict[int, Cursor] = {}
        while cursor.at < cursor.end:
            kind, section = cursor.section()
            sections[kind] = section
        for kind in (_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _IR):
            if kind not in sections:
                raise DamagedError(f"it has no section {kind}")
        self._strings = _read_strings(sections[_STRINGS])
        self._dialect_names: list[str] = []
        self._names = self._read_dialects(sections[_DIALECTS])
        self._entries = self._read_offsets(sections[_OFFSETS], sections[_ATTRIBUTES])
        self._properties = _read_properties(sections.get(_PROPERTIES))
        self._decoded: dict[tuple[bool, int], Any] = {}
        self._depth = 0
        self._ir = sections[_IR]

    def _read_dialects(self, cursor: Cursor) -> list[str]:
        """The names of all operations."""
        for _ in range(cursor.count()):
            name = cursor.number()
            self._dialect_names.append(self.string(name >> 1))
            if name & 1:
                cursor.section()
        cursor.number()  # Of all names.
        names: list[str] = []
        while cursor.at < cursor.end:
            dialect = _at(self._dialect_names, cursor.number())
            for _ in range(cursor.count()):
                names.append(f"{dialect}.{self.string(cursor.number() >> 1)}")
        return names

    def _read_offsets(self, cursor: Cursor, entries: Cursor) -> tuple[list[_Entry], list[_Entry]]:
        """The places of attributes and of types."""
        counts = cursor.number(), cursor.number()
        found: list[_Entry] = []
        begin = entries.at
        while cursor.at < cursor.end:
            dialect = _at(self._dialect_names, cursor.number())
            for _ in range(cursor.count()):
                size = cursor.number()
                end = begin + (size >> 1)
                if end > entries.end:
                    raise DamagedError(f"the attribute at offset {begin} is too long")
                found.append(_Entry(dialect, (begin, end), bool(size & 1)))
                begin = end
        if len(found) != sum(counts):
            raise DamagedError(
                f"{sum(counts)} attributes and types are announced, {len(found)} there"
            )
        return found[: counts[0]], found[counts[0] :]

    # Attributes and types

    def string(self, number: int) -> str:
        """A string by its number."""
        return _at(self._strings, number)

    def attribute(self, number: int) -> Any:
        """An attribute by its number."""
        return self._decode(False, number)

    def type(self, number: int) -> str:
        """A type by its number, as MLIR spells it."""
        return self._decode(True, number)

    def _decode(self, is_type: bool, number: int) -> Any:
        key = (is_type, number)
        if key not in self._decoded:
            entry = _at(self._entries[is_type], number)
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise DamagedError(f"attributes are nested deeper than {_MAX_DEPTH}")
            found = self._read_entry(entry, is_type)
            self._depth -= 1
            if isinstance(found, Text) and len(found.text) > _MAX_TEXT:
                raise DamagedError(f"an attribute has more than {_MAX_TEXT} characters")
            self._decoded[key] = found
        return self._decoded[key]

    def _read_entry(self, entry: _Entry, is_type: bool) -> Any:
        cursor = Entries(self, *entry.cursor)
        if not entry.is_encoded:
            text = cursor.name()
            return text if is_type else Text(text)
        dialect = self._dialects.get(entry.dialect)
        if dialect is None:
            raise UnsupportedError(f"attributes or types of the dialect '{entry.dialect}'")
        code = cursor.number()
        decode = (dialect.types if is_type else dialect.attributes).get(code)
        if decode is None:
            what = "type" if is_type else "attribute"
            raise UnsupportedError(f"{what} {code} of the dialect '{entry.dialect}'")
        return decode(cursor)

    # Operations

    def module(self) -> Op:
        """The only operation at the top."""
        block = self._block(self._ir, _Scope(), 0)
        if len(block.ops) != 1:
            raise DamagedError(f"{len(block.ops)} operations at the top, expected a module")
        return block.ops[0]

    def _region(self, cursor: Cursor, scope: _Scope, depth: int) -> list[Block]:
        if depth > _MAX_DEPTH:
            raise DamagedError(f"regions are nested deeper than {_MAX_DEPTH}")
        count = cursor.count()
        if count == 0:
            return []
        begin, scope.following = scope.following, scope.end
        end, scope.end = scope.end, scope.end + cursor.number()
        blocks = [self._block(cursor, scope, depth) for _ in range(count)]
        scope.following, scope.end = begin, end
        return blocks

    def _block(self, cursor: Cursor, scope: _Scope, depth: int) -> Block:
        header = cursor.number()
        arguments: list[Value] = []
        if header & 1:
            for _ in range(cursor.count()):
                type = cursor.number()
                if type & 1:
                    cursor.number()  # Its location.
                arguments.append(scope.define(self.type(type >> 1)))
            if cursor.byte():
                _skip_orders(cursor, len(arguments))
        count = header >> 1
        if count > cursor.end - cursor.at:
            raise DamagedError(f"{count} operations at offset {cursor.at} are missing")
        return Block(arguments, [self._op(cursor, scope, depth) for _ in range(count)])

    def _op(self, cursor: Cursor, scope: _Scope, depth: int) -> Op:
        name, mask = _at(self._names, cursor.number()), cursor.byte()
        if not self._is_known(name):
            raise UnsupportedError(f"operations such as {name}")
        location = self.attribute(cursor.number())
        source = location.text if isinstance(location, Location) else None
        attributes = cursor.number() if mask & 0x01 else None
        properties = _at(self._properties, cursor.number()) if mask & 0x40 else (0, 0)
        types = cursor.list(lambda: self.type(cursor.number())) if mask & 0x02 else []
        operands = cursor.list(lambda: scope.value(cursor.number())) if mask & 0x04 else []
        if mask & 0x08:
            raise UnsupportedError(f"control flow between blocks ({name})")
        results = [scope.define(type) for type in types]
        if mask & 0x20:
            _skip_orders(cursor, len(results))
        op = Op(name, source, attributes, properties, results, operands)
        if mask & 0x10:
            header = cursor.number()
            if header & 1:
                scope, (_, cursor) = _Scope(), cursor.section()
            for _ in range(header >> 1):
                op.regions.append(self._region(cursor, scope, depth + 1))
        return op

    def attributes(self, op: Op) -> dict[str, Any]:
        """The attributes of an operation that are no properties."""
        found = {} if op.attributes is None else self.attribute(op.attributes)
        if not isinstance(found, dict):
            raise DamagedError(f"the attributes of {op.name} are no dictionary")
        return found

    def properties(self, op: Op, names: Sequence[str]) -> dict[str, Any] | None:
        """The properties of an operation by their names; None if it has others than these."""
        numbers = Cursor(self.data, *op.properties)
        found: list[Any] = []
        while numbers.at < numbers.end:
            found.append(self.attribute(numbers.number()))
        return dict(zip(names, found, strict=True)) if len(found) == len(names) else None


@dataclass
class _Scope:
    """The values that operations see: each region has a range of numbers of its own, behind those
    of the regions around it."""

    following: int = 0
    end: int = 0
    values: dict[int, Value] = field(default_factory=dict)

    def define(self, type: str) -> Value:
        """The next value."""
        value = Value(type)
        self.values[self.following] = value
        self.following += 1
        return value

    def value(self, number: int) -> Value:
        """The value with a number."""
        if number not in self.values or number >= self.end:
            raise DamagedError(f"value {number} is used before it is defined")
        return self.values[number]


def _at(things: Sequence[Thing], number: int) -> Thing:
    if number >= len(things):
        raise DamagedError(f"number {number} of a list of {len(things)}")
    return things[number]


def _skip_orders(cursor: Cursor, values: int) -> None:
    """Goes past the orders of the uses of some of so many values, which make no difference."""
    for _ in range(cursor.count() if values > 1 else 1):
        if values > 1:
            cursor.number()
        for _ in range(cursor.number() >> 1):
            cursor.number()


def _read_strings(cursor: Cursor) -> list[str]:
    sizes = cursor.list(cursor.number)
    if sum(sizes) != cursor.end - cursor.at or 0 in sizes:
        raise DamagedError("the strings do not have the lengths that they should have")
    return [cursor.take(size)[:-1].decode() for size in reversed(sizes)]


def _read_properties(cursor: Cursor | None) -> list[tuple[int, int]]:
    """Where the properties of operations are."""
    found: list[tuple[int, int]] = []
    for _ in range(0 if cursor is None else cursor.count()):
        assert cursor is not None
        size = cursor.number()
        cursor.take(size)
        found.append((cursor.at - size, cursor.at))
    return found
