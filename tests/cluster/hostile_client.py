"""A client that attacks one broker: ``python -m tests.cluster.hostile_client JSON``.

One thread sends the worst request of each API, one after the other; another sends hostile regular
expressions, several at a time. The options are those of :class:`HostileClient`.
"""

import json
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from qbus.wire import API, ApiKey
from qbus.wire.messages.metadata import MetadataRequestTopic
from tests.support.raw_client import RawClient, frame
from tests.support.waiting import wait_until
from tests.support.worst_requests import TOPIC, Worst, worst_requests

PATTERNS: Final = (
    "(?:a?){990}",
    "(?:" + "|" * 3_900 + "a){4}",
    "(?:a?){499}",
    "(?:.*a){250}",
)
"""They took a backtracking library seconds; the last two are within the broker's bounds."""

_PIPELINED: Final = 5
_PATIENCE_S: Final = 15.0
_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAg"
_PLACEHOLDER: Final = bytes(range(240, 256))
"""Stands in prepared frames for the topic's id, which changes as the topic is deleted."""


@dataclass
class Attack:
    """The requests sent and answered; times are of the monotonic clock, in seconds."""

    began: float
    ended: float = 0.0
    rounds: int = 0
    sent: int = 0
    answered: int = 0
    expressions: int = 0
    expressions_answered: int = 0
    slowest: dict[str, float] = field(default_factory=dict)
    """The longest wait for each request, by its title."""

    @property
    def slowest_first(self) -> list[tuple[str, float]]:
        """The titles and seconds of :attr:`slowest`."""
        return sorted(self.slowest.items(), key=lambda pair: -pair[1])


