"""Constructors of structs, generated when a class is first called, and the defaults of fields."""

from collections.abc import Callable

from qbus.wire.declare import Field, Struct, fields
from qbus.wire.source import Source


def compile_init(cls: type[Struct]) -> Callable[..., None]:
    """The constructor of a struct: every field by name, each with its default."""
    source = Source({"missing": object()})
    named = fields(cls)
    parameters = ["self", "*"] if named else ["self"]
    for field in named:
        mutable = isinstance(field.make_default(), list | Struct)
        parameters.append(f"{field.name}={'missing' if mutable else repr(field.make_default())}")
    with source.block(f"def __init__({', '.join(parameters)})"):
        if not named:
            source.line("pass")
        for field in named:
            value = field.name
            if isinstance(field.make_default(), list | Struct):
                value = f"{fresh_default(source, field)} if {value} is missing else {value}"
            source.line(f"self.{field.name} = {value}")
    init: Callable[..., None] = source.compile("__init__", f"{cls.__name__}.__init__")
    return init


def fresh_default(source: Source, field: Field) -> str:
    """The source of a default for ``field`` that no other instance shares."""
    default = field.make_default()
    if isinstance(default, Struct):
        return f"{source.bind(type(default).__name__, type(default))}()"
    return repr(default)
