"""The forms of ``send``: with a key, headers, a timestamp, a partition, a callback, and where to;
and those of reading what they sent.

The loop of each form is compiled from a template, as ``timeit`` does, so that it costs what a
program with just this form pays. Every client runs the same loop.
"""

from collections.abc import Callable, Iterator
from itertools import count, cycle, islice
from typing import Any, NamedTuple

_KEYS = 1000
_FIRST_TIMESTAMP = 1_700_000_000_000


class Form(NamedTuple):
    """One way to send.

    arguments: those besides topic and value. acks: idempotent with "all", not with "1".
    per_transaction: the records of each transaction; 0: none are used. is_secured: with SCRAM over
    TLS.
    """

    arguments: tuple[str, ...] = ()
    topics: int = 1
    partitions: int = 1
    compression: str = "none"
    acks: str = "all"
    per_transaction: int = 0
    is_secured: bool = False


SHARING = ("share", "share by batches")
"""The protocols of share groups."""

FORMS = {
    "value": Form(),
    "key": Form(("key",)),
    "headers": Form(("headers",)),
    "timestamp": Form(("timestamp",)),
    "partition": Form(("partition",), partitions=4),
    "callback": Form(("on_delivery",)),
    "everything": Form(("key", "headers", "timestamp", "partition", "on_delivery"), partitions=4),
    "10 topics": Form(("key",), topics=10),
    "60 partitions, no key": Form(partitions=60),
    "60 partitions, by key": Form(("key",), partitions=60),
    "key, lz4": Form(("key",), compression="lz4"),
    "key, zstd": Form(("key",), compression="zstd"),
    "key, snappy": Form(("key",), compression="snappy"),
    "key, gzip": Form(("key",), compression="gzip"),
    "acks=1": Form(acks="1"),
    "transactions of 10,000": Form(per_transaction=10_000),
    "transactions of 1,000": Form(per_transaction=1_000),
    "SCRAM over TLS": Form(is_secured=True),
}


class Reading(NamedTuple):
    """One way to read what was sent in a form: assigned, or as the only member of a group.

    protocol: that of the group; "": there is none; those of :data:`SHARING`: a share group, of
        which the SDK takes records one by one, or whole batches as librdkafka does, and accepts
        all.
    is_committed: only what was committed is read.
    """

    form: str
    protocol: str = ""
    is_committed: bool = False


READINGS = {
    "value": Reading("value"),
    "key": Reading("key"),
    "headers": Reading("headers"),
    "key, lz4": Reading("key, lz4"),
    "key, zstd": Reading("key, zstd"),
    "60 partitions": Reading("60 partitions, by key"),
    "in a group": Reading("value", "classic"),
    "in a group, 60 partitions": Reading("60 partitions, by key", "classic"),
    "in a group of the consumer protocol": Reading("value", "consumer"),
    "in a share group": Reading("value", "share"),
    "in a share group, by batches": Reading("value", "share by batches"),
    "committed": Reading("transactions of 1,000", is_committed=True),
    "SCRAM over TLS": Reading("SCRAM over TLS"),
}

_LOOP = """
{define} loop(send, make_room, rows, on_delivery):
    for topic, value, key, timestamp, partition in rows:
        try:
            {call} send(topic, value{arguments})
        except BufferError:
            make_room(topic, value{arguments})
        {after}
"""
_ARGUMENTS = {
    "key": "key=key",
    "headers": "headers=[('trace', key), ('kind', b'order')]",
    "timestamp": "timestamp=timestamp",
    "partition": "partition=partition",
    "on_delivery": "on_delivery=on_delivery",
}


_VOLUME = """
def volume_of(records):
    volume = 0
    for record in records:
        {check}
        volume += {volume}
    return volume
"""
_ITERATE = """
{define} iterate(consumer, count):
    volume = 0
    {each} record in consumer:
        volume += {volume}
        count -= 1
        if not count:
            return volume
"""
_KEY = "key-%07d"
_HEADERS = 2


def loop(form: Form, *, is_async: bool = False, after: str = "pass") -> Callable[..., Any]:
    """Compile the loop of a form. ``after``: a statement that follows each send."""
    arguments = "".join(f", {_ARGUMENTS[name]}" for name in form.arguments)
    source = _LOOP.format(
        define="async def" if is_async else "def",
        call="await" if is_async else "",
        arguments=arguments,
        after=after,
    )
    return _compiled(source, "loop")


def volume_of(form: Form, *, call: str = "", check: str = "pass") -> Callable[..., int]:
    """Compile a function that adds up what records in a list have; see :func:`volume`.

    ``call``: "()" where parts of a record are methods. ``check``: a statement for each.
    """
    return _compiled(_VOLUME.format(check=check, volume=_lengths(form, call)), "volume_of")


def iterate(form: Form, *, is_async: bool = False) -> Callable[..., Any]:
    """Compile a loop over a consumer that does the same for a number of records."""
    source = _ITERATE.format(
        define="async def" if is_async else "def",
        each="async for" if is_async else "for",
        volume=_lengths(form, ""),
    )
    return _compiled(source, "iterate")


def volume(form: Form, total: int, size: int) -> int:
    """Return the bytes of values and keys and the number of headers that are to be read."""
    has_key, has_headers = ("key" in form.arguments), ("headers" in form.arguments)
    return total * (size + has_key * len(_KEY % 0) + has_headers * _HEADERS)


def _lengths(form: Form, call: str) -> str:
    parts = [part for part in ("key", "headers") if part in form.arguments]
    return " + ".join(f"len(record.{part}{call})" for part in ("value", *parts))


def _compiled(source: str, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    compiled: Callable[..., Any] = namespace[name]
    return compiled


def transactions(form: Form, every: Iterator[Any]) -> Iterator[Any]:
    """Cut all rows into those of each transaction; only with ``per_transaction``."""
    while some := list(islice(every, form.per_transaction)):
        yield some


def stored(form: Form, total: int) -> int:
    """Return how far offsets have come when ``total`` records and transactions' ends are stored."""
    return total + (-(-total // form.per_transaction) if form.per_transaction else 0)


def topic_names(form: Form, first: str) -> list[str]:
    """Return the topics that a form sends to."""
    return [first, *(f"{first}-{index}" for index in range(1, form.topics))]


def rows(form: Form, topic: str, values: list[bytes], total: int) -> Iterator[tuple[Any, ...]]:
    """Yield topic, value, key, timestamp and partition of each record."""
    keys = [(_KEY % (7919 * number)).encode() for number in range(_KEYS)]
    columns = zip(
        cycle(topic_names(form, topic)),
        cycle(values),
        cycle(keys),
        count(_FIRST_TIMESTAMP),
        cycle(range(form.partitions)),
        strict=False,
    )
    return islice(columns, total)
