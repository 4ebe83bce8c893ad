"""What every part of the admin client stands on."""

from collections.abc import Awaitable, Callable, Container, Iterable
from typing import Self, TypeVar

from qbus.errors import ApiError, ErrorCode

from ..net.cluster import Cluster
from ..net.retry import Outcomes, settle, succeeded
from ..net.routing import MOVED

K = TypeVar("K")
T = TypeVar("T")


Ask = Callable[[list[K]], Awaitable[Outcomes[K, T]]]
"""Asks for items, once; returns what came of each, or raises what holds for all of them."""


class AdminBase:
    """A cluster, and how its controller is asked."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "qbus-admin",
        request_timeout_ms: int = 30_000,
    ) -> None:
        """Connects when first asked for something.

        bootstrap: ``host:port,...`` or ``zk://host:port,.../chroot``.
        client_id: what brokers call this client in their logs and quotas.
        request_timeout_ms: how long an answer may take, retries included; a method that has to ask
            several things one after another may take as long for each.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        self._cluster = Cluster(bootstrap, client_id, request_timeout_ms / 1000)

    @classmethod
    def over(cls, cluster: Cluster) -> Self:
        """One that shares the connections of ``cluster``, which somebody else closes."""
        admin = cls.__new__(cls)
        admin._cluster = cluster
        return admin

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    @property
    def _server_timeout_ms(self) -> int:
        """How long a broker may wait for others: less than we wait for its answer."""
        return int(self._cluster.request_timeout * 900)

    async def _by_controller(self, items: Iterable[K], ask: Ask[K, T]) -> dict[K, T]:
        """The controller's answer for each item, wherever it has moved; as ``succeeded``.

        Only what is known not to have been done is asked for again: who repeats what may have been
        done is told "exists already".
        """
        forget = self._cluster.metadata.forget_controller
        attempt = _noticing(ask, {ErrorCode.NOT_CONTROLLER}, forget)
        timeout = self._cluster.request_timeout
        return succeeded(await settle(items, attempt, timeout, final=_ALL_BUT_NOT_DONE))

    async def _by_coordinator(
        self, group: str, items: Iterable[K], ask: Ask[K, T], final: Container[ErrorCode] = ()
    ) -> dict[K, T]:
        """The answer of a group's coordinator for each item, wherever it has moved."""
        attempt = _noticing(ask, MOVED, lambda: self._cluster.forget_coordinator(group))
        return succeeded(await settle(items, attempt, self._cluster.request_timeout, final=final))


def _noticing(ask: Ask[K, T], moved: Container[ErrorCode], forget: Callable[[], None]) -> Ask[K, T]:
    """``ask``, which forgets whom it asked when the answer is that it should not have."""

    async def attempt(wanted: list[K]) -> Outcomes[K, T]:
        try:
            outcomes = await ask(wanted)
        except ApiError as error:
            outcomes = dict.fromkeys(wanted, error)
        if any(isinstance(found, ApiError) and found.code in moved for found in outcomes.values()):
            forget()
        return outcomes

    return attempt


class _AllBut(Container[ErrorCode]):
    def __init__(self, *codes: ErrorCode) -> None:
        self._codes = frozenset(codes)

    def __contains__(self, code: object) -> bool:
        return code not in self._codes


_ALL_BUT_NOT_DONE = _AllBut(
    ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NETWORK_EXCEPTION
)
