"""What the documentation says of the SDK's classes, made from their signatures and docstrings."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import qbus
from qbus import aio
from qbus.errors import ErrorCode, QbusError

CLIENTS: dict[str, type] = {
    name: client for name in aio.__all__ if isinstance(client := getattr(aio, name), type)
}

_ENTRY = re.compile(r"^(\w+(?:, \w+)*): (.+)$")
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?([\w]+)`")
_KIB = 1024


def options_table(name: str) -> str:
    """A row for each keyword of a client's constructor."""
    rows = ["| option | default | what it is |", "|---|---|---|"]
    defaults = dict(options(CLIENTS[name]))
    for names, text in descriptions(CLIENTS[name]):
        keywords = [name for name in names if name in defaults]
        if keywords:
            values = ", ".join(_default(key, defaults[key]) for key in keywords)
            rows.append(f"| {', '.join(f'`{key}`' for key in keywords)} | {values} | {text} |")
    return "\n".join([*rows, ""])


def methods_table(name: str) -> str:
    """A row for each public method of a client, with the first sentence of its docstring."""
    rows = ["| method | what it does |", "|---|---|"]
    for method, function in methods(CLIENTS[name]):
        names = inspect.signature(function).parameters.values()
        arguments = ", ".join(_argument(p) for p in names if p.name != "self" and p.name[0] != "_")
        rows.append(f"| `{method}({arguments})` | {_first_sentence(function)} |")
    return "\n".join([*rows, ""])


def errors_table() -> str:
    """A row for each exception that users import, below the one that it is a case of."""
    rows = ["| exception | is a | what it says |", "|---|---|---|"]
    kinds = [kind for name in qbus.__all__ if is_error(kind := getattr(qbus, name))]
    for kind in sorted(kinds, key=lambda kind: [base.__name__ for base in reversed(kind.mro())]):
        says = _first_sentence(kind)
        rows.append(f"| `{kind.__name__}` | `{kind.__base__.__name__}` | {says} |")
    return "\n".join([*rows, ""])


def is_error(value: object) -> bool:
    """Whether it is an exception of ours."""
    return isinstance(value, type) and issubclass(value, QbusError)


def codes_table() -> str:
    """A row for each code of the protocol's."""
    rows = ["| code | name | may pass |", "|---|---|---|"]
    rows += [f"| {int(code)} | {code.name} | {'yes' * code.retriable} |" for code in ErrorCode]
    return "\n".join([*rows, ""])


def options(client: type) -> Iterator[tuple[str, Any]]:
    """The keywords of a client's constructor, with their defaults."""
    for parameter in inspect.signature(client).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            yield parameter.name, parameter.default


def descriptions(client: type) -> Iterator[tuple[list[str], str]]:
    """The entries ``name: text`` and ``name, name: text`` of a constructor's docstring."""
    docstring = inspect.getdoc(inspect.getattr_static(client, "__init__")) or ""
    for paragraph in docstring.split("\n\n"):
        # An entry goes on in the lines that are indented.
        for line in re.sub(r"\n\s+", " ", paragraph).splitlines():
            if entry := _ENTRY.match(line):
                yield entry[1].split(", "), _markdown(entry[2])


def methods(client: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods of a client, in the order of their names."""
    for name, function in inspect.getmembers(client, inspect.isfunction):
        if not name.startswith("_"):
            yield name, function


def _default(name: str, value: Any) -> str:
    if value is None:
        return "not set"
    if name.endswith("_bytes") and value >= _KIB and value % _KIB == 0:
        mib, rest = divmod(value, _KIB * _KIB)
        return f"{mib} MiB" if not rest else f"{value // _KIB} KiB"
    if name.endswith("_ms"):
        return f"{value} ms"
    return f"`{value!r}`"


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"


def _first_sentence(thing: object) -> str:
    first = (inspect.getdoc(thing) or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")
    return _markdown(re.split(r"(?<=[.]) ", first, maxsplit=1)[0])


def _markdown(text: str) -> str:
    return _ROLE.sub(r"`\1`", text).replace("``", "`").replace("|", "\\|")
