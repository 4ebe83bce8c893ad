"""Putting dead letters back into their queues."""

import time
from typing import TYPE_CHECKING

from qbus import dead_letters
from qbus.cli.queue.topics import create_queue
from qbus.cli.targets import Target
from qbus.clients import Producer, ShareConsumer
from qbus.clients.types import ConfigKind
from qbus.jobs import JOB

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from qbus.cli.output import Document
    from qbus.clients import ShareRecord

_PATIENCE_S = 5.0
_POLL_S = 0.5
_PREFIX = "__dlq."
_DELAYS = frozenset(("qbus-delay", "qbus-deliver-at", "qbus-delayed-offset"))


async def redrive_letters(
    target: Target,
    topic: str,
    to: str | None,
    count: int | None,
    group: str,
    patience_s: float = _PATIENCE_S,
) -> "Document":
    """Send the records of ``topic`` to where they came from, or ``to``, as long as there are some.

    There are no more when none came for ``patience_s``. Each is sent without the headers that say
    why it failed, and accepted once it is stored.
    """
    from qbus.cli.session import REQUEST_TIMEOUT_MS, admin_of, check_read, ensure_reachable

    await ensure_reachable(target)
    timeout = REQUEST_TIMEOUT_MS
    async with admin_of(target) as admin:
        await admin.describe_topic(topic)
        if to is not None:
            await create_queue(
                admin, to, partitions=None, replication_factor=None, config={}, is_needed=False
            )
        begins_early = {"share.auto.offset.reset": "earliest"}
        await admin.alter_config(ConfigKind.GROUP, group, set=begins_early)
    put_back = skipped = 0
    async with (
        Producer(
            target.bootstrap,
            **target.options,
            request_timeout_ms=timeout,
            client_id="qbus-redrive",
        ) as producer,
        ShareConsumer(
            target.bootstrap,
            group,
            [topic],
            **target.options,
            acknowledge="explicit",
            acquire="records",
            max_poll_records=100,
            request_timeout_ms=timeout,
            client_id="qbus-redrive",
        ) as letters,
    ):
        async for letter in _letters(letters, patience_s):
            place = to or _came_from(letter)
            if place is None:
                skipped += 1
                continue  # given back when this ends
            await producer.send_and_wait(
                place, letter.value, letter.key, _headers(letter), timestamp=_timestamp(letter)
            )
            letters.accept(letter)
            put_back += 1
            if put_back == count:
                break
        else:
            check_read(letters._cluster)
    return {"topic": topic, "records": put_back, "skipped": skipped}


async def _letters(letters: ShareConsumer, patience_s: float) -> "AsyncIterator[ShareRecord]":
    """The records that come until none came for so long, counted from the first assignment."""
    waits_since: float | None = None
    while waits_since is None or time.monotonic() - waits_since < patience_s:
        records = await letters.poll(_POLL_S, max_records=1)
        for record in records:
            yield record
        if records:
            waits_since = None
        elif waits_since is None and letters.assignment:
            waits_since = time.monotonic()


def _came_from(letter: "ShareRecord") -> str | None:
    for name, value in letter.headers:
        if name == dead_letters.TOPIC and value is not None:
            return value.decode(errors="replace")
    return None


def _headers(letter: "ShareRecord") -> list[tuple[str, bytes | None]]:
    return [
        (name, value)
        for name, value in letter.headers
        if not name.startswith(_PREFIX) and name not in _DELAYS
    ]


def _timestamp(letter: "ShareRecord") -> int | None:
    """Now for a job, whose time to live begins anew; its own for other records."""
    return None if any(name == JOB for name, _ in letter.headers) else letter.timestamp
