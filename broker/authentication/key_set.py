"""The keys that sign tokens: read from a file or an address in a thread, and kept.

They are read at the start, again after the refresh interval, and when a token names a key that is
not known: at most once in the retry interval, whoever sends such tokens and how many. A key set
that cannot be read leaves the last one in use; before the first one, no token is accepted.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

from .tokens import SigningKey, read_key_set

_log = logging.getLogger(__name__)

_MAX_BYTES: Final = 1024 * 1024
_TIMEOUT_S: Final = 10.0


class KeySet:
    """The keys as they were read last. Used from one event loop."""

    def __init__(
        self,
        url: str,
        *,
        refresh_s: float,
        retry_s: float,
        now: Callable[[], float],
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        """``now``: seconds of a monotonic clock. ``read`` stands in for the network in tests."""
        self.failures = 0
        self._url = url
        self._refresh_s = refresh_s
        self._retry_s = retry_s
        self._now = now
        self._read = read or fetch
        self._keys: list[SigningKey] = []
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    def find(self, kid: str | None) -> list[SigningKey]:
        """The keys with this id; all, if the token names none."""
        return [key for key in self._keys if kid is None or key.kid == kid]

    async def look_after(self) -> None:
        """Read the keys if it is time for that. To be called every few seconds."""
        if self._read_at is None or self._now() - self._read_at >= self._refresh_s:
            await self.reload()

    async def reload(self) -> bool:
        """Read the keys again, unless that was tried just now; whether it was done."""
        reading = self._reading
        if reading is None:
            if self._tried_at is not None and self._now() - self._tried_at < self._retry_s:
                return False
            self._tried_at = self._now()
            reading = self._reading = asyncio.create_task(self._load())
        await asyncio.shield(reading)
        return True

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()

    async def _load(self) -> None:
        try:
            data = await asyncio.to_thread(self._read, self._url)
            keys = read_key_set(json.loads(data))
            if not keys:
                raise ValueError("there is no public key for signatures in it")
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            self.failures += 1
            _log.error(
                "the keys of tokens cannot be read from %s: %s; the last ones stay in use: %d",
                shown(self._url),
                error,
                len(self._keys),
            )
        else:
            self._keys, self._read_at = keys, self._now()
        finally:
            self._reading = None


class _NoRedirects(HTTPRedirectHandler):
    """Keys come from where the configuration says, and from nowhere else."""

    def redirect_request(self, *_args: object) -> None:
        """Follow none: the answer's status becomes an error."""


def fetch(url: str) -> bytes:
    """Read a key set; certificates are verified as the system does it.

    Raises:
        OSError, HTTPException, ValueError: it cannot be read, or is too long.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    else:
        # http is for this machine alone: no proxy that the environment names may answer for it.
        direct = [ProxyHandler({})] if parts.scheme == "http" else []
        with build_opener(_NoRedirects, *direct).open(url, timeout=_TIMEOUT_S) as answer:
            data = answer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it is longer than {_MAX_BYTES} bytes")
    return data


def shown(url: str) -> str:
    """An address for a log line: without user, password and query, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
