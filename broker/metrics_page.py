"""Who may read the broker's metrics: users who may DESCRIBE the cluster, as Kafka's protocol asks.

The page is served from a thread of its own, with an event loop of its own; decisions are made in
the broker's.
"""

import asyncio
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

from qbus.config import BrokerConfig
from qbus.errors import ConfigError
from qbus.service.http import Caller
from qbus.service.prometheus import PageSecurity

from .authorization import CLUSTER, AccessControl, Operation
from .authorization import Caller as Asker
from .net.peer import Principal

_PATIENCE_S: Final = 10.0
_LISTENER: Final = "METRICS"


class Users(Protocol):
    """The users of SASL."""

    async def verify(self, user: str, password: str, host: str) -> Principal | None:
        """Who gives this name and password from the address ``host``; None: it is wrong."""


class PageAccess:
    """Decides who may read the metrics of one broker. Make it in the broker's event loop."""

    def __init__(
        self,
        users: Users | None,
        access: AccessControl,
        *,
        identify: Callable[[bytes], str | None] | None = None,
        delay_s: float = 0.1,
    ) -> None:
        """``users``: None: nobody has a password.

        ``identify``: tells a user's name by a certificate in DER; None: certificates say nothing.
        ``delay_s``: how late a wrong password is answered.
        """
        self._users = users
        self._access = access
        self._identify = identify
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()

    async def decide(self, caller: Caller) -> HTTPStatus:
        """See :data:`qbus.service.http.Decide`: for the event loop of another thread."""
        decision = asyncio.run_coroutine_threadsafe(self.decide_here(caller), self._loop)
        return await asyncio.wait_for(asyncio.wrap_future(decision), _PATIENCE_S)

    async def decide_here(self, caller: Caller) -> HTTPStatus:
        """The same for the broker's event loop."""
        principal = await self._principal(caller)
        if principal is None:
            return HTTPStatus.UNAUTHORIZED
        access, operation = self._access, Operation.DESCRIBE
        allowed = access.allows(principal, caller.host, operation, CLUSTER)
        if not allowed or access.audit is not None:
            asker = Asker(principal, caller.host, None, "HTTP METRICS")
            access.note(asker, operation, CLUSTER, allowed=allowed)
        return HTTPStatus.OK if allowed else HTTPStatus.FORBIDDEN

    async def _principal(self, caller: Caller) -> Principal | None:
        if caller.certificate is not None and self._identify is not None:
            name = self._identify(caller.certificate)
            return Principal("User", name) if name else None
        if self._users is None or caller.user is None or caller.password is None:
            return None
        principal = await self._users.verify(caller.user, caller.password, caller.host)
        if principal is None:
            await asyncio.sleep(self._delay_s)
        return principal


def page_security(
    config: BrokerConfig,
    users: Users | None,
    access: AccessControl,
    *,
    inner_secret: str | None = None,
) -> PageSecurity:
    """How the page is protected, as it is configured. Call it in the broker's event loop.

    ``inner_secret``: where the page of all brokers of this machine asks this one, for its own
    callers: what it says to be believed; empty: whoever asks may read. None: there is no such page.

    Raises ConfigError: a certificate cannot be read.
    """
    is_open = not config.metrics_authenticates if inner_secret is None else not inner_secret
    if is_open:
        return PageSecurity(page_tls(config))
    page = PageAccess(
        users if config.metrics_take_passwords else None,
        access,
        identify=_identify(config),
        delay_s=config.connection_failed_authentication_delay_ms / 1000,
    )
    return PageSecurity(page_tls(config), page.decide, inner_secret or "")


def page_tls(config: BrokerConfig) -> Callable[[], ssl.SSLContext] | None:
    """What makes the context of a connection; None: the page is not encrypted.

    Raises ConfigError: a certificate cannot be read.
    """
    page = config.metrics_listener
    if page is None or not page.protocol.is_encrypted:
        return None
    from qbus.security.tls import ServerTls  # noqa: PLC0415 - only where TLS is used

    return ServerTls(config.for_listener(_LISTENER), _LISTENER).context


def _identify(config: BrokerConfig) -> Callable[[bytes], str | None] | None:
    own = config.for_listener(_LISTENER)
    if own.ssl_client_auth == "none":
        return None
    from qbus.security.principals import PrincipalMapper, subject  # noqa: PLC0415 - as above

    mapper = PrincipalMapper(own.ssl_principal_mapping_rules)

    def name(certificate: bytes) -> str | None:
        try:
            return mapper.name(subject(certificate))
        except ConfigError:
            return None

    return name
