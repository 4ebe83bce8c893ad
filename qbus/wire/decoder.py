"""From declarations to decoders: one generated function for each message and version.

    decode(buf, pos, end) -> (message, pos)

Structs are read in line, in nested loops, because a call costs more than reading most structs.
Adjacent values of fixed width, with the length or count behind them, are one ``struct`` call. No
length is trusted: before anything is allocated, each length is checked against the remaining bytes,
and each count also against the number of items that a message may have.

The other form of the function is a generator, which yields after every ``STEP`` items: an event
loop reads a large message without standing still (:mod:`qbus.wire.stepped`).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from qbus.wire import primitives
from qbus.wire.declare import LENGTHS, Field, Scalar, Struct, fields
from qbus.wire.source import FEW, Source, big_endian, few, named

Decoder = Callable[[memoryview, int, int], tuple[Any, int]]

_TAKEN = {
    "string": "str(buf[pos:stop], 'utf-8')",
    "bytes": "bytes(buf[pos:stop])",
    "records": "buf[pos:stop]",
}


def compile_decoder(cls: type[Struct], version: int, *, stepped: bool = False) -> Any:
    """Compile the function that reads a message of ``version``, a :data:`Decoder`.

    ``stepped``: the generator that yields None between steps, and returns the same.

    The function raises WireError for a malformed message, or, where Python notices first,
    IndexError or ``struct.error`` for a truncated message and UnicodeDecodeError for a string that
    is not UTF-8.
    """
    writer = _Writer(version, flexible=version >= cls.first_flexible, stepped=stepped)
    return writer.write(cls).compile("decode", f"decode {cls.__name__} v{version}")


class _Writer:
    """Writes one decoder. A ``target`` is the variable or attribute that receives a value."""

    def __init__(self, version: int, *, flexible: bool, stepped: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._stepped = stepped
        self._run: list[tuple[str, str]] = []  # values of fixed width that are not read yet
        self._source = Source({**vars(primitives), "new": object.__new__})
        self._line = self._source.line
        self._block = self._source.block

    def write(self, cls: type[Struct]) -> Source:
        """Write the whole function."""
        with self._block("def decode(buf, pos, end)"):
            is_request = cls.__name__.endswith("Request")
            self._line(f"room = {'MAX_REQUEST_ITEMS' if is_request else 'MAX_ITEMS'}")
            if self._stepped:
                self._line("left = STEP")
            self._struct(cls, "message")
            self._flush()
            if self._stepped:  # a generator even where there is no array
                self._pause()
            self._line("return message, pos")
        return self._source

    def _struct(self, cls: type[Struct], target: str) -> None:
        self._line(f"{target} = new({self._source.bind(cls.__name__, cls)})")
        tagged = []
        for field in fields(cls):
            if self._version in field.versions and self._version not in field.tagged:
                self._field(field, f"{target}.{field.name}")
            else:
                self._default(field, target)
                if self._version in field.tagged:
                    tagged.append(field)
        if self._flexible:
            self._tags(tagged, target)

    def _default(self, field: Field, target: str) -> None:
        default = field.make_default()
        if not isinstance(default, Struct):
            self._line(f"{target}.{field.name} = {default!r}")
            return
        cls, name = type(default), self._source.name("item")
        self._line(f"{target}.{field.name} = {name} = new({self._source.bind(cls.__name__, cls)})")
        for inner in fields(cls):
            self._default(inner, name)

    def _field(self, field: Field, target: str) -> None:
        nullable = self._version in field.nullable
        if field.is_array:
            self._array(field, target, nullable=nullable)
        elif isinstance(field.kind, Scalar):
            self._scalar(field.kind, target, field.name, nullable=nullable)
        elif nullable:
            self._nullable_struct(field.kind, target)
        else:
            self._nested(field.kind, target)

    def _nested(self, cls: type[Struct], target: str) -> None:
        name = self._source.name("item")
        self._struct(cls, name)
        self._line(f"{target} = {name}")

    def _scalar(self, kind: Scalar, target: str, name: str, *, nullable: bool) -> None:
        if kind.letter:
            self._run.append((kind.letter, target))
            return
        n = self._length(LENGTHS[kind.name], is_string=kind.name == "string")
        if nullable:
            with self._block(f"if {n} == {0 if self._flexible else -1}"):
                self._line(f"{target} = None")
            with self._block("else"):
                self._content(kind, target, name, n)
        else:
            self._content(kind, target, name, n)

    def _content(self, kind: Scalar, target: str, name: str, n: str) -> None:
        self._line(f"stop = pos + {n}{' - 1' if self._flexible else ''}")
        with self._block("if not pos <= stop <= end"):
            self._line(f"wrong_length({name!r}, stop - pos, end - pos)")
        self._line(f"{target} = {_TAKEN[kind.name]}")
        self._line("pos = stop")

    def _nullable_struct(self, cls: type[Struct], target: str) -> None:
        marker = self._source.name("n")
        self._run.append(("b", marker))
        self._flush()
        with self._block(f"if {marker} < 0"):
            self._line(f"{target} = None")
        with self._block("else"):
            self._nested(cls, target)
            self._flush()

    def _array(self, field: Field, target: str, *, nullable: bool) -> None:
        n = self._length("i", is_string=False)
        if self._flexible:
            self._line(f"{n} -= 1")
        if nullable:
            with self._block(f"if {n} == -1"):
                self._line(f"{target} = None")
            with self._block("else"):
                self._items(field, target, n)
        else:
            self._items(field, target, n)

    def _items(self, field: Field, target: str, n: str) -> None:
        kind = field.kind
        least = _least_size(kind, self._version, self._flexible)
        with self._block(f"if not 0 <= {n} * {least} <= end - pos"):
            self._line(f"wrong_count({field.name!r}, {n}, end - pos)")
        self._line(f"room -= {n}")
        with self._block("if room < 0"):
            self._line("too_many_items()")
        if isinstance(kind, Scalar) and len(kind.letter) == 1:
            self._numbers(kind.letter, target, n)
            return
        items = self._source.name("items")
        self._line(f"{target} = {items} = []")
        with self._block(f"for _ in range({n})"):
            item = self._source.name("item")
            if isinstance(kind, Scalar):
                self._scalar(kind, item, field.name, nullable=False)
            else:
                self._struct(kind, item)
            self._flush()
            self._line(f"{items}.append({item})")
            if self._stepped:
                self._line("left -= 1")
                self._pause()

    def _pause(self) -> None:
        with self._block("if left <= 0"):
            self._line("left = STEP")
            self._line("yield")

    def _numbers(self, letter: str, target: str, n: str) -> None:
        unpackers = [numbers.unpack_from for numbers in few(letter)]
        unpack = self._source.bind(f"read_few_{named(letter)}", unpackers)
        with self._block(f"if {n} < {FEW}"):
            self._line(f"{target} = [*{unpack}[{n}](buf, pos)]")
        with self._block("else"):
            self._line(f"{target} = read_numbers({letter!r}, {n}, buf, pos)")
        self._line(f"pos += {n} * {big_endian(letter).size}")

    def _tags(self, tagged: list[Field], target: str) -> None:
        n = self._source.name("n")
        self._run.append(("B", n))
        self._flush()
        with self._block(f"if {n}"):
            self._line(f"{n}, pos = read_uvarint(buf, pos - 1)")
            self._line(f"room -= {n}")
            with self._block(f"if room < 0 or {n} > MAX_TAGS"):
                self._line("too_many_items()")
            if self._stepped:
                self._line(f"left -= {n}")
            if not tagged:
                self._line(f"pos = skip_tags(buf, pos, end, {n})")
                return
            with self._block(f"for _ in range({n})"):
                self._tag(tagged, target)

    def _tag(self, tagged: list[Field], target: str) -> None:
        tag, after = self._source.name("tag"), self._source.name("after")
        self._line(f"{tag}, pos = read_uvarint(buf, pos)")
        self._line(f"{after}, pos = read_uvarint(buf, pos)")
        self._line(f"{after} += pos")
        with self._block(f"if {after} > end"):
            self._line(f"wrong_length('tagged field', {after} - pos, end - pos)")
        for number, field in enumerate(tagged):
            with self._block(f"{'elif' if number else 'if'} {tag} == {field.tag}"):
                self._field(field, f"{target}.{field.name}")
                self._flush()
        with self._block("else"):
            self._line(f"pos = {after}")
        with self._block(f"if pos != {after}"):
            self._line(f"wrong_tag({tag})")

    def _length(self, letter: str, *, is_string: bool) -> str:
        """Read a length or count, and the values of fixed width before it.

        A compact length is one too high.
        """
        n = self._source.name("n")
        self._run.append(("B" if self._flexible else letter, n))
        self._flush()
        if self._flexible:
            with self._block(f"if {n} > 127"):
                read = "read_string_length" if is_string else "read_uvarint"
                self._line(f"{n}, pos = {read}(buf, pos - 1)")
        return n

    def _flush(self) -> None:
        """Read the pending values of fixed width in one call."""
        if not self._run:
            return
        letters = "".join(letter for letter, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        if letters == "B":
            self._line(f"{targets} = buf[pos]")
        else:
            unpack = self._source.bind(f"read_{named(letters)}", big_endian(letters).unpack_from)
            self._line(f"{targets}{',' if len(self._run) == 1 else ''} = {unpack}(buf, pos)")
        self._line(f"pos += {big_endian(letters).size}")
        self._run.clear()


@cache
def _least_size(kind: Scalar | type[Struct], version: int, flexible: bool) -> int:
    """Return the fewest bytes that a value takes; never 0, so that every count can be checked."""
    if isinstance(kind, Scalar):
        if kind.letter:
            return big_endian(kind.letter).size
        return 1 if flexible else big_endian(LENGTHS[kind.name]).size
    total = 1 if flexible else 0
    for field in fields(kind):
        if version not in field.versions or version in field.tagged:
            continue
        if field.is_array:
            total += 1 if flexible else 4
        elif isinstance(field.kind, Scalar) or version not in field.nullable:
            total += _least_size(field.kind, version, flexible)
        else:
            total += 1
    return max(total, 1)
