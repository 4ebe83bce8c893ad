"""Files of properties, as Java and librdkafka write them: ``name=value``, one a line."""

import re
from collections.abc import Iterator
from pathlib import Path

from qbus.errors import ConfigError

_LINE_END = re.compile(r"\r\n|\n|\r")  # and no other: a password may hold those of Unicode
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: str | Path) -> dict[str, str]:
    """Return the properties of a file. Raises :class:`~qbus.errors.ConfigError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: it is not UTF-8 text") from None
    return parse_properties(text, str(path))


def parse_properties(text: str, where: str) -> dict[str, str]:
    """Return the properties of a text, read as ``java.util.Properties`` reads them.

    A name ends at ``=``, ``:`` or a space; ``#`` and ``!`` begin comments; a line that ends with a
    backslash goes on in the next; a backslash before any other character stands for that character.

    where: the text's name in messages. Raises :class:`~qbus.errors.ConfigError`, which never quotes
    a line: it may hold a secret.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, value = _divide(line)
        if not name or value is None:
            raise ConfigError(f"{where}, line {number}: expected name=value")
        try:
            found[_unescape(name)] = _unescape(value)
        except ValueError:
            raise ConfigError(
                f"{where}, line {number}: \\u needs four hexadecimal digits"
            ) from None
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    lines = enumerate(_LINE_END.split(text), 1)
    for number, line in lines:
        whole = line.strip(" \t\f")
        if not whole or whole[0] in "#!":
            continue
        while _goes_on(whole):
            _, following = next(lines, (0, ""))
            whole = whole[:-1] + following.strip(" \t\f")
        yield number, whole


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _divide(line: str) -> tuple[str, str | None]:
    """Return name and value; None: there is no value at all."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t\f")
    if end >= len(line):
        return line, None
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(" \t\f")
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    at = 0
    while at < len(text):
        character = text[at]
        if character != "\\":
            parts.append(character)
            at += 1
            continue
        following = text[at + 1 : at + 2]
        if following == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) != 4:
                raise ValueError
            parts.append(chr(int(digits, 16)))
            at += 6
        else:
            parts.append(_ESCAPES.get(following, following))
            at += 2
    return "".join(parts)
