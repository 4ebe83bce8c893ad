"""Types of option values that several commands share.

Each function is a click type: it returns the value or raises `click.BadParameter`.
"""

from dataclasses import dataclass
from typing import Literal

import click


class IntRange(click.IntRange):
    """Whole numbers within bounds; an error calls them an integer instead of an integer range."""

    name = "integer"


class FloatRange(click.FloatRange):
    """Numbers within bounds; an error calls them a number instead of a float range."""

    name = "number"


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading starts: the log's start or end, an offset, or a time in ms since the epoch."""

    kind: Literal["earliest", "latest", "offset", "time"]
    value: int = -1


def position(text: str) -> Position:
    """Read ``earliest``, ``latest``, an offset, or a time."""
    if text == "earliest":
        return Position("earliest")
    if text == "latest":
        return Position("latest")
    if text.isascii() and text.isdigit():
        return Position("offset", int(text))
    try:
        return Position("time", _moment(text))
    except ValueError as error:
        raise click.BadParameter(f"{error}, nor is it earliest, latest or an offset.") from None


def group_name(text: str) -> str:
    """Read the name of a group, which is not empty: a shell makes that of an unset variable."""
    if not text:
        raise click.BadParameter("is empty: name a group, or leave the option out.")
    return text


def key_value(text: str) -> tuple[str, str]:
    """Read ``key=value``; spaces around both are ignored."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not of the form key=value.")
    return key.strip(), value.strip()


def header(text: str) -> tuple[str, bytes]:
    """Read ``name=value`` as a record's header."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.")
    return name, value.encode("utf-8", "surrogateescape")


def moment(text: str) -> int:
    """Read a time: milliseconds since the Unix epoch, a date, or how long ago."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return _moment(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}, nor is it a number of milliseconds.") from None


def duration(text: str) -> int:
    """Read a duration such as ``90s`` or ``15m``, in milliseconds."""
    from qbus.cli.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def delay_text(text: str) -> str:
    """A duration as the headers of delayed records have it: ``90s``, ``15m``, ``30d``."""
    from qbus.delay import parse_duration

    try:
        parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error
    return text


def idle_time(text: str) -> str:
    """A duration as ``90s`` or ``15m``, or ``never``."""
    return text if text == "never" else delay_text(text)


def limit(text: str) -> str:
    """A number from 1 on, or ``none``."""
    if text != "none" and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise click.BadParameter("a number from 1 on, or none.")
    return text


def due(text: str) -> int:
    """A time to come, in milliseconds since the Unix epoch."""
    from qbus.delay import parse_duration

    try:
        parse_duration(text)
    except ValueError:
        return moment(text)
    if text.isdigit():
        return moment(text)
    raise click.BadParameter(f"{text} is no time but a duration: --delay {text}.")


def separator(text: str) -> bytes:
    r"""Read a separator; ``\t`` and other escapes stand for what they do in Python."""
    try:
        escaped = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{text!r}: {error.reason}.") from None
    if not escaped or "\n" in escaped:
        raise click.BadParameter("a separator must not be empty or contain a newline.")
    return escaped.encode("utf-8", "surrogateescape")


def _moment(text: str) -> int:
    from qbus.cli.units import parse_moment
    from qbus.clock import SystemClock

    return parse_moment(text, SystemClock().time_ms())


DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def bootstrap(text: str) -> str:
    """Read ``HOST[:PORT],...`` or ``zk://HOST[:PORT],.../CHROOT``, kept as text for the clients."""
    from qbus.clients.net.bootstrap import parse
    from qbus.errors import ConfigError

    try:
        parse(text)
    except ConfigError as error:
        raise click.BadParameter(f"{error}.") from None
    return text
