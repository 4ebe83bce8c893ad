"""From declarations to plain functions: one decoder and one encoder a struct and version.

The functions are generated as source and compiled when a version is first used. Neighbouring fields
of fixed width become one ``struct`` call; strings, arrays and tags are read and written in line.

    decoder(buf, pos, end) -> (value, pos)
    encoder(value, parts, out) -> out

An encoder appends to ``out``; large records are not copied: what is in ``out`` becomes one of the
``parts``, the records the next one, and a fresh ``out`` is returned.
"""

from collections.abc import Callable
from functools import cache
from itertools import groupby
from struct import Struct as Packer
from typing import Any

from . import primitives
from .declare import Field, Scalar, Struct, fields

Decoder = Callable[[primitives.Buffer, int, int], tuple[Any, int]]
Encoder = Callable[[Any, list[Any], bytearray], bytearray]

_LENGTHS = {"string": "h", "bytes": "i", "records": "i"}


class _Source:
    """The lines of a function under construction, and the values it refers to."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[str, Any] = {}

    def __call__(self, *lines: str) -> None:
        self._lines += ["    " * self._depth + line for line in lines]

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def bind(self, value: Any) -> str:
        """A name for ``value`` inside the function."""
        name = f"_{len(self._names)}"
        self._names[name] = value
        return name

    def compile(self, signature: str) -> Any:
        text = "\n".join([f"def function{signature}:", *self._lines])
        scope = {**vars(primitives), **self._names}
        exec(text, scope)  # noqa: S102 - made from our own declarations
        return scope["function"]


def compile_init(cls: type[Struct]) -> Callable[..., None]:
    """The constructor of a struct: every field by name, each with its default."""
    source, arguments = _Source(), ["self"]
    missing = source.bind(object())
    source("pass")
    for number, field in enumerate(fields(cls)):
        default = field.make_default()
        if number == 0:
            arguments.append("*")
        if isinstance(default, (list, Struct)):
            arguments.append(f"{field.name}={missing}")
            source(f"if {field.name} is {missing}:", f"    {field.name} = {_fresh(source, field)}")
        else:
            arguments.append(f"{field.name}={source.bind(default)}")
        source(f"self.{field.name} = {field.name}")
    init: Callable[..., None] = source.compile(f"({', '.join(arguments)})")
    return init


@cache
def decoder(cls: type[Struct], version: int, flexible: bool) -> Decoder:
    """The function that reads a struct of ``version``."""
    source = _Source()
    source(f"value = {source.bind(cls.__new__)}({source.bind(cls)})")
    here = [field for field in fields(cls) if version in field.versions]
    for field in fields(cls):
        if field not in here or version in field.tagged:
            source(f"value.{field.name} = {_fresh(source, field)}")
    plain = [field for field in here if version not in field.tagged]
    for fixed, group in groupby(plain, _is_fixed):
        if fixed:
            _decode_run(source, list(group))
        else:
            for field in group:
                _decode_field(source, field, version, flexible)
    if flexible:
        _decode_tags(source, [field for field in here if version in field.tagged], version)
    source("return value, pos")
    function: Decoder = source.compile("(buf, pos, end)")
    return function


@cache
def encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    """The function that writes a struct of ``version``."""
    source = _Source()
    here = [field for field in fields(cls) if version in field.versions]
    for field in fields(cls):
        if field not in here and not field.ignorable:
            default = source.bind(field.make_default())
            source(
                f"if value.{field.name} != {default}:",
                f"    not_in_version({field.name!r}, {version})",
            )
    plain = [field for field in here if version not in field.tagged]
    for fixed, group in groupby(plain, _is_fixed):
        if fixed:
            run = list(group)
            pack = source.bind(Packer(_format(run)).pack)
            source(f"out += {pack}({', '.join(f'value.{field.name}' for field in run)})")
        else:
            for field in group:
                _encode_field(source, field, version, flexible)
    if flexible:
        _encode_tags(source, [field for field in here if version in field.tagged], version)
    source("return out")
    function: Encoder = source.compile("(value, parts, out)")
    return function


def _fresh(source: _Source, field: Field) -> str:
    """The source of a fresh default for ``field``."""
    default = field.make_default()
    if isinstance(default, list):
        return "[]"
    if isinstance(default, Struct):
        return f"{source.bind(type(default))}()"
    return source.bind(default)


def _is_fixed(field: Field) -> bool:
    return isinstance(field.kind, Scalar) and bool(field.kind.letter) and not field.is_array


def _format(run: list[Field]) -> str:
    return ">" + "".join(f.kind.letter for f in run if isinstance(f.kind, Scalar))


@cache
def _min_size(kind: Scalar | type[Struct], version: int, flexible: bool) -> int:
    """The least bytes that one value takes; never 0, so that counts can be checked."""
    if isinstance(kind, Scalar):
        if kind.letter:
            return Packer(">" + kind.letter).size
        return 1 if flexible else Packer(">" + _LENGTHS[kind.name]).size
    total = 1 if flexible else 0
    for field in fields(kind):
        if version not in field.versions or version in field.tagged:
            continue
        if field.is_array:
            total += 1 if flexible else 4
        elif isinstance(field.kind, Scalar) or version not in field.nullable:
            total += _min_size(field.kind, version, flexible)
        else:
            total += 1
    return max(total, 1)


# Decoding


def _decode_run(source: _Source, run: list[Field]) -> None:
    packer = Packer(_format(run))
    targets = ", ".join(f"value.{field.name}" for field in run)
    comma = "," if len(run) == 1 else ""
    source(
        f"{targets}{comma} = {source.bind(packer.unpack_from)}(buf, pos)", f"pos += {packer.size}"
    )


def _decode_field(source: _Source, field: Field, version: int, flexible: bool) -> None:
    target = f"value.{field.name}"
    nullable = version in field.nullable
    if field.is_array:
        _decode_array(source, field, target, version, flexible, nullable)
    elif isinstance(field.kind, Scalar):
        _decode_sized(source, field.kind, target, field.name, flexible, nullable)
    elif nullable:
        read = source.bind(decoder(field.kind, version, flexible))
        source(
            "pos += 1",
            "if buf[pos - 1] >= 128:",
            f"    {target} = None",
            "else:",
            f"    {target}, pos = {read}(buf, pos, end)",
        )
    else:
        read = source.bind(decoder(field.kind, version, flexible))
        source(f"{target}, pos = {read}(buf, pos, end)")


def _decode_length(source: _Source, letter: str, flexible: bool) -> None:
    if flexible:
        source("n = buf[pos]", "pos += 1", "if n > 127:", "    n, pos = uvarint_rest(buf, pos, n)")
        source("n -= 1")
    else:
        packer = Packer(">" + letter)
        source(f"n, = {source.bind(packer.unpack_from)}(buf, pos)", f"pos += {packer.size}")


def _null(source: _Source, target: str, name: str, nullable: bool) -> None:
    source("if n < 0:")
    if nullable:
        source("    if n < -1:", f"        unexpected_null({name!r})", f"    {target} = None")
    else:
        source(f"    unexpected_null({name!r})")


def _decode_sized(
    source: _Source,
    kind: Scalar,
    target: str,
    name: str,
    flexible: bool,
    nullable: bool,
) -> None:
    _decode_length(source, _LENGTHS[kind.name], flexible)
    _null(source, target, name, nullable)
    taken = {
        "string": "str(buf[pos:stop], 'utf-8')",
        "bytes": "bytes(buf[pos:stop])",
        "records": "buf[pos:stop]",
    }[kind.name]
    source("else:", "    stop = pos + n", "    if stop > end:", "        truncated()")
    source(f"    {target} = {taken}", "    pos = stop")


def _decode_array(
    source: _Source,
    field: Field,
    target: str,
    version: int,
    flexible: bool,
    nullable: bool,
) -> None:
    kind = field.kind
    _decode_length(source, "i", flexible)
    _null(source, target, field.name, nullable)
    source(
        "else:",
        f"    if n * {_min_size(kind, version, flexible)} > end - pos:",
        "        lying_count(n)",
        f"    {target} = items = []",
    )
    source.indent()
    if isinstance(kind, Scalar) and kind.letter:
        packer = Packer(">" + kind.letter)
        source(
            f"items += [row[0] for row in {source.bind(packer.iter_unpack)}"
            f"(buf[pos:pos + n * {packer.size}])]",
            f"pos += n * {packer.size}",
        )
    else:
        source("for _ in range(n):")
        source.indent()
        if isinstance(kind, Scalar):
            _decode_sized(source, kind, "item", field.name, flexible, nullable=False)
        else:
            read = source.bind(decoder(kind, version, flexible))
            source(f"item, pos = {read}(buf, pos, end)")
        source("items.append(item)")
        source.dedent()
    source.dedent()


def _decode_tags(source: _Source, tagged: list[Field], version: int) -> None:
    source("tags, pos = read_uvarint(buf, pos)")
    if not tagged:
        source("if tags:", "    pos = skip_tags(buf, pos, end, tags)")
        return
    source("for _ in range(tags):")
    source.indent()
    source("tag, pos = read_uvarint(buf, pos)", "size, pos = read_uvarint(buf, pos)")
    source("after = pos + size", "if after > end:", "    truncated()")
    for number, field in enumerate(tagged):
        source(f"{'elif' if number else 'if'} tag == {field.tag}:")
        source.indent()
        if _is_fixed(field):
            _decode_run(source, [field])
        else:
            _decode_field(source, field, version, flexible=True)
        source.dedent()
    source("pos = after")
    source.dedent()


# Encoding


def _encode_field(source: _Source, field: Field, version: int, flexible: bool) -> None:
    source(f"item = value.{field.name}")
    nullable = version in field.nullable
    if field.is_array:
        _encode_array(source, field, version, flexible, nullable)
    elif isinstance(field.kind, Scalar):
        _encode_sized(source, field.kind, field.name, flexible, nullable)
    else:
        write = source.bind(encoder(field.kind, version, flexible))
        if nullable:
            source("if item is None:", "    out += b'\\xff'", "else:", "    out += b'\\x01'")
            source(f"    out = {write}(item, parts, out)")
        else:
            source(f"out = {write}(item, parts, out)")


def _encode_length(source: _Source, count: str, letter: str, flexible: bool) -> None:
    if flexible:
        source(f"out += uvarint({count} + 1)")
    else:
        source(f"out += {source.bind(Packer('>' + letter).pack)}({count})")


def _encode_null(source: _Source, name: str, letter: str, flexible: bool, nullable: bool) -> None:
    null = b"\0" if flexible else Packer(">" + letter).pack(-1)
    source(
        "if item is None:", f"    out += {null!r}" if nullable else f"    unexpected_null({name!r})"
    )
    source("else:")


def _encode_sized(
    source: _Source,
    kind: Scalar,
    name: str,
    flexible: bool,
    nullable: bool,
) -> None:
    letter = _LENGTHS[kind.name]
    _encode_null(source, name, letter, flexible, nullable)
    source.indent()
    if kind.name == "string":
        source("item = item.encode()")
    _encode_length(source, "len(item)", letter, flexible)
    if kind.name == "records":
        source("if is_small(item):", "    out += item", "elif len(item):")
        source("    parts += (out, item)", "    out = bytearray()")
    else:
        source("out += item")
    source.dedent()


def _encode_array(
    source: _Source, field: Field, version: int, flexible: bool, nullable: bool
) -> None:
    kind = field.kind
    _encode_null(source, field.name, "i", flexible, nullable)
    source.indent()
    _encode_length(source, "len(item)", "i", flexible)
    if isinstance(kind, Scalar) and kind.letter:
        pack = source.bind(Packer(">" + kind.letter).pack)
        source("for one in item:", f"    out += {pack}(one)")
    elif isinstance(kind, Scalar):
        source("for item in item:")
        source.indent()
        _encode_sized(source, kind, field.name, flexible, nullable=False)
        source.dedent()
    else:
        write = source.bind(encoder(kind, version, flexible))
        source("for one in item:", f"    out = {write}(one, parts, out)")
    source.dedent()


def _encode_tags(source: _Source, tagged: list[Field], version: int) -> None:
    if not tagged:
        source("out += b'\\0'")
        return
    source("tags = []", "message = out")
    for field in sorted(tagged, key=lambda one: one.tag or 0):
        default = source.bind(field.make_default())
        source(f"if value.{field.name} != {default}:")
        source.indent()
        source("out = bytearray()")
        if _is_fixed(field):
            source(f"out += {source.bind(Packer(_format([field])).pack)}(value.{field.name})")
        else:
            _encode_field(source, field, version, flexible=True)
        source(f"tags.append(({field.tag}, out))")
        source.dedent()
    source("out = message", "out += put_tags(tags) if tags else b'\\0'")
