"""What a producer writes into a record's headers to have it delivered later.

================== ============================================================================
header             value, in ASCII
================== ============================================================================
qbus-deliver-at    when: milliseconds since the Unix epoch
qbus-delay         how long from now: ``1500ms``, ``90s``, ``15m``, ``36h``, ``30d``, or
                   plain milliseconds
qbus-ttl           how long after that time it is still worth delivering, in the same form
qbus-cancel        the offset of a delayed record that is not to be delivered after all; or
                   ``key``: all that have the key of this record
qbus-reschedule    the offset of a delayed record; ``qbus-deliver-at`` or ``qbus-delay`` of this
                   record say when it is due from now on
qbus-delayed-offset  set by the broker in a delivered record: the offset that it was given first
================== ============================================================================

They have this meaning in topics with ``qbus.delay.enable`` alone.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

DELIVER_AT: Final = "qbus-deliver-at"
DELAY: Final = "qbus-delay"
TTL: Final = "qbus-ttl"
CANCEL: Final = "qbus-cancel"
RESCHEDULE: Final = "qbus-reschedule"
DELAYED_OFFSET: Final = "qbus-delayed-offset"

BY_KEY: Final = -1
NO_TTL: Final = -1

_KEY: Final = "key"
ORDERS: Final = frozenset((DELIVER_AT, DELAY, TTL, CANCEL, RESCHEDULE))
_LARGEST: Final = 2**63 - 1
_SHORT: Final = 18  # digits of a number that is surely no larger
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
_DURATION: Final = re.compile(r"([0-9]{1,19})(ms|s|m|h|d|)")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")

Headers = Sequence[tuple[str, bytes | None]]


class Order(NamedTuple):
    """What a record's headers ask for; times in milliseconds.

    It is to be delivered at ``due`` and is worthless ``ttl`` after that (NO_TTL: never). Or it is
    no record but cancels, or has delivered at ``due``, the one at ``target`` (BY_KEY: all with its
    key).
    """

    due: int
    ttl: int = NO_TTL
    target: int | None = None
    is_cancel: bool = False


def parse_duration(text: str) -> int:
    """The milliseconds of ``1500ms``, ``90s``, ``15m``, ``36h``, ``30d`` or a plain number.

    Raises ValueError.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration: 1500ms, 90s, 15m, 36h, 30d, or milliseconds")
    duration = int(match[1]) * _UNITS[match[2]]
    if duration > _LARGEST:
        raise ValueError(f"{text!r} is too long")
    return duration


def duration_text(ms: int) -> str:
    """A duration in the largest unit that leaves it whole or long: ``90s``, ``730d``."""
    for unit in ("d", "h", "m", "s"):
        length = _UNITS[unit]
        if ms >= 10 * length or (ms >= length and ms % length == 0):
            return f"{ms // length}{unit}"
    return f"{ms}ms"


def more_than(ahead_ms: int, most_ms: int) -> tuple[str, str]:
    """Texts of two durations of which the first exceeds the second, so that they differ."""
    ahead, most = duration_text(ahead_ms), duration_text(most_ms)
    return (f"{ahead_ms}ms", f"{most_ms}ms") if ahead == most else (ahead, most)


def read_order(headers: Headers, now_ms: int) -> Order | None:
    """What the headers of a record, which came at ``now_ms``, ask for; None: nothing.

    Raises ValueError, with a sentence for the producer.
    """
    only: bytes | None = None
    what = ""
    for name, value in headers:
        if name in ORDERS:
            if what:
                return _order(_asked(headers), now_ms)
            what, only = name, value
    if not what:
        return None
    if only is not None and only.isdigit() and len(only) <= _SHORT:  # what nearly all ask for
        if what == DELIVER_AT:
            return Order(int(only))
        if what == DELAY:
            return Order(now_ms + int(only))
    return _order({what: only}, now_ms)


def _asked(headers: Headers) -> dict[str, bytes | None]:
    asked: dict[str, bytes | None] = {}
    for name, value in headers:
        if name in ORDERS:
            if name in asked:
                raise ValueError(f"{name} is given twice")
            asked[name] = value
    return asked


def _order(asked: dict[str, bytes | None], now_ms: int) -> Order | None:
    due = _due(asked, now_ms)
    if CANCEL in asked:
        if len(asked) > 1:
            others = ", ".join(sorted(asked.keys() - {CANCEL}))
            raise ValueError(f"{CANCEL} stands alone, not with {others}")
        text = _text(CANCEL, asked[CANCEL])
        target = BY_KEY if text == _KEY else _number(CANCEL, text)
        return Order(now_ms, NO_TTL, target, is_cancel=True)
    if RESCHEDULE in asked:
        if due is None or TTL in asked:
            raise ValueError(f"{RESCHEDULE} needs {DELIVER_AT} or {DELAY}, and nothing else")
        return Order(due, NO_TTL, _number(RESCHEDULE, _text(RESCHEDULE, asked[RESCHEDULE])))
    if due is None:
        return None  # a time to live without a delay is an ordinary header
    ttl = _duration(TTL, asked[TTL]) if TTL in asked else NO_TTL
    return Order(due, ttl)


def _due(asked: dict[str, bytes | None], now_ms: int) -> int | None:
    if DELIVER_AT in asked and DELAY in asked:
        raise ValueError(f"{DELIVER_AT} and {DELAY} exclude each other")
    if DELIVER_AT in asked:
        return _number(DELIVER_AT, _text(DELIVER_AT, asked[DELIVER_AT]))
    if DELAY in asked:
        due = now_ms + _duration(DELAY, asked[DELAY])
        if due > _LARGEST:
            raise ValueError(f"{DELAY} is too long")
        return due
    return None


def _text(name: str, value: bytes | None) -> str:
    if value is None:
        raise ValueError(f"{name} is null")
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not readable: {value[:40]!r}") from None


def _duration(name: str, value: bytes | None) -> int:
    try:
        return parse_duration(_text(name, value))
    except ValueError as error:
        raise ValueError(str(error) if name in str(error) else f"{name}: {error}") from None


def _number(name: str, text: str) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > _LARGEST:
        what = "an offset" if name in {CANCEL, RESCHEDULE} else "milliseconds since 1970"
        raise ValueError(f"{name}: {text[:40]!r} is not {what}")
    return int(text)
