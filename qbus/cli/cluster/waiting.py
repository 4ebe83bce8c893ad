"""`qbus cluster wait`: wait until a cluster is complete."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import click

from qbus.cli.failures import FINDINGS, Failure, describe
from qbus.cli.output import Document, note
from qbus.cli.units import counted, format_seconds
from qbus.errors import ApiError

_INTERVAL_S = 0.5
_REPEAT_S = 10.0
_NAMED = 5


async def wait_until_complete(
    read: Callable[[], Awaitable[Document]], brokers: int | None, timeout_ms: int
) -> Document:
    """Return the status once nothing is missing; say on stderr what is.

    read: returns the cluster's status, as ``status.gather`` does. brokers: how many have to be up;
    None: those that are registered or hold replicas. Exits with FINDINGS after ``timeout_ms``.
    """
    ends = time.monotonic() + timeout_ms / 1000
    remarks = _Remarks()
    reasons = ["an answer of a broker"]
    while (left := ends - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(left):
                document = await read()
        except TimeoutError:
            break
        except (Failure, ApiError) as error:
            reasons = [f"a broker: {describe(error)}"]
        else:
            reasons = missing(document, brokers)
            if not reasons:
                return document
        remarks.waits_for(reasons)
        await asyncio.sleep(min(_INTERVAL_S, max(0.0, ends - time.monotonic())))
    note(f"qbus: not complete after {format_seconds(timeout_ms / 1000)}: {'; '.join(reasons)}")
    raise click.exceptions.Exit(FINDINGS)


def missing(status: Document, brokers: int | None) -> list[str]:
    """What a cluster lacks, in words; nothing if it is complete."""
    if status["partitions"] is None:
        return ["an answer of a broker"]
    down = [str(broker["id"]) for broker in status["brokers"] if not broker["up"]]
    up = len(status["brokers"]) - len(down)
    reasons = []
    if down:
        reasons.append(f"{counted(len(down), 'broker')} down ({_some(down)})")
    if brokers is not None and up < brokers:
        reasons.append(f"{up} of {counted(brokers, 'broker')} up")
    if status["controller"] is None:
        reasons.append("no controller")
    for key, words in (("offline", "without a leader"), ("under_replicated", "under-replicated")):
        found = [f"{place['topic']}-{place['partition']}" for place in status[key]]
        if found:
            reasons.append(f"{counted(len(found), 'partition')} {words} ({_some(found)})")
    return reasons


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


class _Remarks:
    """Prints what is waited for when that changes, and again every ten seconds."""

    def __init__(self) -> None:
        self._last = ""
        self._printed_at = 0.0

    def waits_for(self, reasons: list[str]) -> None:
        text, now = "; ".join(reasons), time.monotonic()
        if text != self._last or now - self._printed_at >= _REPEAT_S:
            note(f"waiting for the cluster: {text}")
            self._last, self._printed_at = text, now
