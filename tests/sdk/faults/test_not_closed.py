"""A program that forgets to close its producer loses nothing, or hears what it lost."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from qbus.clients.spool import Spool
from tests.sdk.conftest import with_qbus
from tests.sdk.reading import read_topic
from tests.support.ports import free_port

COUNT = 1000


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own, as a user would."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


ENDS = {
    "at the end of the script": """
        producer = qbus.Producer(sys.argv[1])
        for number in range(1000):
            producer.send(sys.argv[2], b"%d" % number)
    """,
    "in a function that returns": """
        def work():
            producer = qbus.Producer(sys.argv[1])
            for number in range(1000):
                producer.send(sys.argv[2], b"%d" % number)
        work()
    """,
    "after an error": """
        producer = qbus.Producer(sys.argv[1])
        for number in range(1000):
            producer.send(sys.argv[2], b"%d" % number)
        raise ValueError
    """,
    "with a spool": """
        import tempfile
        producer = qbus.Producer(sys.argv[1], spool_dir=tempfile.mkdtemp())
        for number in range(1000):
            producer.send(sys.argv[2], b"%d" % number)
    """,
    "where warnings are errors": """
        import warnings
        warnings.simplefilter("error")
        producer = qbus.Producer(sys.argv[1])
        for number in range(1000):
            producer.send(sys.argv[2], b"%d" % number)
    """,
    "by sys.exit in a thread's time": """
        import threading
        def work():
            producer = qbus.Producer(sys.argv[1])
            for number in range(1000):
                producer.send(sys.argv[2], b"%d" % number)
        threading.Thread(target=work).start()
    """,
}


@with_qbus
@pytest.mark.parametrize("end", ENDS)
async def test_sent_records_are_delivered_at_exit(bootstrap: str, topic: str, end: str) -> None:
    done = run("import qbus, sys\n" + textwrap.dedent(ENDS[end]), bootstrap, topic)
    assert done.returncode == (1 if "ValueError" in ENDS[end] else 0), done.stderr
    assert "could not be closed" not in done.stderr
    found = await read_topic(bootstrap, topic, COUNT)
    assert sorted(int(record.value or b"") for record in found) == list(range(COUNT))


@with_qbus
async def test_a_handle_keeps_its_producer_at_work(bootstrap: str, topic: str) -> None:
    done = run(
        """
        import qbus, sys
        print(qbus.Producer(sys.argv[1]).send(sys.argv[2], b"x").result(10).offset)
        """,
        bootstrap,
        topic,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@with_qbus
async def test_undeliverable_records_are_counted(bootstrap: str, topic: str) -> None:
    """The broker goes away after the first record: the program ends in time, and says so."""
    done = run(
        """
        import qbus, sys
        producer = qbus.Producer(sys.argv[1], delivery_timeout_ms=1500, request_timeout_ms=1000)
        producer.send(sys.argv[2], b"x").result(10)
        cluster = producer._client._cluster
        cluster._bootstrap = type(cluster._bootstrap)("127.0.0.1:" + sys.argv[3])
        producer._thread.run(cluster._pool.close())
        for number in range(1000):
            producer.send(sys.argv[2], b"%d" % number)
        """,
        bootstrap,
        topic,
        str(free_port()),
    )
    assert "1000 records were not delivered" in done.stderr


@with_qbus
async def test_undeliverable_records_are_spooled(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    done = run(
        """
        import qbus, sys
        producer = qbus.Producer(
            sys.argv[1], delivery_timeout_ms=1500, request_timeout_ms=1000, spool_dir=sys.argv[4]
        )
        producer.send(sys.argv[2], b"x").result(10)
        cluster = producer._client._cluster
        cluster._bootstrap = type(cluster._bootstrap)("127.0.0.1:" + sys.argv[3])
        producer._thread.run(cluster._pool.close())
        for number in range(1000):
            producer.send(sys.argv[2], b"%d" % number)
        """,
        bootstrap,
        topic,
        str(free_port()),
        str(tmp_path),
    )
    assert "Traceback" not in done.stderr
    kept = [
        header.records_count for queue in Spool(tmp_path).queues() for header, _ in queue.batches()
    ]
    assert sum(kept) == 1000


@with_qbus
async def test_an_event_loop_that_ended_too_early_is_told_of(bootstrap: str, topic: str) -> None:
    done = run(
        """
        import asyncio, qbus.aio, sys
        async def main():
            producer = qbus.aio.Producer(sys.argv[1], linger_ms=1000)
            for number in range(10):
                await producer.send(sys.argv[2], b"x")
        asyncio.run(main())
        """,
        bootstrap,
        topic,
    )
    assert "10 records were not delivered: their producer was never closed" in done.stderr
