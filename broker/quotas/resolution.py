"""Which quota holds for whom: Kafka's precedence, decided for each kind of quota by itself.

The first of these that states a quota decides (KIP-55): the user's with the client id, the user's
with the default client id, the user's; the default user's with the client id, with the default
client id, and alone; the client id's; the default client id's.

What a user's quota holds for is shared by all that the user does, on every connection and under
every client id; what a client id's holds for, by all clients that call themselves so, whoever
they are.
"""

from collections.abc import Mapping
from typing import NamedTuple

from qbus.metadata.client_quotas import CLIENT_KEYS, CONNECTION_CREATION_RATE, DEFAULT, QuotaEntity

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class Sharers(NamedTuple):
    """Who share one quota: all of a user, of a client id, or of a client id of a user."""

    user: str | None
    client_id: str | None


class Applied(NamedTuple):
    """The quota that holds, and whom it is shared by."""

    bound: float
    sharers: Sharers


class QuotaTable:
    """All quotas that are configured."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._kinds = {kind for values in quotas.values() for kind in values}

    def has(self, kind: str) -> bool:
        """Whether anybody has a quota of that kind."""
        return kind in self._kinds

    @property
    def has_client_quotas(self) -> bool:
        """Whether any user or client has a quota."""
        return not self._kinds.isdisjoint(CLIENT_KEYS)

    @property
    def has_client_ids(self) -> bool:
        """Whether it ever matters which client id a client has."""
        return any(entity.client_id is not None for entity in self._quotas)

    @property
    def has_connection_rates(self) -> bool:
        """Whether any address has a quota."""
        return CONNECTION_CREATION_RATE in self._kinds

    def applied(self, kind: str, user: str, client_id: str) -> Applied | None:
        """The quota of ``kind`` that holds for a request of ``user`` as ``client_id``, if any."""
        if kind not in self._kinds:
            return None
        for whose in (user, DEFAULT):
            for which in (client_id, DEFAULT):
                bound = self._bound(kind, QuotaEntity(whose, which))
                if bound is not None:
                    return Applied(bound, Sharers(user, client_id))
            bound = self._bound(kind, QuotaEntity(whose))
            if bound is not None:
                return Applied(bound, Sharers(user, None))
        for which in (client_id, DEFAULT):
            bound = self._bound(kind, QuotaEntity(None, which))
            if bound is not None:
                return Applied(bound, Sharers(None, client_id))
        return None

    def connection_rate(self, ip: str) -> float | None:
        """How many connections a second an address may open; None: any number."""
        for whose in (ip, DEFAULT):
            bound = self._bound(CONNECTION_CREATION_RATE, QuotaEntity(ip=whose))
            if bound is not None:
                return bound
        return None

    def _bound(self, kind: str, entity: QuotaEntity) -> float | None:
        values = self._quotas.get(entity)
        return None if values is None else values.get(kind)
