"""The forms of ``send``: with a key, headers, a timestamp, a partition, a callback, and where to.

The loop of each form is compiled from a template, as ``timeit`` does, so that it costs what a
program with just this form pays. Every client runs the same loop.
"""

from collections.abc import Callable, Iterator
from itertools import count, cycle, islice
from typing import Any, NamedTuple

_KEYS = 1000
_FIRST_TIMESTAMP = 1_700_000_000_000


class Form(NamedTuple):
    """One way to send. ``arguments``: those besides topic and value."""

    arguments: tuple[str, ...] = ()
    topics: int = 1
    partitions: int = 1
    compression: str = "none"


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


def loop(form: Form, *, is_async: bool = False, after: str = "pass") -> Callable[..., Any]:
    """Compile the loop of a form. ``after``: a statement that follows each send."""
    arguments = "".join(f", {_ARGUMENTS[name]}" for name in form.arguments)
    source = _LOOP.format(
        define="async def" if is_async else "def",
        call="await" if is_async else "",
        arguments=arguments,
        after=after,
    )
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    compiled: Callable[..., Any] = namespace["loop"]
    return compiled


def topic_names(form: Form, first: str) -> list[str]:
    """Return the topics that a form sends to."""
    return [first, *(f"{first}-{index}" for index in range(1, form.topics))]


def rows(form: Form, topic: str, values: list[bytes], total: int) -> Iterator[tuple[Any, ...]]:
    """Yield topic, value, key, timestamp and partition of each record."""
    keys = [b"key-%06d" % (7919 * number) for number in range(_KEYS)]
    columns = zip(
        cycle(topic_names(form, topic)),
        cycle(values),
        cycle(keys),
        count(_FIRST_TIMESTAMP),
        cycle(range(form.partitions)),
        strict=False,
    )
    return islice(columns, total)
