"""From declarations to encoders: one generated function for each message and version.

    encode(message, parts, out) -> out

The function appends to the bytearray ``out`` and returns it. Large records are not copied: ``out``
becomes one of the ``parts``, the records become the next part, and a new ``out`` begins. As in
decoders, structs are written in line, and adjacent values of fixed width, with the length or count
behind them, are one ``struct`` call.

The other form of the function is a generator, which yields after every ``STEP`` items: an event
loop writes a large message without standing still (:mod:`qbus.wire.stepped`).
"""

from collections.abc import Callable
from typing import Any

from qbus.wire import primitives
from qbus.wire.declare import LENGTHS, Field, Scalar, Struct, fields
from qbus.wire.source import FEW, Source, big_endian, few, named

Encoder = Callable[[Any, list[Any], bytearray], bytearray]


def compile_encoder(cls: type[Struct], version: int, *, stepped: bool = False) -> Any:
    """Compile the function that writes a message of ``version``, an :data:`Encoder`.

    ``stepped``: the generator that yields None between steps, and returns the same.

    The function raises WireError for a value that does not fit its field, or ``struct.error``,
    TypeError, AttributeError or UnicodeEncodeError where Python notices first.
    """
    writer = _Writer(version, flexible=version >= cls.first_flexible, stepped=stepped)
    return writer.write(cls).compile("encode", f"encode {cls.__name__} v{version}")


