"""A process that loads a server, is told what to do a line at a time, and says why it failed."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

_ANSWER_S = 600.0
_LONGEST = 4000
"""Bytes of what a process wrote to standard error that are told."""


class LoadFailedError(RuntimeError):
    """A process that loads a server ended too early, or did not answer."""


class LoadProcess:
    """Python with arguments, killed on exit. Errors have what it wrote to standard error.

    ``name``: what it is called in errors.
    """

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is killed
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def say(self, word: str) -> float:
        """Tell it a word; return when. Raises LoadFailedError if it runs no more."""
        assert self._process.stdin is not None
        now = time.monotonic()
        try:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failed(f"was gone before it was told to {word!r}") from None
        return now

    def line(self, timeout: float = _ANSWER_S) -> str:
        """Return the next line of its output. Raises LoadFailedError if none comes in time."""
        assert self._process.stdout is not None
        late = threading.Timer(timeout, self._process.kill)
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if not line.endswith("\n"):
            raise self._failed(f"gave no answer within {timeout:g} s")
        return line

    def wait(self, timeout: float) -> None:
        """Return when it has ended well. Raises LoadFailedError if it does not in time."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not end within {timeout:g} s") from None
        if code:
            raise self._failed("failed")

    def kill(self) -> float:
        """End it at once; return when. Harmless when it has ended."""
        now = time.monotonic()
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError):  # what it was not told any more
                stream.close()
        self._errors.close()
        return now

    def _failed(self, how: str) -> LoadFailedError:
        try:
            state = f"its exit code is {self._process.wait(1.0)}"
        except subprocess.TimeoutExpired:
            state = "it runs still"
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(size - _LONGEST, 0))
        told = self._errors.read().decode(errors="replace").strip()
        return LoadFailedError(
            f"the load {self.name} {how}: {state}, and it wrote: {told or 'nothing'}"
        )
