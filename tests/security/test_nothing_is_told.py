"""No secret is told: a broker that logs everything is given passwords, salts, tokens and keys.

They come as they should, and as they should not: wrong, cut off, in the wrong place. Then all is
read that a broker writes, shows or answers. Its log is searched after every test, as all logs are.
"""

import base64
import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from struct import pack
from typing import Final

import pytest

from qbus.wire import API, ApiKey
from tests.compat.clients.confluent import Confluent
from tests.support.ports import free_port
from tests.support.raw_client import RawClient, frame
from tests.support.resp_client import RespClient

from .matrix.answers import build
from .matrix.world import Admin
from .people import Someone
from .sasl_client import AuthenticationFailed, SaslClient
from .secrets import hits, in_files, known_secret, remember
from .secured import ADMIN, HOST, MECHANISMS, SecuredBroker

pytestmark = pytest.mark.security

_JOBS, _METRICS = free_port(), free_port()
_AUDIT: Final = "audit.jsonl"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that tells all that it ever tells."""
    directory = tmp_path_factory.mktemp("told")
    settings = {
        "disque.listen": f"{HOST}:{_JOBS}",
        "metrics.listen": f"{HOST}:{_METRICS}",
        "metrics.authentication": "basic",
        "qbus.audit.log.path": str(directory / _AUDIT),
        "qbus.audit.data.sampling": "1.0",
        "connection.failed.authentication.delay.ms": "0",
        "connection.failed.authentication.max.per.ip": "0",
    }
    made = SecuredBroker(directory, settings)
    made.server.options = (*made.server.options, "--log-level", "debug")
    for path in made.authority.directory.glob("*.key"):
        for line in path.read_bytes().splitlines()[1:-1]:
            remember(line, f"key in {path.name}")
    with made:
        yield made
    audited = directory / _AUDIT
    assert audited.stat().st_size > 0
    assert hits(audited.read_bytes(), "the audit log") == []


@pytest.fixture
def someone(broker: SecuredBroker) -> Iterator[Someone]:
    """A fresh user."""
    with SaslClient(broker.ports["SASL_PLAINTEXT"], ADMIN, broker.admin_password) as client:
        yield Someone(broker, Admin(client))


def _first_messages(someone: Someone) -> dict[str, bytes]:
    """What a client begins with, secrets in it; of SCRAM the nonce, which is none."""
    name, password = someone.name.encode(), someone.password.encode()
    bearer = known_secret("token").encode()
    remember(b"eyJ" + base64.b64encode(os.urandom(20)), "token")
    return {
        "PLAIN": b"\0" + name + b"\0" + password,
        "SCRAM-SHA-256": b"n,,n=" + name + b",r=" + password,
        "SCRAM-SHA-512": b"n,,n=" + name + b",r=" + password,
        "OAUTHBEARER": b"n,,\x01auth=Bearer " + bearer + b"\x01\x01",
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_goes_wrong_while_one_authenticates(
    mechanism: str, broker: SecuredBroker, someone: Someone
) -> None:
    first = _first_messages(someone)[mechanism]
    for proof in (
        first,
        first[:-3],
        first + b"more",
        b"n" + first,
        first * 3,
        first.replace(b"\0", b""),
        b"\xff\xfe" + first,
        first + bytes(5_000),
    ):
        for version in (0, 1):
            _offer(broker, mechanism, proof, version)


def _offer(broker: SecuredBroker, mechanism: str, proof: bytes, version: int) -> None:
    """Begin with a handshake; with version 0 of it, what follows has no header."""
    name = mechanism.encode()
    body = pack(">hhih", 17, version, 0, -1) + pack(">h", len(name)) + name
    with RawClient(broker.ports["SASL_PLAINTEXT"], timeout=5.0) as client:
        client.send_frame(body)
        client.receive_frame()
        with contextlib.suppress(OSError):
            if version:
                head = pack(">hhih", 36, 1, 1, -1) + pack(">i", len(proof))
                client.send_frame(head + proof)
            else:
                client.send_frame(proof)
            client.receive_frame()


def test_secrets_where_they_do_not_belong(broker: SecuredBroker, someone: Someone) -> None:
    """A password as a mechanism, a client id, and without any frame around it; a wrong password."""
    password = someone.password.encode()
    with RawClient(broker.ports["SASL_PLAINTEXT"], timeout=5.0) as client:
        client.send(password * 3)
        client.is_closed()
    with pytest.raises(AuthenticationFailed):
        SaslClient(broker.ports["SASL_PLAINTEXT"], someone.name, known_secret("wrong"))
    with RawClient(broker.ports["SASL_SSL"], timeout=5.0) as client:
        client.send(b"\0" + someone.name.encode() + b"\0" + password)
        client.is_closed()


def test_credentials_that_cannot_be_set(broker: SecuredBroker, someone: Someone) -> None:
    """Too few iterations, an unknown mechanism, no name: errors do not repeat what was wrong."""
    salt, salted = os.urandom(24), os.urandom(32)
    remember(salted, "salted password")
    key = ApiKey["ALTER_USER_SCRAM_CREDENTIALS"]
    with SaslClient(broker.ports["SASL_PLAINTEXT"], ADMIN, broker.admin_password) as client:
        for name, mechanism, iterations in (
            (someone.name, 1, 1),
            (someone.name, 1, 10_000_000),
            (someone.name, 9, 4096),
            ("", 1, 4096),
            (someone.name, 1, 8192),
        ):
            upsertion = {
                "name": name,
                "mechanism": mechanism,
                "iterations": iterations,
                "salt": salt,
                "salted_password": salted,
            }
            request = {"deletions": [], "upsertions": [upsertion]}
            client.send(frame(key, 0, build(API[key].request, request, {})))
            answer = client.receive_frame()
            assert answer is not None
            assert hits(answer, "an answer") == []


def test_what_is_described(broker: SecuredBroker) -> None:
    security = broker.administrator()
    driver = Confluent(broker.bootstrap(security), security)
    try:
        shown = driver.broker_config("1")
    finally:
        driver.close()
    assert shown["sasl.inter.broker.password"] is None
    assert hits(json.dumps(shown), "the configuration") == []


def test_jobs(broker: SecuredBroker, someone: Someone) -> None:
    """Wrong passwords, and all that shows commands that clients have sent."""
    wrong = known_secret("wrong")
    with RespClient(_JOBS) as client:
        client("AUTH", someone.name, wrong)
        client("HELLO", "3", "AUTH", someone.name, wrong)
    with RespClient(_JOBS) as client:
        assert client("AUTH", someone.name, someone.password) == "OK"
        client("CONFIG", "SET", "requirepass", wrong)
    with RespClient(_JOBS) as client:
        assert client("AUTH", ADMIN, broker.admin_password) == "OK"
        for words in (
            ("INFO",),
            ("CLIENT", "LIST"),
            ("SLOWLOG", "GET"),
            ("CONFIG", "GET", "*"),
            ("CLUSTER", "NODES"),
        ):
            assert hits(repr(client(*words)), " ".join(words)) == []


def test_metrics(broker: SecuredBroker) -> None:
    pair = base64.b64encode(f"{ADMIN}:{broker.admin_password}".encode()).decode()
    request = urllib.request.Request(f"http://{HOST}:{_METRICS}/metrics")
    request.add_header("Authorization", f"Basic {pair}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert hits(answer.read(), "metrics") == []


def test_what_is_kept(broker: SecuredBroker, someone: Someone) -> None:
    """On disk is what proves a password, and not the password."""
    security = someone.security("SCRAM-SHA-256")
    driver = Confluent(broker.bootstrap(security), security)
    driver.close()
    time.sleep(0.2)
    assert in_files(broker.server.data_dir) == []
