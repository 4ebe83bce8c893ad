"""The types of configuration values: from text or TOML to Python, and back to text."""

from collections.abc import Callable
from enum import IntEnum
from sys import float_info
from typing import Any


class ConfigType(IntEnum):
    """A type by its number in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9

    @property
    def noun(self) -> str:
        """The name of the type in messages."""
        return _NOUNS[self]

    def parse(self, raw: object) -> Any:
        """Return the typed value of ``raw``, which is text or a TOML value.

        Raises:
            ValueError: ``raw`` is of another type.
        """
        return _PARSERS[self](raw)

    def format(self, value: Any) -> str:
        """Return the value as Kafka's tools write it."""
        if self is ConfigType.BOOLEAN:
            return "true" if value else "false"
        if self is ConfigType.LIST:
            return ",".join(value)
        return str(value)


LIMITS = {
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
    ConfigType.DOUBLE: (-float_info.max, float_info.max),
}

_NOUNS = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "text",
    ConfigType.INT: "a whole number",
    ConfigType.LONG: "a whole number",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a list separated by commas",
    ConfigType.PASSWORD: "text",
}


def _parse_boolean(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    text = _parse_text(raw).strip().lower()
    if text not in {"true", "false"}:
        raise ValueError
    return text == "true"


def _parse_whole(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    text = _parse_text(raw).strip()
    # int() also reads 1_000 and digits of other scripts, which Kafka's tools would not.
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 32):
        raise ValueError
    return int(text)


def _parse_number(raw: object) -> float:
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return float(raw)
    return float(_parse_text(raw))


def _parse_text(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError  # noqa: TRY004 - one exception for "of another type"
    return raw


def _parse_list(raw: object) -> tuple[str, ...]:
    items = raw if isinstance(raw, list | tuple) else _parse_text(raw).split(",")
    return tuple(text for item in items if (text := _parse_text(item).strip()))


_PARSERS: dict[ConfigType, Callable[[object], Any]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: lambda raw: _parse_text(raw).strip(),
    ConfigType.INT: _parse_whole,
    ConfigType.LONG: _parse_whole,
    ConfigType.DOUBLE: _parse_number,
    ConfigType.LIST: _parse_list,
    ConfigType.PASSWORD: _parse_text,
}
