"""Sync and async clients have the same surface; sync clients withstand threads and forks."""

import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading

import pytest

import qbus
import qbus.aio
from qbus.errors import QbusError
from tests.sdk.conftest import with_qbus
from tests.sdk.ledger import by_partition
from tests.sdk.reading import read_topic

KINDS = ("Producer", "Consumer", "Admin")
_OF_ONE_FACE = {"over", "transactions"}
"""What makes a client of connections that are shared, and what the other face stands on."""


def public(sdk: object, kind: str) -> dict[str, inspect.Signature | None]:
    """The public names of a client, with the parameters of those that are called."""
    cls = getattr(sdk, kind)
    names = [name for name in dir(cls) if not name.startswith("_") and name not in _OF_ONE_FACE]
    return {
        name: _parameters(getattr(cls, name)) if callable(getattr(cls, name)) else None
        for name in names
    }


def _parameters(function: object) -> inspect.Signature:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return inspect.Signature(bare)


@pytest.mark.parametrize("kind", KINDS)
def test_both_have_the_same_methods_and_arguments(kind: str) -> None:
    assert public(qbus, kind) == public(qbus.aio, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_both_have_the_same_options(kind: str) -> None:
    ours, theirs = (inspect.signature(getattr(sdk, kind)).parameters for sdk in (qbus, qbus.aio))
    options = {name: theirs[name].default for name in theirs if name != "clock"}  # for tests alone
    assert {name: ours[name].default for name in ours} == options


@with_qbus
async def test_any_number_of_threads_may_send(bootstrap: str, topic: str) -> None:
    """Nothing is lost, and each thread's records stay in the order of its sends."""
    count, threads = 1_000, 4

    def send(producer: "qbus.Producer", thread: int) -> None:
        for number in range(count):
            producer.send(topic, b"%d" % number, key=b"%d" % thread)

    def run() -> None:
        with qbus.Producer(bootstrap, batch_bytes=2_000) as producer:
            workers = [threading.Thread(target=send, args=(producer, i)) for i in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    await asyncio.to_thread(run)
    stored = by_partition(await read_topic(bootstrap, topic, count * threads))
    for thread in range(threads):
        (values,) = (
            mine
            for records in stored.values()
            if (mine := [int(r.value or b"") for r in records if r.key == b"%d" % thread])
        )
        assert values == list(range(count))


def run_program(program: str, *arguments: str) -> str:
    """Run a program that has to end by itself without an error; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@with_qbus
def test_a_program_that_forgets_its_clients_ends(bootstrap: str, name: str) -> None:
    program = """
        import sys
        from qbus import Admin, Consumer, Producer
        bootstrap, topic = sys.argv[1:]
        producer, admin = Producer(bootstrap), Admin(bootstrap)
        print(producer.send(topic, b"v").result(30).offset)
        consumer = Consumer(bootstrap, group=topic, offset_reset="earliest")
        consumer.subscribe([topic])
        while not consumer.poll(1.0):
            pass
        print(admin.describe_topic(topic).name)
    """
    assert run_program(program, bootstrap, name) == f"0\n{name}\n"


@with_qbus
def test_a_fork_is_told_to_make_clients_of_its_own(bootstrap: str, name: str) -> None:
    program = """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from qbus import Producer, QbusError
        bootstrap, topic = sys.argv[1:]
        with Producer(bootstrap) as producer:
            producer.send(topic, b"parent").result(30)
            child = os.fork()
            if not child:
                try:
                    producer.send(topic, b"child").result(30)
                except QbusError as error:
                    os.write(1, str(error).encode() + b"\\n")
                os._exit(0)
            os.waitpid(child, 0)
            print(producer.send(topic, b"parent").result(30).offset)
    """
    told, offset = run_program(program, bootstrap, name).splitlines()
    assert "fork" in told
    assert offset == "1"


@with_qbus
async def test_a_callback_may_not_wait_for_its_client(bootstrap: str, topic: str) -> None:
    """The callback runs in the client's own thread: waiting there is an error, not a deadlock."""
    caught: list[BaseException] = []

    def run() -> None:
        with qbus.Producer(bootstrap) as producer:

            def on_delivery(_: object) -> None:
                try:
                    producer.flush(1)
                except QbusError as error:
                    caught.append(error)

            producer.send(topic, b"v").add_done_callback(on_delivery)

    await asyncio.wait_for(asyncio.to_thread(run), 60)
    assert len(caught) == 1
