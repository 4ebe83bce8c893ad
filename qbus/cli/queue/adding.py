"""Adding jobs from the command line."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from qbus.cli.failures import Failure, describe
from qbus.cli.output import emit, note
from qbus.cli.targets import Target
from qbus.errors import QbusError

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
    target: Target,
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

    await ensure_reachable(target)
    async with Queue(
        target.bootstrap,
        name,
        **target.options,
        group=group,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    ) as queue:
        ids: list[str] = []
        results: list[str | None] = []
        try:
            async for some in _portions(bodies):
                await _add(queue, some, options, ids, say=None if as_json else _say(wait))
            if wait:
                await _wait(queue, ids, results, as_json=as_json)
        finally:
            if as_json:
                document: Document = {"queue": name, "ids": ids}
                emit(document | ({"results": results} if wait else {}), str, as_json=True)


def _say(wait: bool) -> Callable[[str], None]:
    """What prints ids: on stderr where results come on stdout."""
    return note if wait else click.echo


async def _add(
    queue: "Queue",
    bodies: Sequence[bytes],
    options: dict[str, Any],
    ids: list[str],
    say: Callable[[str], None] | None,
) -> None:
    """Add jobs, and print the ids of those that are stored. Raises the first error behind that."""
    adding = (queue.add(body, **options) for body in bodies)
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    added = [outcome for outcome in outcomes if isinstance(outcome, str)]
    ids += added
    if say is not None and added:
        say("\n".join(added))
    for error in outcomes:
        if isinstance(error, ValueError):
            raise Failure(str(error)) from error
        if isinstance(error, BaseException):
            raise error


async def _wait(
    queue: "Queue", ids: Sequence[str], results: list[str | None], *, as_json: bool
) -> None:
    """Print the results of jobs in their order, as they come. Raises Failure if some have none."""
    given_up = 0
    waiting = [asyncio.create_task(queue.wait(job_id)) for job_id in ids]
    try:
        for job_id, task in zip(ids, waiting, strict=True):
            try:
                result = await task
            except QbusError as error:
                given_up += 1
                result = None
                note(f"qbus: job {job_id}: {describe(error)}")
            results.append(_text(result))
            if not as_json:
                line = result or b""
                sys.stdout.buffer.write(line if line.endswith(b"\n") else line + b"\n")
                sys.stdout.flush()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    if given_up:
        raise Failure(f"{given_up} of {len(ids)} jobs were not done")


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
