"""`qbus queue add`: what was stored is said, also when the rest was not."""

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from qbus.cli.failures import Failure
from qbus.cli.queue.adding import _add, _wait, add_jobs
from qbus.cli.targets import Target
from qbus.clients import JobGivenUp, Queue
from qbus.errors import ApiError, ErrorCode

from .fake_queue import fake_queue


class Jobs:
    """A queue that stores what is not ``b"bad"``, and knows results."""

    results: Mapping[str, bytes | Exception | None] = MappingProxyType({"1": b"one", "2": None})

    async def add(self, body: bytes, **_: Any) -> str:
        await asyncio.sleep(0)
        if body == b"bad":
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        return body.decode()

    async def wait(self, job_id: str) -> bytes | None:
        found = self.results.get(job_id, JobGivenUp("given up"))
        if isinstance(found, Exception):
            raise found
        return found


def as_queue(jobs: Jobs) -> Queue:
    return jobs  # type: ignore[return-value]


async def test_the_ids_of_what_was_stored_are_said_before_the_error() -> None:
    ids: list[str] = []
    said: list[str] = []
    with pytest.raises(ApiError, match="too large"):
        await _add(as_queue(Jobs()), [b"1", b"bad", b"2"], {}, ids, said.append)
    assert ids == ["1", "2"]
    assert said == ["1\n2"]


async def test_results_in_order_and_who_has_none(capfdbinary: Any) -> None:
    results: list[str | None] = []
    with pytest.raises(Failure, match="1 of 3 jobs were not done"):
        await _wait(as_queue(Jobs()), ["1", "3", "2"], results, as_json=False)
    assert results == ["one", None, None]
    captured = capfdbinary.readouterr()
    assert captured.out == b"one\n\n\n"
    assert captured.err == b"qbus: job 3: given up\n"


async def test_bodies_become_jobs(capfd: pytest.CaptureFixture[str]) -> None:
    async with fake_queue() as fake:
        options: dict[str, Any] = {"ttl": "1h"}
        place = (Target(fake.broker.bootstrap), "q", "disque")
        await add_jobs(*place, [b"a", b"b"], options, wait=False, as_json=False)
        assert len(capfd.readouterr().out.split()) == 2
        await add_jobs(*place, [b"c"], options, wait=False, as_json=True)
        document = json.loads(capfd.readouterr().out)
        assert (document["queue"], len(document["ids"])) == ("q", 1)
        assert fake.broker.logs["q", 0].values() == [b"a", b"b", b"c"]
