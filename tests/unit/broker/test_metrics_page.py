"""Who may read a broker's metrics."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from qbus.broker.authorization import CLUSTER, AccessControl, AclAuthorizer, Operation
from qbus.broker.metrics_page import PageAccess, page_security, page_tls
from qbus.broker.net.peer import Principal
from qbus.config import BrokerConfig
from qbus.errors import ConfigError
from qbus.security.acls import AclIndex, Entry, Pattern, Permission
from qbus.service.http import Caller
from tests.support.secure_broker import certificates


class Users:
    """Everybody's password is ``right``."""

    async def verify(self, user: str, password: str, host: str) -> Principal | None:
        return Principal("User", user) if password == "right" and host else None


def access() -> AccessControl:
    """Alice may describe the cluster."""
    rules = AclIndex()
    entry = Entry("User:alice", "10.0.0.1", Operation.DESCRIBE, Permission.ALLOW)
    rules.put(Pattern(CLUSTER.type, CLUSTER.name), [entry])
    return AccessControl(AclAuthorizer(rules))


@pytest.mark.parametrize(
    ("caller", "status"),
    [
        (Caller("10.0.0.1"), HTTPStatus.UNAUTHORIZED),
        (Caller("10.0.0.1", "alice", "wrong"), HTTPStatus.UNAUTHORIZED),
        (Caller("10.0.0.1", "alice", "right"), HTTPStatus.OK),
        (Caller("10.0.0.2", "alice", "right"), HTTPStatus.FORBIDDEN),
        (Caller("10.0.0.1", "bob", "right"), HTTPStatus.FORBIDDEN),
        (Caller("10.0.0.1", certificate=b"of alice"), HTTPStatus.OK),
        (Caller("10.0.0.1", certificate=b"of bob"), HTTPStatus.FORBIDDEN),
        (Caller("10.0.0.1", certificate=b"nobody's"), HTTPStatus.UNAUTHORIZED),
    ],
)
async def test_users_who_may_describe_the_cluster(caller: Caller, status: HTTPStatus) -> None:
    names: dict[bytes, str] = {b"of alice": "alice", b"of bob": "bob"}
    page = PageAccess(Users(), access(), identify=names.get, delay_s=0)
    assert await page.decide_here(caller) is status


async def test_all_users_where_nothing_is_restricted() -> None:
    page = PageAccess(Users(), AccessControl(), delay_s=0)
    assert await page.decide_here(Caller("h", "anybody", "right")) is HTTPStatus.OK
    assert await page.decide_here(Caller("h", "anybody", "wrong")) is HTTPStatus.UNAUTHORIZED


async def test_denials_are_counted() -> None:
    control = access()
    page = PageAccess(Users(), control, delay_s=0)
    await page.decide_here(Caller("h", "bob", "right"))
    assert control.denied == 1


async def test_another_thread_asks_the_brokers_loop() -> None:
    page = PageAccess(Users(), access(), delay_s=0)

    def ask() -> HTTPStatus:
        return asyncio.run(page.decide(Caller("10.0.0.1", "alice", "right")))

    assert await asyncio.to_thread(ask) is HTTPStatus.OK


async def test_wrong_passwords_are_answered_late() -> None:
    page, loop = PageAccess(Users(), access(), delay_s=0.05), asyncio.get_running_loop()
    started = loop.time()
    await page.decide_here(Caller("h", "alice", "wrong"))
    assert loop.time() - started >= 0.05


def config(**stated: object) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): value for name, value in stated.items()})


class TestConfiguration:
    @pytest.mark.parametrize("listen", ["127.0.0.1:9404", "http://[::1]:9404", "localhost:9404"])
    async def test_this_machine_alone_needs_nothing(self, listen: str) -> None:
        security = page_security(config(metrics_listen=listen), Users(), AccessControl())
        assert security == (None, None, "")

    @pytest.mark.parametrize("listen", ["0.0.0.0:9404", "10.0.0.1:9404", ":9404", "[::]:9404"])
    def test_others_are_refused(self, listen: str) -> None:
        with pytest.raises(ConfigError, match=r"metrics\.authentication=basic"):
            config(metrics_listen=listen)
        config(metrics_listen=listen, allow_insecure="true")
        config(metrics_listen=listen, metrics_authentication="basic")

    async def test_basic(self) -> None:
        stated = config(metrics_listen="0.0.0.0:9404", metrics_authentication="basic")
        security = page_security(stated, Users(), AccessControl(), inner_secret="s")
        assert security.decide is not None
        assert security.inner_secret == "s"
        assert await security.decide(Caller("h", "alice", "right")) is HTTPStatus.OK

    def test_https_needs_a_certificate(self) -> None:
        with pytest.raises(ConfigError, match=r"expected ssl\.keystore\.location"):
            config(metrics_listen="https://127.0.0.1:9404")

    def test_https_has_the_certificate_of_the_listener_named_metrics(self) -> None:
        made = certificates()
        stated = {
            "metrics.listen": "https://127.0.0.1:9404",
            "listener.name.metrics.ssl.certificate.location": made.server,
            "listener.name.metrics.ssl.key.location": made.server_key,
        }
        context: Callable[[], object] | None = page_tls(BrokerConfig(stated))
        assert context is not None
        assert context()

    async def test_certificates_of_clients_are_enough(self) -> None:
        made = certificates()
        stated = BrokerConfig(
            {
                "metrics.listen": "https://0.0.0.0:9404",
                "ssl.certificate.location": made.server,
                "ssl.key.location": made.server_key,
                "ssl.truststore.location": made.ca,
                "listener.name.metrics.ssl.client.auth": "required",
            }
        )
        security = page_security(stated, Users(), AccessControl())
        assert security.decide is not None
        assert await security.decide(Caller("h", "alice", "right")) is HTTPStatus.UNAUTHORIZED

    async def test_a_worker_asks_for_the_same_whatever_its_own_address(self) -> None:
        stated = BrokerConfig(
            {
                "metrics.listen": "127.0.0.1:9404",
                "listener.name.metrics.ssl.client.auth": "required",
                "super.users": "User:CN=client",
            }
        )
        users, certificate = Users(), der(certificates().client)
        open_to_all = page_security(stated, users, access(), inner_secret="")
        assert open_to_all.decide is None
        security = page_security(stated, users, access(), inner_secret="known to both")
        assert security.decide is not None
        assert await security.decide(Caller("h")) is HTTPStatus.UNAUTHORIZED
        asked = Caller("h", certificate=certificate)
        assert await security.decide(asked) is HTTPStatus.FORBIDDEN
        security = page_security(stated, users, AccessControl(), inner_secret="known to both")
        assert security.decide is not None
        assert await security.decide(asked) is HTTPStatus.OK


def der(path: str) -> bytes:
    """The first certificate of a file."""
    first, *_ = x509.load_pem_x509_certificates(Path(path).read_bytes())
    return first.public_bytes(Encoding.DER)
