"""What the options of commands say; texts of refusals are Disque's."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from qbus.jobs import JobOptions, has_form

from .errors import BAD_ID, CommandError, syntax_error

DAY_S: Final = 24 * 3600
LONGEST_RETRY_S: Final = 300  # where none is asked for
MOST_REPLICAS: Final = 65_535
MOST_JOBS: Final = 10_000
"""How many jobs one command takes or lists at most."""

MOST_QUEUES: Final = 1000
"""How many queues one GETJOB may name."""

_INT64: Final = 1 << 63
_SECONDS: Final = 1 << 53  # of what is added to a time: nothing overflows then
_NUMBER: Final = re.compile(rb"-?(0|[1-9][0-9]{0,18})")
_NO_OPTIONS: Final = JobOptions(None, 0)
_FEW_WORDS: Final = 16  # that are remembered with what they mean
_FEW_BYTES: Final = 256
_LONGEST_CURSOR: Final = 64  # with zeros in front
_CURSOR: Final = re.compile(rb"[+-]?[0-9]+")


def to_integer(text: bytes) -> int | None:
    """A number as Disque reads it: 64 bits, no blanks, no zeros in front."""
    if _NUMBER.fullmatch(text) is None or text == b"-0":
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


def need_integer(
    text: bytes, otherwise: str = "ERR value is not an integer or out of range"
) -> int:
    """The same. Raises CommandError."""
    number = to_integer(text)
    if number is None:
        raise CommandError(otherwise)
    return number


def need_timeout(text: bytes) -> int:
    """A time-out in milliseconds, 0: none. Raises CommandError."""
    timeout = need_integer(text, "ERR timeout is not an integer or out of range")
    if timeout < 0:
        raise CommandError("ERR timeout is negative")
    return timeout


def need_ids(texts: Sequence[bytes]) -> Sequence[bytes]:
    """Ids, all of them formed as such. Raises CommandError."""
    if len(texts) > MOST_JOBS:
        raise CommandError(f"ERR at most {MOST_JOBS} jobs in one command")
    if not all(map(has_form, texts)):
        raise CommandError(BAD_ID)
    return texts


@dataclass(slots=True)
class AddOptions:
    """What ADDJOB asks for; times in seconds, the time-out in milliseconds, 0: none.

    ``replicate`` None: as many as is usual. Many jobs share it: nobody changes it once it is read.
    """

    timeout_ms: int = 0
    replicate: int | None = None
    delay: int = 0
    retry: int = -1
    ttl: int = DAY_S
    max_length: int = 0
    is_async: bool = False
    job: JobOptions = _NO_OPTIONS
    """What is stored with the job."""


def parse_add(arguments: Sequence[bytes], usual_replicas: int, node: str) -> AddOptions:
    """``ADDJOB queue job ms-timeout [option ...]``; ``node`` takes it. Raises CommandError."""
    words = tuple(arguments[3:])
    if len(words) <= _FEW_WORDS and sum(map(len, words)) <= _FEW_BYTES:
        return _known_add(words, usual_replicas, node)
    return _parse_add(words, usual_replicas, node)


def _parse_add(words: tuple[bytes, ...], usual_replicas: int, node: str) -> AddOptions:
    options = AddOptions()
    position = 1
    while position < len(words):
        name = words[position].lower()
        if name == b"async":
            options.is_async = True
            position += 1
            continue
        if position + 1 == len(words) or name not in _ADD:
            raise syntax_error()
        field_name, least, refusal = _ADD[name]
        number = to_integer(words[position + 1])
        most = MOST_REPLICAS if name == b"replicate" else _SECONDS
        if number is None or not least <= number <= most:
            raise CommandError(refusal)
        setattr(options, field_name, number)
        position += 2
    options.timeout_ms = need_timeout(words[0])
    replicate = usual_replicas if options.replicate is None else options.replicate
    _check_add(options, replicate)
    options.job = JobOptions(options.ttl, options.retry, options.delay, replicate, node[:8])
    return options


_known_add = lru_cache(maxsize=512)(_parse_add)  # clients mostly ask for the same


_ADD: Final = {
    b"replicate": ("replicate", 1, "ERR REPLICATE must be between 1 and 65535"),
    b"ttl": ("ttl", 1, "ERR TTL must be a number > 0"),
    b"retry": ("retry", 0, "ERR RETRY time must be a non negative number"),
    b"delay": ("delay", 0, "ERR DELAY time must be a non negative number"),
    b"maxlen": ("max_length", 1, "ERR MAXLEN must be a positive number"),
}


def _check_add(options: AddOptions, replicate: int) -> None:
    if replicate > 1 and options.retry == 0:
        raise CommandError(
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
        )
    if options.delay >= options.ttl:
        raise CommandError(
            "ERR The specified DELAY is greater than TTL. Job refused since would never be"
            " delivered"
        )
    if options.retry < 0:
        options.retry = max(min(options.ttl // 10, LONGEST_RETRY_S), 1)


@dataclass(slots=True)
class GetOptions:
    """What GETJOB asks for; the time-out in milliseconds, 0: none.

    Many commands share it: nobody changes it once it is read.
    """

    queues: Sequence[bytes]
    timeout_ms: int = 0
    count: int = 1
    is_nohang: bool = False
    with_counters: bool = False


def parse_get(arguments: Sequence[bytes]) -> GetOptions:
    """``GETJOB [option ...] FROM queue ...``. Raises CommandError."""
    words = tuple(arguments)
    if len(words) <= _FEW_WORDS and sum(map(len, words)) <= _FEW_BYTES:
        return _known_get(words)
    return _parse_get(words)


def _parse_get(arguments: tuple[bytes, ...]) -> GetOptions:
    options = GetOptions(())
    position = 1
    while position < len(arguments):
        name, is_last = arguments[position].lower(), position + 1 == len(arguments)
        if name == b"nohang":
            options.is_nohang = True
        elif name == b"withcounters":
            options.with_counters = True
        elif name == b"timeout" and not is_last:
            position += 1
            options.timeout_ms = need_timeout(arguments[position])
        elif name == b"count" and not is_last:
            position += 1
            count = to_integer(arguments[position])
            if count is None or count <= 0:
                raise CommandError("ERR COUNT must be a number greater than zero")
            options.count = min(count, MOST_JOBS)
        elif name == b"from" and not is_last:
            options.queues = arguments[position + 1 :]
            if len(options.queues) > MOST_QUEUES:
                raise CommandError(f"ERR at most {MOST_QUEUES} queues in one command")
            return options
        else:
            break
        position += 1
    raise syntax_error()


_known_get = lru_cache(maxsize=512)(_parse_get)  # as above


@dataclass(slots=True)
class ScanOptions:
    """What QSCAN and JSCAN ask for. -1: no such limit."""

    cursor: int = 0
    count: int = 100
    is_busy: bool = False
    least: int = -1
    most: int = -1
    import_rate: int = -1
    queue: bytes | None = None
    states: set[str] = field(default_factory=set)
    is_whole: bool = False


STATES: Final = frozenset({"wait-repl", "active", "queued", "acked"})
_QSCAN_NUMBERS: Final = {
    b"count": "count",
    b"minlen": "least",
    b"maxlen": "most",
    b"importrate": "import_rate",
}


def parse_qscan(arguments: Sequence[bytes]) -> ScanOptions:
    """``QSCAN [cursor] [option ...]``; the cursor may stand anywhere. Raises CommandError."""
    options, has_cursor, position = ScanOptions(), False, 1
    while position < len(arguments):
        name, is_last = arguments[position].lower(), position + 1 == len(arguments)
        if name in _QSCAN_NUMBERS and not is_last:
            position += 1
            setattr(options, _QSCAN_NUMBERS[name], need_integer(arguments[position]))
        elif name == b"busyloop":
            options.is_busy = True
        elif has_cursor:
            raise syntax_error()
        else:
            options.cursor, has_cursor = _cursor(arguments[position]), True
        position += 1
    return options


def parse_jscan(arguments: Sequence[bytes]) -> ScanOptions:
    """``JSCAN [cursor] [option ...]``; the cursor may stand anywhere. Raises CommandError."""
    options, has_cursor, position = ScanOptions(), False, 1
    while position < len(arguments):
        name, is_last = arguments[position].lower(), position + 1 == len(arguments)
        if name in {b"count", b"queue", b"state", b"reply"} and not is_last:
            position += 1
            _set_jscan(options, name, arguments[position])
        elif name == b"busyloop":
            options.is_busy = True
        elif has_cursor:
            raise syntax_error()
        else:
            options.cursor, has_cursor = _cursor(arguments[position]), True
        position += 1
    return options


def _set_jscan(options: ScanOptions, name: bytes, value: bytes) -> None:
    if name == b"count":
        options.count = need_integer(value)
    elif name == b"queue":
        options.queue = value
    elif name == b"state":
        state = value.decode("latin-1").lower()
        if state not in STATES:
            raise CommandError("ERR Invalid job state name")
        options.states.add(state)
    elif value.lower() in {b"all", b"id"}:
        options.is_whole = value.lower() == b"all"
    else:
        raise CommandError("ERR Invalid REPLY type, try ID or ALL")


def _cursor(text: bytes) -> int:
    is_number = len(text) <= _LONGEST_CURSOR and _CURSOR.fullmatch(text) is not None
    if not is_number or not -(1 << 63) <= int(text) < 1 << 64:
        raise CommandError("ERR invalid cursor or option name")
    return int(text) & ((1 << 64) - 1)  # as strtoul has it


@dataclass(slots=True)
class PauseOptions:
    """What PAUSE asks for: ``pause`` is none, in, out or all; None: it only asks."""

    pause: str | None = None
    is_for_all_nodes: bool = False


def parse_pause(arguments: Sequence[bytes]) -> PauseOptions:
    """``PAUSE queue option ...``. Raises CommandError."""
    options, paused = PauseOptions(), set[str]()
    for argument in arguments[2:]:
        name = argument.lower()
        if name == b"bcast":
            options.is_for_all_nodes = True
        elif name == b"none":
            paused.clear()
            options.pause = "none"
        elif name in {b"in", b"out", b"all"}:
            paused |= {"in", "out"} if name == b"all" else {name.decode()}
            options.pause = "all" if len(paused) > 1 else next(iter(paused))
        elif name != b"state":
            raise syntax_error()
    return options