class _Writer:
    """Writes one encoder. A ``value`` is an expression of the generated source."""

    def __init__(self, version: int, *, flexible: bool, stepped: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._stepped = stepped
        self._run: list[tuple[str, str]] = []  # values of fixed width that are not written yet
        self._source = Source(vars(primitives))
        self._line = self._source.line
        self._block = self._source.block

    def write(self, cls: type[Struct]) -> Source:
        """Write the whole function."""
        with self._block("def encode(message, parts, out)"):
            if self._stepped:
                self._line("left = STEP")
            self._struct(cls, "message")
            self._flush()
            if self._stepped:  # a generator even where there is no array
                self._pause()
            self._line("return out")
        return self._source

    def _struct(self, cls: type[Struct], value: str) -> None:
        tagged = []
        for field in fields(cls):
            if self._version in field.tagged:
                tagged.append(field)
            elif self._version in field.versions:
                self._field(field, f"{value}.{field.name}")
            elif not field.ignorable:
                with self._block(f"if {self._is_set(field, f'{value}.{field.name}')}"):
                    self._line(f"not_in_version({field.name!r}, {self._version})")
        if self._flexible:
            self._tags(tagged, value)

    def _field(self, field: Field, value: str) -> None:
        nullable = self._version in field.nullable
        if field.is_array:
            self._array(field, value, nullable=nullable)
        elif isinstance(field.kind, Scalar):
            self._scalar(field.kind, value, nullable=nullable)
        else:
            self._nested(field.kind, value, nullable=nullable)

    def _scalar(self, kind: Scalar, value: str, *, nullable: bool) -> None:
        if kind.name == "uuid":
            self._run.append((kind.letter, f"checked_uuid({value})"))
        elif kind.letter:
            self._run.append((kind.letter, value))
        else:
            self._sized(kind, value, nullable=nullable)

    def _sized(self, kind: Scalar, value: str, *, nullable: bool) -> None:
        content, n = self._source.name("content"), self._source.name("n")
        self._line(f"{content} = {value}")
        if nullable:
            with self._block(f"if {content} is None"):
                self._line(f"{content} = b''")
                self._line(f"{n} = {self._null}")
            with self._block("else"):
                self._measure(kind, content, n)
        else:
            self._measure(kind, content, n)
        self._length(n, LENGTHS[kind.name], is_string=kind.name == "string")
        if kind.name != "records":
            self._line(f"out += {content}")
            return
        with self._block(f"if isinstance({content}, BYTES_LIKE) and len({content}) < COPY_BELOW"):
            self._line(f"out += {content}")
        with self._block(f"elif len({content})"):
            self._line(f"parts += (out, {content})")
            self._line("out = bytearray()")

    def _measure(self, kind: Scalar, content: str, n: str) -> None:
        if kind.name == "string":
            self._line(f"{content} = {content}.encode()")
        self._line(f"{n} = len({content}){' + 1' if self._flexible else ''}")

    def _nested(self, cls: type[Struct], value: str, *, nullable: bool) -> None:
        item = self._source.name("item")
        self._line(f"{item} = {value}")
        if not nullable:
            self._struct(cls, item)
            return
        self._flush()
        with self._block(f"if {item} is None"):
            self._line("out += b'\\xff'")
        with self._block("else"):
            self._line("out += b'\\x01'")
            self._struct(cls, item)
            self._flush()

    def _array(self, field: Field, value: str, *, nullable: bool) -> None:
        items, n = self._source.name("items"), self._source.name("n")
        self._line(f"{items} = {value}")
        count = f"len({items}){' + 1' if self._flexible else ''}"
        if nullable:
            self._line(f"{n} = {self._null} if {items} is None else {count}")
        else:
            self._line(f"{n} = {count}")
        self._length(n, "i", is_string=False)
        with self._block(f"if {items}"):
            self._items(field, items)

    def _items(self, field: Field, items: str) -> None:
        kind = field.kind
        if isinstance(kind, Scalar) and len(kind.letter) == 1:
            self._numbers(kind.letter, items)
            return
        item = self._source.name("item")
        with self._block(f"for {item} in {items}"):
            if isinstance(kind, Scalar):
                self._scalar(kind, item, nullable=False)
            else:
                self._struct(kind, item)
            self._flush()
            if self._stepped:
                self._line("left -= 1")
                self._pause()

    def _pause(self) -> None:
        with self._block("if left <= 0"):
            self._line("left = STEP")
            self._line("yield")

    def _numbers(self, letter: str, items: str) -> None:
        packers = [numbers.pack for numbers in few(letter)]
        pack = self._source.bind(f"write_few_{named(letter)}", packers)
        with self._block(f"if len({items}) < {FEW}"):
            self._line(f"out += {pack}[len({items})](*{items})")
        with self._block("else"):
            self._line(f"out += write_numbers({letter!r}, {items})")

    def _tags(self, tagged: list[Field], value: str) -> None:
        """Write the fields that are not at their default; there are never more than 127."""
        if not tagged:
            self._run.append(("x", ""))
            return
        tagged = sorted(tagged, key=lambda field: field.tag or 0)
        conditions = []
        for field in tagged:
            conditions.append(self._source.name("is_set"))
            self._line(f"{conditions[-1]} = {self._is_set(field, f'{value}.{field.name}')}")
        self._run.append(("B", " + ".join(conditions)))
        self._flush()
        for field, condition in zip(tagged, conditions, strict=True):
            with self._block(f"if {condition}"):
                outer = self._source.name("outer")
                self._line(f"{outer}, out = out, bytearray()")
                self._field(field, f"{value}.{field.name}")
                self._flush()
                self._line(f"out = tagged({outer}, {field.tag}, out)")

    def _is_set(self, field: Field, value: str) -> str:
        """Return an expression: whether a field has another value than its default."""
        default = field.make_default()
        if not isinstance(default, Struct):
            return f"{value} != {default!r}"
        parts = (self._is_set(inner, f"{value}.{inner.name}") for inner in fields(type(default)))
        return f"({' or '.join(parts)})"

    @property
    def _null(self) -> int:
        """The length that means None."""
        return 0 if self._flexible else -1

    def _length(self, n: str, letter: str, *, is_string: bool) -> None:
        """Write a length or count, and the values of fixed width before it."""
        if not self._flexible:
            self._run.append((letter, n))
            self._flush()
            return
        before = list(self._run)
        write = "string_length" if is_string else "uvarint"
        with self._block(f"if {n} < 128"):
            self._run.append(("B", n))
            self._flush()
        self._run = before
        with self._block("else"):
            self._flush()
            self._line(f"out += {write}({n})")

    def _flush(self) -> None:
        """Write the pending values of fixed width in one call."""
        if not self._run:
            return
        letters = "".join(letter for letter, _ in self._run)
        values = ", ".join(value for _, value in self._run if value)
        if letters == "B":
            self._line(f"out.append({values})")
        elif not values:
            self._line(f"out += {bytes(len(letters))!r}")
        else:
            pack = self._source.bind(f"write_{named(letters)}", big_endian(letters).pack)
            self._line(f"out += {pack}({values})")
        self._run.clear()
