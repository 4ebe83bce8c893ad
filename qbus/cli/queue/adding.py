"""Adding jobs from the command line."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from qbus.cli.failures import Failure
from qbus.cli.output import emit, note

if TYPE_CHECKING:
    from qbus.cli.output import Document
    from qbus.clients import Queue

_AT_ONCE = 1000


async def bodies_of_stdin() -> AsyncIterator[Sequence[bytes]]:
    """The lines of stdin, many at a time."""
    from qbus.cli.produce.lines import opened, read_lines

    with opened("-") as source:
        if source.is_terminal:
            note("Each line is a job; Ctrl-D ends the input.")
        async for lines in read_lines(source.descriptor):
            yield lines


async def add_jobs(
    bootstrap: str,
    name: str,
    group: str,
    bodies: Sequence[bytes] | AsyncIterator[Sequence[bytes]],
    options: dict[str, Any],
    *,
    wait: bool,
    as_json: bool,
) -> None:
    """Add a job for each body, and print the ids; ``wait``: the results, once there are all."""
    from qbus.cli.session import REQUEST_TIMEOUT_MS, ensure_reachable
    from qbus.clients import Queue

    await ensure_reachable(bootstrap)
    async with Queue(bootstrap, name, group=group, request_timeout_ms=REQUEST_TIMEOUT_MS) as queue:
        ids: list[str] = []
        async for some in _portions(bodies):
            added = await _add(queue, some, options)
            ids += added
            if not (as_json or wait):
                click.echo("\n".join(added))
        if not (as_json or wait):
            return
        document: Document = {"queue": name, "ids": ids}
        if wait:
            results = await asyncio.gather(*(queue.wait(job_id) for job_id in ids))
            document["results"] = [_text(result) for result in results]
            if not as_json:
                sys.stdout.buffer.write(b"".join((result or b"") + b"\n" for result in results))
                sys.stdout.flush()
                return
        emit(document, lambda _: None, as_json=True)


async def _add(queue: "Queue", bodies: Sequence[bytes], options: dict[str, Any]) -> list[str]:
    try:
        return await asyncio.gather(*(queue.add(body, **options) for body in bodies))
    except ValueError as error:
        raise Failure(str(error)) from error


async def _portions(
    bodies: Sequence[bytes] | AsyncIterator[Sequence[bytes]],
) -> AsyncIterator[Sequence[bytes]]:
    if isinstance(bodies, Sequence):
        bodies = _once(bodies)
    async for some in bodies:
        for first in range(0, len(some), _AT_ONCE):
            yield some[first : first + _AT_ONCE]


async def _once(bodies: Sequence[bytes]) -> AsyncIterator[Sequence[bytes]]:
    yield bodies


def _text(result: bytes | None) -> str | None:
    return None if result is None else result.decode(errors="replace")
