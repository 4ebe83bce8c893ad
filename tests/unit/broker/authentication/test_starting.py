"""What a broker's authentication starts with."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from qbus.broker.authentication import key_set, starting
from qbus.broker.authentication.exchange import TokenRefused
from qbus.broker.authentication.starting import cluster_secret, start_authentication
from qbus.broker.metadata.cache import MetadataCache
from qbus.broker.metadata.image import Event
from qbus.clock import SystemClock
from qbus.config import BrokerConfig
from qbus.metadata import Create, Delete, EmbeddedStore, MetadataStore
from qbus.metadata.feed import announce
from qbus.metadata.znodes import CLUSTER_SECRET, ChangeNode, ConfigNode
from qbus.security.scram import ScramCredential, ScramMechanism
from tests.support.jwt_issuer import AUDIENCE, public_jwk, rsa_key, token, write_key_set
from tests.support.waiting import eventually

SHA_256 = ScramMechanism.SHA_256
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:1",
    "sasl.inter.broker.username": "broker",
    "sasl.inter.broker.password": "secret",
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        yield store


async def test_the_cluster_has_one_secret(store: MetadataStore) -> None:
    secret = await cluster_secret(store)
    assert len(secret) == 32
    assert await cluster_secret(store) == secret


async def test_users_that_do_not_exist_look_the_same_after_a_restart(store: MetadataStore) -> None:
    fakes = set()
    for _ in range(2):
        config = BrokerConfig(SASL)
        cache = MetadataCache(store, config)
        await cache.start()
        made = await start_authentication(config, SystemClock(), store, cache)
        fakes.add(made.credentials.find_or_fake(SHA_256, "nobody").salt)
        made.close()
        await cache.close()
    assert len(fakes) == 1


async def test_users_of_the_store_and_of_the_configuration_are_known(store: MetadataStore) -> None:
    alice = ScramCredential.from_password(SHA_256, "secret")
    node = ConfigNode({SHA_256.mechanism: alice.encode()})
    await store.transaction([Create(ConfigNode.user_path("alice"), node.encode())])
    config = BrokerConfig(SASL)
    cache = MetadataCache(store, config)
    await cache.start()
    made = await start_authentication(config, SystemClock(), store, cache)
    assert made.credentials.find(SHA_256, "alice") == alice
    assert made.credentials.find(SHA_256, "broker") is not None
    made.close()
    await cache.close()


async def test_who_is_removed_is_unknown_at_once_though_partitions_wait_for_a_disk(
    store: MetadataStore,
) -> None:
    alice = ScramCredential.from_password(SHA_256, "secret")
    node = ConfigNode({SHA_256.mechanism: alice.encode()})
    await store.transaction([Create(ConfigNode.user_path("alice"), node.encode())])
    config, go_on = BrokerConfig(SASL), asyncio.Event()
    cache = MetadataCache(store, config)
    await cache.start()
    made = await start_authentication(config, SystemClock(), store, cache)

    async def wait_for_a_disk(_: Sequence[Event]) -> None:
        await go_on.wait()

    cache.subscribe(wait_for_a_disk, is_first=True)
    change = ChangeNode(users=("alice",)).encode()
    await store.transaction([Delete(ConfigNode.user_path("alice")), announce(change)])
    await eventually(lambda: made.credentials.find(SHA_256, "alice") is None)
    go_on.set()
    made.close()
    await cache.close()


async def test_no_token_is_a_brokers_or_nobodys(store: MetadataStore, tmp_path: Path) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:1",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": write_key_set(
            tmp_path / "keys.json", public_jwk(rsa_key(), "one")
        ),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    config = BrokerConfig(SASL | settings)
    cache = MetadataCache(store, config)
    await cache.start()
    made = await start_authentication(config, SystemClock(), store, cache, ["CN=broker 1"])
    (tokens,) = made._tokens.values()
    assert (await tokens.verify(token(sub="alice"))).name == "alice"
    for name in ("broker", "CN=broker 1", "ANONYMOUS", "a\nb", "a\u2028b"):
        with pytest.raises(TokenRefused):
            await tokens.verify(token(sub=name))
    made.close()
    await cache.close()


async def test_nothing_is_stored_where_nobody_authenticates(store: MetadataStore) -> None:
    config = BrokerConfig()
    cache = MetadataCache(store, config)
    await cache.start()
    (await start_authentication(config, SystemClock(), store, cache)).close()
    assert await store.get(CLUSTER_SECRET) is None
    await cache.close()


async def test_an_issuer_that_does_not_answer_does_not_hold_up_the_start(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def fetch(_url: str) -> bytes:
        answered.wait(10)
        return b""

    monkeypatch.setattr(starting, "_KEYS_S", 0.01)
    monkeypatch.setattr(key_set, "fetch", fetch)
    config = BrokerConfig(
        {
            **SASL,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
            "sasl.oauthbearer.expected.audience": "qbus",
        }
    )
    cache = MetadataCache(store, config)
    await cache.start()
    made = await start_authentication(config, SystemClock(), store, cache)
    assert made.takes_tokens
    answered.set()
    made.close()
    await cache.close()
