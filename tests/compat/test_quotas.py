"""Quotas hold for clients that nobody here wrote, whatever they do, and Kafka's tool sets them."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import qbus
from perf.peers import kafka as kafka_peer
from qbus import ClientSecurity
from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.broker_process import BrokerProcess
from tests.support.quotas import EVERY_USER, client, set_quotas
from tests.support.raw_client import RawClient
from tests.support.sasl_broker import ADMIN, ADMIN_PASSWORD, SaslBroker
from tests.support.tools import skip_because_of

from .test_java_tools import Tools

pytestmark = pytest.mark.compat

RATE = 1_000_000.0
TOLERANCE = 0.1
VALUE = b"v" * 1000
TOPIC = "quotas"
PASSWORD = "a password of users in tests"
_WARM_UP_S = 1.5
_MEASURED_S = 3.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Two windows: what may be used at once is one second's worth, so that tests are short.
    options = ("-o", "quota.window.num=2", "-o", "durability=memory")
    with BrokerProcess(tmp_path_factory.mktemp("quotas"), *options) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(20)
        yield process


@pytest.fixture
def limits(broker: BrokerProcess) -> Iterator[Callable[..., None]]:
    """Sets quotas, which are gone after the test."""
    made: list[tuple[Any, dict[str, None]]] = []

    def limit(entity: Any, **quotas: float) -> None:
        set_quotas(broker.port, entity, **quotas)
        made.append((entity, dict.fromkeys(quotas)))

    yield limit
    for entity, quotas in made:
        set_quotas(broker.port, entity, **quotas)


class Load:
    """Producers that send as fast as they may, each under a client id of its own."""

    def __init__(self, broker: BrokerProcess, *names: str, **settings: str) -> None:
        """``settings``: further ones of the clients."""
        self._broker = broker
        self._names = names
        self._settings = settings
        self._delivered: list[float] = []
        self._stopped = threading.Event()
        self.throttled: list[float] = []

    def run(self, seconds: float) -> None:
        """Send for so long."""
        threads = [threading.Thread(target=self._send, args=(name,)) for name in self._names]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self._stopped.set()
        for thread in threads:
            thread.join()

    def rate(self, since: float, until: float) -> float:
        """Bytes a second that were delivered in that time."""
        count = sum(since <= at < until for at in self._delivered)
        return count * len(VALUE) / (until - since)

    def _send(self, name: str) -> None:
        def on_delivery(error: object, _message: object) -> None:
            if error is None:
                self._delivered.append(time.monotonic())

        producer = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "client.id": name,
                "batch.size": 50_000,
                "queue.buffering.max.kbytes": 1000,
                "acks": "1",
                "throttle_cb": lambda event: self.throttled.append(event.throttle_time),
                **self._settings,
            }
        )
        while not self._stopped.is_set():
            try:
                producer.produce(TOPIC, VALUE, on_delivery=on_delivery)
            except BufferError:
                producer.poll(0.01)
        producer.purge()
        producer.flush(0)


def test_producers_get_their_quota_however_many_they_are(
    broker: BrokerProcess, limits: Callable[..., None]
) -> None:
    limits(EVERY_USER, producer_byte_rate=RATE)
    load = Load(broker, "one", "two", "three", "four")
    began = time.monotonic()
    load.run(_WARM_UP_S + _MEASURED_S)
    rate = load.rate(began + _WARM_UP_S, began + _WARM_UP_S + _MEASURED_S)
    assert rate == pytest.approx(RATE, rel=TOLERANCE)
    assert max(load.throttled) > 0


def test_many_client_ids_of_one_user_get_one_quota_and_others_theirs(tmp_path: Path) -> None:
    """The user is known here, so that it cannot call itself otherwise."""
    users = ("alice", "bob")
    supers = ";".join(f"User:{user}" for user in users)
    settings = {"quota.window.num": 2, "super.users": supers}
    with SaslBroker(tmp_path, **settings) as secured:
        security = ClientSecurity.from_properties(sasl(ADMIN, ADMIN_PASSWORD))
        with qbus.Admin(secured.bootstrap, security=security) as admin:
            admin.create_topics([qbus.NewTopic(TOPIC, 1)])
            admin.alter_user_scram_credentials(
                [qbus.ScramUpsert(user, PASSWORD, "SCRAM-SHA-256") for user in users]
            )
            admin.alter_client_quotas({(("user", "alice"),): {"producer_byte_rate": RATE}})
        abuse = Load(secured, "one", "two", "three", **sasl("alice", PASSWORD))
        honest = Load(secured, "four", **sasl("bob", PASSWORD))
        began = time.monotonic()
        other = threading.Thread(target=honest.run, args=(_WARM_UP_S + _MEASURED_S,))
        other.start()
        abuse.run(_WARM_UP_S + _MEASURED_S)
        other.join()
        span = began + _WARM_UP_S, began + _WARM_UP_S + _MEASURED_S
        assert abuse.rate(*span) == pytest.approx(RATE, rel=TOLERANCE)
        assert honest.rate(*span) > 2 * RATE
        assert not honest.throttled or max(honest.throttled) == 0


def sasl(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_a_consumer_gets_its_quota(broker: BrokerProcess, limits: Callable[..., None]) -> None:
    fill(broker, 7_000_000)
    limits(client("reader"), consumer_byte_rate=RATE)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "reader",
            "group.id": "reader",
            "fetch.message.max.bytes": 100_000,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    began = time.monotonic()
    seen = 0
    while (now := time.monotonic()) < began + _WARM_UP_S + _MEASURED_S:
        messages = consumer.consume(1000, 0.05)
        if now >= began + _WARM_UP_S:
            seen += sum(len(message.value() or b"") for message in messages)
    consumer.close()
    assert seen / _MEASURED_S == pytest.approx(RATE, rel=TOLERANCE)


def test_whoever_keeps_to_its_quota_is_unharmed_beside_others_that_do_not(
    broker: BrokerProcess, limits: Callable[..., None]
) -> None:
    limits(client("abuser"), producer_byte_rate=RATE / 10)
    load = Load(broker, *["abuser"] * 4)
    thread = threading.Thread(target=load.run, args=(2.0,))
    thread.start()
    honest = Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "honest", "linger.ms": 0}
    )
    took = []
    while thread.is_alive():
        began = time.monotonic()
        honest.produce(TOPIC, VALUE)
        assert honest.flush(10) == 0
        took.append(time.monotonic() - began)
        time.sleep(0.01)
    thread.join()
    assert sorted(took)[len(took) * 9 // 10] < 0.1


def test_new_connections_do_not_evade_a_quota(
    broker: BrokerProcess, limits: Callable[..., None]
) -> None:
    limits(client("again"), producer_byte_rate=RATE / 10)
    began = time.monotonic()
    delivered = 0
    while time.monotonic() < began + 2.5:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "client.id": "again", "log_level": 0}
        )
        for _ in range(100):
            producer.produce(TOPIC, VALUE)
        delivered += 100 - producer.flush(0.3)
        producer.purge()
    assert delivered * len(VALUE) <= RATE / 10 * (2.5 + 1) + 2 * 100 * len(VALUE)


def test_kafka_python_is_told_of_its_delay(
    broker: BrokerProcess, limits: Callable[..., None]
) -> None:
    limits(client("told"), producer_byte_rate=RATE / 10, consumer_byte_rate=RATE / 10)
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="told")
    for _ in range(250):
        producer.send(TOPIC, VALUE)
    producer.flush(30)
    assert longest_throttle(producer.metrics()) > 0
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, client_id="told", auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    consumer.seek(kafka.TopicPartition(TOPIC, 0), 0)
    seen = 0
    deadline = time.monotonic() + 20
    while seen < 250 and time.monotonic() < deadline:
        seen += sum(map(len, consumer.poll(500).values()))
    assert seen >= 250
    assert longest_throttle(consumer.metrics()) > 0
    consumer.close()


def longest_throttle(metrics: dict[str, dict[str, float]]) -> float:
    """The longest delay that the client was told of, in ms."""
    return max(group.get("throttle-time-max", 0.0) for group in metrics.values())


def test_an_address_opens_so_many_connections_a_second(
    broker: BrokerProcess, limits: Callable[..., None]
) -> None:
    limits((("ip", "127.0.0.1"),), connection_creation_rate=5)
    served = []
    for _ in range(30):
        with RawClient(broker.port) as raw:
            served.append(is_served(raw))
    assert 4 <= sum(served) <= 5 + 5 * 30  # a burst, and what comes while refusals take their time
    assert not all(served)
    time.sleep(1.2)
    with RawClient(broker.port) as raw:
        assert is_served(raw)
    time.sleep(1.2)  # the connection that removes the quota is one, too


def is_served(raw: RawClient) -> bool:
    try:
        return raw.is_served()
    except (AssertionError, OSError):
        return False


def fill(broker: BrokerProcess, size: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 50_000})
    for _ in range(size // len(VALUE)):
        while True:
            try:
                producer.produce(TOPIC, VALUE)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(30) == 0


def create(raw: RawClient, name: str, partitions: int, version: int) -> tuple[int, int]:
    """Create a topic; the error, and the throttle time in ms."""
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    answer = raw.ask(ApiKey.CREATE_TOPICS, version, request)
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_changes_of_topics_are_refused_where_clients_know_of_quotas_and_slowed_down_otherwise(
    broker: BrokerProcess, limits: Callable[..., None]
) -> None:
    limits(EVERY_USER, controller_mutation_rate=10.0)
    with RawClient(broker.port) as raw:
        assert create(raw, "first", 115, 7) == (ErrorCode.NONE, 0)  # ten windows, and a bit more
        code, throttle_ms = create(raw, "refused", 1, 7)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 0 < throttle_ms <= 1000
        code, throttle_ms = create(raw, "slowed", 10, 5)  # which comes once the mute is over
        assert code == ErrorCode.NONE
    with RawClient(broker.port) as raw:
        code, throttle_ms = create(raw, "slowed-again", 10, 5)
        assert code == ErrorCode.NONE
        assert throttle_ms > 0


def test_kafkas_tool_sets_and_tells_quotas(broker: BrokerProcess) -> None:
    skip_because_of(kafka_peer.missing())
    tools = Tools(broker.bootstrap)

    def configs(*arguments: str) -> str:
        return tools.run("kafka.admin.ConfigCommand", *arguments)

    user = ("--entity-type", "users", "--entity-name", "CN=Alice, O=x")
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    quotas = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5"
    configs("--alter", *user, "--add-config", quotas)
    configs("--alter", *address, "--add-config", "connection_creation_rate=7")
    told = configs("--describe", *user)
    assert "Quota configs for user-principal 'CN=Alice, O=x' are" in told
    for part in ("producer_byte_rate=1024.0", "consumer_byte_rate=2048.0", "=12.5"):
        assert part in told
    configs("--alter", *user, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    told = configs("--describe", "--entity-type", "users") + configs("--describe", *address)
    assert "producer_byte_rate" not in told
    assert "request_percentage=12.5" in told
    assert "connection_creation_rate=7.0" in told


def test_quotas_outlive_a_restart(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process:
        set_quotas(process.port, client("raw"), request_percentage=0.001)
        process.restart()
        with RawClient(process.port) as raw:
            began = time.monotonic()
            assert raw.is_served()
            assert raw.is_served()  # after it was muted for a window
            assert time.monotonic() - began > 0.9
