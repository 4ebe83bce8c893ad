"""Listeners of a real broker, and clients that nobody here wrote: openssl and librdkafka."""

import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Certificates
from tests.support.ports import free_port, free_ports
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until
from tests.support.workers_process import WorkersProcess

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = pytest.mark.integration

_TURNED_AWAY_S = 15.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ca"))


class Listeners:
    """A broker with PLAINTEXT, with TLS that knows no clients, and with TLS that insists on it."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        self.certificates = certificates
        self.keystore = directory / "broker.pem"
        self.keystore.write_bytes(certificates.server("first").read_bytes())
        self.open_port, self.mutual_port = free_port(), free_port()
        self.broker = BrokerProcess(
            directory / "data",
            *("--listen", f"SSL://127.0.0.1:{self.open_port}"),
            *("--listen", f"MUTUAL://127.0.0.1:{self.mutual_port}"),
            *("-o", "listener.security.protocol.map=MUTUAL:SSL"),
            *("-o", f"ssl.keystore.location={self.keystore}"),
            *("-o", f"ssl.truststore.location={certificates.ca}"),
            *("-o", "listener.name.mutual.ssl.client.auth=required"),
            *("-o", "ssl.handshake.timeout.ms=2000"),
            *("-o", "authorizer.class.name=none"),
            *("-o", "group.initial.rebalance.delay.ms=0"),
        )

    def settings(self, port: int, own: Path | None = None, **more: object) -> dict[str, Any]:
        """What librdkafka needs to connect with TLS."""
        settings: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "broker.address.family": "v4",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        if own is not None:
            settings["ssl.certificate.location"] = settings["ssl.key.location"] = str(own)
        return settings

    def presented(self) -> str:
        """The certificate that a new connection gets."""
        return ssl.get_server_certificate(("127.0.0.1", self.open_port))


@pytest.fixture(scope="module")
def listeners(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Listeners]:
    made = Listeners(tmp_path_factory.mktemp("broker"), certificates)
    with made.broker:
        yield made
        assert made.broker.alive, "whatever the tests sent, the broker goes on"


@contextmanager
def running(topic: str, settings: dict[str, Any]) -> Iterator[Callable[[], int]]:
    """A producer that sends a record with each call, and waits until it is stored."""
    failures: list[str] = []
    producer = confluent_kafka.Producer({**settings, "acks": "all", "linger.ms": 0})
    count = 0

    def delivered(error: Any, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    def send() -> int:
        nonlocal count
        producer.produce(topic, b"%d" % count, on_delivery=delivered)
        assert producer.flush(20) == 0
        assert failures == []
        count += 1
        return count

    yield send


def consumed(topic: str, settings: dict[str, Any], count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        got: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(got) < count and time.monotonic() < deadline:
            got += [message.value() for message in consumer.consume(count, 0.5)]
        return got
    finally:
        consumer.close()


def what_it_says(settings: dict[str, Any], said: str = "") -> str:
    """What librdkafka says of a broker that it cannot use."""
    errors: list[str] = []
    client = admin.AdminClient({**settings, "error_cb": lambda error: errors.append(error.str())})
    until = time.monotonic() + _TURNED_AWAY_S
    while time.monotonic() < until and not any(said in one for one in errors):
        client.poll(0.1)
    return "; ".join(errors)


# Kafka's protocol within TLS


@pytest.mark.parametrize("who", ["anyone", "alice"])
def test_records_pass(listeners: Listeners, who: str) -> None:
    port, own = listeners.open_port, None
    if who == "alice":
        port, own = listeners.mutual_port, listeners.certificates.client(who)
    settings = listeners.settings(port, own)
    sent = [b"%d" % number * 20_000 for number in range(60)]
    producer = confluent_kafka.Producer({**settings, "message.max.bytes": 4_000_000})
    for value in sent:
        producer.produce(f"records-{who}", value)
    assert producer.flush(30) == 0
    assert consumed(f"records-{who}", settings, len(sent)) == sent


def test_clients_stay_on_the_listener_that_they_came_through(listeners: Listeners) -> None:
    for port, settings in (
        (listeners.broker.port, {"bootstrap.servers": listeners.broker.bootstrap}),
        (listeners.open_port, listeners.settings(listeners.open_port)),
    ):
        metadata = admin.AdminClient(settings).list_topics(timeout=10)
        assert {one.port for one in metadata.brokers.values()} == {port}


def test_workers_have_each_listener_and_find_one_another(
    tmp_path: Path, certificates: Certificates
) -> None:
    first = free_ports(2).start
    with WorkersProcess(
        tmp_path,
        2,
        *("--listen", f"SSL://127.0.0.1:{first}"),
        *("-o", f"ssl.keystore.location={certificates.server('workers')}"),
        *("-o", "num.partitions=6"),
        *("-o", "group.initial.rebalance.delay.ms=0"),
    ) as workers:
        settings = {
            "bootstrap.servers": f"127.0.0.1:{first}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates.ca),
        }
        metadata = admin.AdminClient(settings).list_topics(timeout=10)
        assert {one.port for one in metadata.brokers.values()} == {first, first + 1}
        with running("spread", settings) as send:
            assert [send() for _ in range(5)] == [1, 2, 3, 4, 5]
        workers.send_signal(signal.SIGHUP)
        wait_until(
            lambda: workers.log_text().count("certificates of listener SSL were read again") == 2,
            "both workers to read their certificates",
        )
        assert sorted(consumed("spread", settings, 5)) == [b"%d" % number for number in range(5)]


# What is not let in


def test_a_broker_that_would_be_open_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qbus", "broker", "--data-dir", str(tmp_path)]
    for listen in ("0.0.0.0:0", ":0", "[::]:0", "SASL_SSL://127.0.0.1:0,PLAINTEXT://0.0.0.0:0"):
        done = subprocess.run(
            [*command, *(word for one in listen.split(",") for word in ("--listen", one))],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode != 0
        if "SASL" not in listen:
            assert "allow.insecure=true" in done.stderr
            assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("port", "told"),
    [
        ("open_port", "the client does not speak TLS, which this listener does"),
        ("broker", "the other side speaks TLS, not Kafka's protocol"),
    ],
)
def test_each_protocol_on_the_port_of_the_other_is_told_of(
    listeners: Listeners, port: str, told: str
) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{listeners.open_port}"}
    if port == "broker":
        settings = listeners.settings(listeners.broker.port)
    client = admin.AdminClient(settings)
    wait_until(lambda: client.poll(0.1) == 0 and told in log(listeners), "the log to tell of it")


def log(listeners: Listeners) -> str:
    return listeners.broker.log_text()


@pytest.mark.parametrize("who", ["nobody", "expired", "mallory"])
def test_wrong_certificates_are_refused(listeners: Listeners, tmp_path: Path, who: str) -> None:
    own = None
    if who == "expired":
        own = listeners.certificates.expired()
    elif who == "mallory":
        own = Certificates(tmp_path / "other").client(who)
    settings = listeners.settings(listeners.mutual_port, own)
    assert what_it_says(settings, "") != ""
    producer = confluent_kafka.Producer({**settings, "message.timeout.ms": 1500})
    outcomes: list[Any] = []
    producer.produce("never", b"x", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(10)
    assert len(outcomes) == 1
    assert outcomes[0] is not None


def test_a_client_that_trusts_another_authority_goes_away(
    listeners: Listeners, tmp_path: Path
) -> None:
    settings = listeners.settings(listeners.open_port)
    settings["ssl.ca.location"] = str(Certificates(tmp_path / "other").ca)
    assert "certificate verify failed" in what_it_says(settings, "verify failed")


# openssl


def openssl(port: int, *options: str, sent: bytes = b"", timeout: float = 10.0) -> str:
    """What ``openssl s_client`` says."""
    skip_because_of(None if shutil.which("openssl") else "openssl is not installed")
    process = subprocess.Popen(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin is not None
    if sent:
        time.sleep(0.5)  # it takes commands only once it is connected
        with suppress(BrokenPipeError):
            process.stdin.write(sent)
            process.stdin.flush()
        time.sleep(0.5)
    try:
        said, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    return said.decode(errors="replace")


@pytest.mark.parametrize(("option", "version"), [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")])
def test_versions_that_are_spoken(listeners: Listeners, option: str, version: str) -> None:
    said = openssl(listeners.open_port, option, "-CAfile", str(listeners.certificates.ca))
    assert version in said
    assert "Verify return code: 0 (ok)" in said


@pytest.mark.parametrize("option", ["-tls1", "-tls1_1"])
def test_versions_that_are_not(listeners: Listeners, option: str) -> None:
    said = openssl(listeners.open_port, option, "-cipher", "ALL:@SECLEVEL=0")
    assert "alert protocol version" in said or "unsupported protocol" in said
    assert "Cipher is (NONE)" in said


def test_renegotiation_is_refused(listeners: Listeners) -> None:
    said = openssl(listeners.open_port, "-tls1_2", sent=b"R\n")
    assert "RENEGOTIATING" in said
    assert "no renegotiation" in said


def test_weak_suites_are_not_spoken(listeners: Listeners) -> None:
    for weak in ("NULL", "aNULL", "RC4", "3DES", "EXPORT"):
        said = openssl(listeners.open_port, "-tls1_2", "-cipher", f"{weak}:@SECLEVEL=0")
        assert "Cipher is (NONE)" in said or "no cipher match" in said


# Certificates that are renewed


@pytest.mark.parametrize("by_signal", [False, True])
def test_certificates_are_renewed_under_running_clients(
    listeners: Listeners, by_signal: bool
) -> None:
    settings = listeners.settings(listeners.open_port)
    former = listeners.presented()
    with running(f"renewed-{by_signal}", settings) as send:
        send()
        renewed = listeners.certificates.server(f"renewed-{by_signal}")
        listeners.certificates.replace(listeners.keystore, renewed)
        if by_signal:
            listeners.broker.send_signal(signal.SIGHUP)
        wait_until(lambda: listeners.presented() != former, "the new certificate")
        assert [send() for _ in range(10)] == list(range(2, 12))
    assert len(consumed(f"renewed-{by_signal}", settings, 11)) == 11


def test_a_certificate_that_is_torn_changes_nothing(listeners: Listeners) -> None:
    former, whole = listeners.presented(), listeners.keystore.read_bytes()
    listeners.keystore.write_bytes(whole[: len(whole) // 2])
    listeners.broker.send_signal(signal.SIGHUP)
    wait_until(lambda: "the former ones stay in force" in log(listeners), "the log to tell")
    assert listeners.presented() == former
    listeners.keystore.write_bytes(whole)


def test_the_signal_to_read_certificates_ends_no_broker(
    certificates: Certificates, tmp_path: Path
) -> None:
    page = free_port()
    with BrokerProcess(
        tmp_path,
        *("-o", f"metrics.listen=https://127.0.0.1:{page}"),
        *("-o", f"ssl.keystore.location={certificates.server('page')}"),
    ) as broker:
        former = ssl.get_server_certificate(("127.0.0.1", page))
        broker.send_signal(signal.SIGHUP)
        assert ssl.get_server_certificate(("127.0.0.1", page)) == former
        assert broker.alive


# Strangers


def test_5000_half_open_handshakes_cost_little(listeners: Listeners) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    hello = client_hello(listeners.certificates)
    settings = listeners.settings(listeners.open_port)
    with running("honest", settings) as send:
        send()
        before, strangers, times = memory(listeners.broker.pid), [], []
        try:
            for number in range(5000):
                sock = socket.create_connection(("127.0.0.1", listeners.open_port), 10)
                strangers.append(sock)
                with suppress(OSError):
                    sock.sendall(hello[: (0, 5, 100, len(hello))[number % 4]])
                if number % 100 == 0:
                    began = time.monotonic()
                    send()
                    times.append(time.monotonic() - began)
            admin.AdminClient(settings).list_topics(timeout=10)
            grown = memory(listeners.broker.pid) - before
        finally:
            for sock in strangers:
                sock.close()
    assert max(times) < 1.0
    assert grown < 100 << 20


def client_hello(certificates: Certificates) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(certificates.ca))
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def memory(pid: int) -> int:
    """Memory of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