class HostileClient:
    """Attacks a broker from a separate process, which lives from entry to exit.

    ``port``: of the attacked broker. ``replicas``: of its topic; the first is its leader.
    ``share``: the part of each request that is sent, as for :func:`worst_requests`.
    """

    def __init__(self, bootstrap: str, port: int, replicas: list[int], share: int) -> None:
        options = json.dumps(
            {"bootstrap": bootstrap, "port": port, "replicas": replicas, "share": share}
        )
        self._command = [sys.executable, "-m", "tests.cluster.hostile_client", options]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        with suppress(ValueError):  # its pipes may be closed already
            self._process.communicate()

    def wait_prepared(self) -> None:
        """Wait until its topic exists and all requests are encoded."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "prepared\n", "the attack was not prepared"

    def attack(self, seconds: float, within: float) -> Attack:
        """Attack for this time, and until each request was sent once."""
        output, _ = self._process.communicate(f"{seconds}\n", timeout=within)
        assert self._process.returncode == 0, f"the attack exited with {self._process.returncode}"
        return Attack(**json.loads(output))


class _Requests:
    """The prepared frames, and the topic that they name, led by the attacked broker."""

    def __init__(self, bootstrap: str, port: int, replicas: list[int], share: int) -> None:
        self._bootstrap = bootstrap
        self._port = port
        self._replicas = replicas
        # Deletions of the topic come last: the others of a round need it.
        worst = sorted(worst_requests(share), key=lambda one: one.api is ApiKey.DELETE_TOPICS)
        self._frames = [(one, one.frame({TOPIC: _PLACEHOLDER})) for one in worst]
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def frames(self) -> Iterator[tuple[Worst, bytes]]:
        """All requests once, for the topic as it is now."""
        identity = self._topic_id()
        for worst, data in self._frames:
            yield worst, data.replace(_PLACEHOLDER, identity)

    def group(self) -> str:
        """A group that the attacked broker coordinates."""
        names = [f"hostile-{number}" for number in range(200)]
        version = API[ApiKey.FIND_COORDINATOR].max_version
        request = API[ApiKey.FIND_COORDINATOR].request(key_type=0, coordinator_keys=names)

        def ask() -> str | None:
            with RawClient(self._port, 2 * _PATIENCE_S) as client:
                found = client.ask(ApiKey.FIND_COORDINATOR, version, request).coordinators
            here = [one.key for one in found if not one.error_code and one.port == self._port]
            return here[0] if here else None

        return str(wait_until(ask, "a group of the attacked broker", 60.0, 0.5))

    def _topic_id(self) -> bytes:
        return self._found() or self._created()

    def _found(self) -> bytes | None:
        request = API[ApiKey.METADATA].request(
            topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
        )
        with RawClient(self._port, 2 * _PATIENCE_S) as client:
            topic = client.ask(ApiKey.METADATA, 12, request).topics[0]
        is_led = not topic.error_code and all(not one.error_code for one in topic.partitions)
        return bytes(topic.topic_id) if is_led else None

    def _created(self) -> bytes:
        wanted = NewTopic(TOPIC, 3, replica_assignment=[self._replicas] * 3)
        try:
            self._admin.create_topics([wanted])[TOPIC].result(60)
        except ck.KafkaException as error:
            if error.args[0].code() != ck.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        found = wait_until(self._found, f"leaders of {TOPIC}", 60.0, 0.1)
        assert found is not None
        producer = ck.Producer({"bootstrap.servers": self._bootstrap, "log_level": 2})
        for number in range(100):
            producer.produce(TOPIC, b"%d" % number, partition=0)
        producer.flush(60)
        return found


def _expressions(group: str) -> list[bytes]:
    """Requests with regular expressions, as frames with their lengths."""
    heartbeat = {"group_id": group, "member_id": _MEMBER, "member_epoch": 0}
    found = []
    for pattern in PATTERNS:
        listing = API[ApiKey.LIST_TRANSACTIONS].request(
            state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
        )
        beating = API[ApiKey.CONSUMER_GROUP_HEARTBEAT].request(
            **heartbeat,
            rebalance_timeout_ms=10_000,
            subscribed_topic_regex=pattern,
            topic_partitions=[],
        )
        found.append(frame(ApiKey.LIST_TRANSACTIONS, 2, listing) * _PIPELINED)
        found.append(frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beating) * _PIPELINED)
    return found


def _send_expressions(port: int, group: str, attack: Attack, over: threading.Event) -> None:
    batches = _expressions(group)
    while not over.is_set():
        for batch in batches:
            with _tolerant(port) as client:
                attack.expressions += _PIPELINED
                client.send(batch)
                for _ in range(_PIPELINED):
                    attack.expressions_answered += client.receive_frame() is not None


@contextmanager
def _tolerant(port: int) -> Iterator[Any]:
    """A connection that may be refused, closed or left without an answer."""
    try:
        with RawClient(port, timeout=_PATIENCE_S) as client:
            yield client
    except (OSError, struct.error):
        time.sleep(0.05)


def _send_requests(port: int, requests: _Requests, attack: Attack, seconds: float) -> None:
    while not attack.rounds or time.monotonic() < attack.began + seconds:
        for worst, data in requests.frames():
            if attack.rounds and time.monotonic() > attack.began + seconds:
                return
            began = time.monotonic()
            attack.sent += 1
            with _tolerant(port) as client:
                client.send_frame(data)
                attack.answered += client.receive_frame() is not None
            took = time.monotonic() - began
            attack.slowest[worst.title] = max(took, attack.slowest.get(worst.title, 0.0))
        attack.rounds += 1


def main() -> None:
    """Prepare, wait for a line with the seconds, attack, and print the counts."""
    given = json.loads(sys.argv[1])
    requests = _Requests(**given)
    group = requests.group()
    next(requests.frames())  # creates the topic
    print("prepared", flush=True)
    seconds = float(sys.stdin.readline())
    attack = Attack(time.monotonic())
    over = threading.Event()
    beside = threading.Thread(
        target=_send_expressions, args=(given["port"], group, attack, over), daemon=True
    )
    beside.start()
    try:
        _send_requests(given["port"], requests, attack, seconds)
    finally:
        over.set()
    beside.join(_PIPELINED * 2 * _PATIENCE_S)
    attack.ended = time.monotonic()
    print(json.dumps(asdict(attack)))


if __name__ == "__main__":
    main()
