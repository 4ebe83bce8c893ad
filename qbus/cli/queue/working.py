"""Running a command for each job of a queue."""

import asyncio
import errno
import os
import shutil
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from qbus.cli.failures import Failure, describe
from qbus.cli.output import note
from qbus.cli.targets import Target
from qbus.delay import parse_duration
from qbus.errors import QbusError
from qbus.service.backoff import Backoff

if TYPE_CHECKING:
    from qbus.cli.output import Document
    from qbus.clients import Job, Queue

_POLL_S = 1.0
_KILL_AFTER_S = 5.0
_SHORTEST_RENEWAL_S = 1.0
_NOT_RUN = 126  # as shells say it
_RUN_AGAIN_S = 1.0
_RUN_AGAIN_AT_MOST_S = 30.0
_PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})


class Work:
    """Runs ``command`` with each job's body on stdin; its exit code says what became of the job.

    A command that ran before and cannot be run now, as while it is replaced, is tried again; the
    worker keeps the job until then.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        backoff: str | None = None,
        keeps_result: bool = False,
        is_quiet: bool = False,
    ) -> None:
        """``backoff``: how long a failed job waits, instead of as long as the group says.

        ``is_quiet``: what the command prints on stdout goes to stderr.

        Raises Failure for a command that does not exist.
        """
        if shutil.which(command[0]) is None:
            raise Failure(f"{command[0]}: there is no such command")
        self._name = name
        self._command = command
        self._backoff = backoff
        self._stdout = PIPE if keeps_result else sys.stderr if is_quiet else None
        self._done = self._failed = self._lost = 0
        self._begun = 0
        self._running = 0
        self._idle_since = 0.0
        self._has_run = False

    async def run(
        self,
        target: Target,
        group: str,
        *,
        parallel: int,
        count: int | None,
        idle: str | None,
    ) -> "Document":
        """Work until ``count`` jobs were begun, or there was none for ``idle``; count them."""
        from qbus.cli.session import REQUEST_TIMEOUT_MS, ensure_reachable
        from qbus.clients import Queue

        await ensure_reachable(target)
        began = time.monotonic()
        idle_s = None if idle is None else parse_duration(idle) / 1000
        self._idle_since = began
        timeout_ms = REQUEST_TIMEOUT_MS
        try:
            async with (
                Queue(
                    target.bootstrap,
                    self._name,
                    **target.options,
                    group=group,
                    request_timeout_ms=timeout_ms,
                ) as queue,
                asyncio.TaskGroup() as workers,
            ):
                if await queue.create_if_missing():
                    note(f"Created queue {self._name}.")
                for _ in range(parallel):
                    workers.create_task(self._work(queue, count, idle_s))
        except ExceptionGroup as error:
            raise error.exceptions[0] from error
        return {
            "queue": self._name,
            "done": self._done,
            "failed": self._failed,
            "lost": self._lost,
            "seconds": round(time.monotonic() - began, 3),
        }

    async def _work(self, queue: "Queue", count: int | None, idle_s: float | None) -> None:
        from qbus.cli.session import check_read

        while count is None or self._begun < count:
            self._begun += 1
            job = await queue.get(_POLL_S)
            if job is None:
                self._begun -= 1
                if idle_s is not None and self._idle_for() >= idle_s:
                    check_read(queue._consumer._cluster)
                    return
                continue
            self._running += 1
            try:
                await self._do(queue, job)
            finally:
                self._running -= 1
                self._idle_since = time.monotonic()

    def _idle_for(self) -> float:
        """Seconds since the last command ended."""
        return 0.0 if self._running else time.monotonic() - self._idle_since

    async def _do(self, queue: "Queue", job: "Job") -> None:
        renewing = asyncio.create_task(_keep(queue, job))
        try:
            code, output = await self._execute(job)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
        try:
            if code == 0:
                await queue.ack(job, output)
                self._done += 1
            else:
                self._failed += 1
                note(f"qbus: job {job.id}: {self._command[0]} ended with {code}")
                if job.retry:
                    await queue.nack(job, delay=self._backoff)
        except QbusError as error:
            self._lost += 1
            note(f"qbus: {_of(job, error)}")

    async def _execute(self, job: "Job") -> tuple[int, bytes | None]:
        """Run the command; return its exit code, negative for a signal, and its result.

        Raises Failure if it cannot be run at all, and never could be.
        """
        backoff = Backoff(_RUN_AGAIN_S, _RUN_AGAIN_AT_MOST_S)
        while True:
            try:
                process = await self._start(job)
                break
            except OSError as error:
                if error.errno == errno.E2BIG:  # the job's fault
                    note(f"qbus: job {job.id}: {error.strerror}")
                    return _NOT_RUN, None
                if not self._has_run and error.errno not in _PASSING:
                    raise Failure(
                        f"{self._command[0]}: {error.strerror} (job {job.id} is given back)"
                    ) from error
                wait_s = backoff.failed()
                note(
                    f"qbus: job {job.id}: {self._command[0]}: {error.strerror}: trying again in"
                    f" {wait_s:.0f} s"
                )
                await asyncio.sleep(wait_s)
        self._has_run = True
        try:
            output, _ = await process.communicate(job.body or None)
        except BaseException:
            await _end(process)
            raise
        assert process.returncode is not None
        return process.returncode, output

    async def _start(self, job: "Job") -> Process:
        """Start the command for a job. Raises OSError."""
        sys.stdout.flush()
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE if job.body else DEVNULL,
            stdout=self._stdout,
            env={**os.environ, **_environment(job)},
            start_new_session=True,  # so that all it starts can be ended with it
        )


def _of(job: "Job", error: QbusError) -> str:
    """What went wrong with a job, which is named once."""
    text = describe(error)
    return text if job.id in text else f"job {job.id}: {text}"


def _environment(job: "Job") -> dict[str, str]:
    key = {} if job.key is None else {"QBUS_JOB_KEY": os.fsdecode(job.key.replace(b"\0", b""))}
    return {
        "QBUS_QUEUE": job.queue,
        "QBUS_JOB_ID": job.id,
        "QBUS_DELIVERIES": str(job.deliveries),
        "QBUS_TOPIC": job.record.topic,
        "QBUS_PARTITION": str(job.record.partition),
        "QBUS_OFFSET": str(job.record.offset),
        **key,
    }


async def _keep(queue: "Queue", job: "Job") -> None:
    """Keep others from getting a job while its command runs."""
    while job.retry:
        await asyncio.sleep(max(job.retry / 2, _SHORTEST_RENEWAL_S))
        try:
            await queue.working(job)
        except QbusError as error:
            note(f"qbus: {_of(job, error)}")
            return


async def _end(process: Process) -> None:
    """End a command and what it has started: first asking it."""
    ended = asyncio.create_task(process.wait())
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, kind)
        await asyncio.wait([ended], timeout=_KILL_AFTER_S)
    ended.cancel()
    process._transport.close()  # type: ignore[attr-defined]  # another may hold its pipes open
