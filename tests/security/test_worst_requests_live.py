"""The worst requests of 1 MB, sent to a secured broker, with an honest client beside them.

Strangers, a user without rules and one with few send each of them. The broker's memory is bounded
and everybody is served afterwards; how long the honest client waited at worst is printed.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.raw_client import RawClient
from tests.support.worst_requests import TOPIC, worst_requests

from .matrix.rules import Kind
from .matrix.world import Admin
from .people import Someone
from .sasl_client import SaslClient
from .secured import ADMIN, SecuredBroker
from .test_abuse import resident

pytestmark = pytest.mark.security

MOST_MEMORY: Final = 512 << 20  # bytes
_PATIENCE_S: Final = 15.0
_SCALES: Final = [
    pytest.param(2_000, id="small"),
    pytest.param(1, id="whole", marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("worst")) as made:
        with SaslClient(made.ports["SASL_PLAINTEXT"], ADMIN, made.admin_password) as client:
            Admin(client).create_topics([TOPIC])
        yield made


class Honest(threading.Thread):
    """Asks for versions again and again, and notes the longest wait."""

    def __init__(self, client: SaslClient) -> None:
        super().__init__(daemon=True)
        self.longest_s = 0.0
        self._client = client
        self._ended = threading.Event()

    def run(self) -> None:
        """Ask until it is stopped."""
        while not self._ended.wait(0.01):
            began = time.monotonic()
            assert self._client.is_served()
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def stop(self) -> float:
        """The longest wait, in seconds."""
        self._ended.set()
        self.join(60)
        assert not self.is_alive()
        return self.longest_s


@pytest.mark.parametrize("share", _SCALES)
@pytest.mark.parametrize("who", ["a stranger", "without rules", "with few rules"])
def test_the_worst_requests(who: str, share: int, broker: SecuredBroker) -> None:
    port = broker.ports["SASL_PLAINTEXT"]
    with SaslClient(port, ADMIN, broker.admin_password) as client:
        admin = Admin(client)
        ids = admin.topic_ids([TOPIC])
        someone = Someone(broker, admin)
        if who == "with few rules":
            someone.allow(Kind.TOPIC, TOPIC)
            for group in ("g", "committed", "fetched", "joined", "beating"):
                someone.allow(Kind.GROUP, group)
    before = resident(broker.server.pid)
    with SaslClient(port, ADMIN, broker.admin_password, timeout=60.0) as client:
        honest = Honest(client)
        honest.start()
        for worst in worst_requests(share):
            frame = worst.frame(ids)
            with contextlib.suppress(OSError), _connected(who, port, someone) as attacker:
                attacker.send_frame(frame)
                attacker.receive_frame()
            grown = resident(broker.server.pid) - before
            assert grown < MOST_MEMORY, f"{grown >> 20} MB after {worst.title}"
        print(f"{who}: an honest client waited {honest.stop() * 1e3:.0f} ms at the longest")
        assert client.is_served()


def _connected(who: str, port: int, someone: Someone) -> RawClient:
    if who == "a stranger":
        return RawClient(port, timeout=_PATIENCE_S)
    return SaslClient(port, someone.name, someone.password, timeout=_PATIENCE_S)
