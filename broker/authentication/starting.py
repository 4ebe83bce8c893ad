"""How a broker's authentication is put together at the start."""

import asyncio
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.metadata import Create, MetadataStore, NodeExists
from qbus.metadata.znodes import CLUSTER_SECRET
from qbus.security.credentials import Credentials
from qbus.security.sasl import OAUTHBEARER

from ..metadata.cache import MetadataCache
from ..net.peer import ANONYMOUS
from .authentication import Authentication

_SECRET_BYTES: Final = 32
_KEYS_S: Final = 3.0


async def start_authentication(
    config: BrokerConfig,
    clock: Clock,
    store: MetadataStore,
    metadata: MetadataCache,
    brokers: Iterable[str] = (),
) -> Authentication:
    """Return what knows the users; the keys of tokens are read already, if they can be soon.

    ``brokers``: as which users brokers come, by a password or a certificate: no token is of those.

    Raises:
        ConfigError: settings of OAUTHBEARER are missing.
        StoreUnavailable: the store cannot be used.
    """
    listeners = [one for one in config.kafka_listeners if one.protocol.is_sasl]
    # Only salts of users that do not exist follow from it, so nobody else needs a lasting one.
    secret = await cluster_secret(store) if listeners else secrets.token_bytes(_SECRET_BYTES)
    credentials = Credentials(secret)
    own = config.for_listener(config.inter_broker_listener)
    user, password = own.sasl_inter_broker_username, own.sasl_inter_broker_password
    if user and password:
        credentials.put_own(user, password)
    tokens = None
    if any(
        OAUTHBEARER in config.for_listener(one.name).sasl_enabled_mechanisms for one in listeners
    ):
        from .bearer import token_services  # noqa: PLC0415 - PyJWT, only where tokens are taken

        reserved = {ANONYMOUS.name, *brokers, *([user] if user else [])}
        tokens = token_services(config, frozenset(reserved))
    authentication = Authentication(config, clock, metadata, credentials, tokens)
    if authentication.takes_tokens:
        with suppress(TimeoutError):  # the reading goes on meanwhile, and tells of its failure
            await asyncio.wait_for(authentication.look_after_tokens(), _KEYS_S)
    return authentication


async def cluster_secret(store: MetadataStore) -> bytes:
    """Return the secret that the brokers of a cluster share; the first one makes it.

    Raises:
        StoreUnavailable: the store cannot be used.
    """
    while True:
        node = await store.get(CLUSTER_SECRET)
        if node is not None:
            return b64decode(node.data)
        try:
            secret = b64encode(secrets.token_bytes(_SECRET_BYTES))
            await store.transaction([Create(CLUSTER_SECRET, secret)])
        except NodeExists:  # another broker was first
            continue
