"""One request's context: what a handler may know of it besides its body."""

import asyncio
from typing import Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey

from ..authorization import (
    OPERATIONS,
    AccessControl,
    Caller,
    Operation,
    Resource,
    ResourceType,
    Sight,
    bits,
)
from ..net.peer import ANONYMOUS, Peer, Principal
from ..quotas import UNLIMITED
from .throttling import Charge

_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

ADMINISTRATION: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_GROUPS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.OFFSET_DELETE,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""The APIs that change what others rely on: the audit log has every such request."""


class RequestContext:
    """One request's header, where it came from, and what its sender may do."""

    __slots__ = (
        "_access",
        "_waits_since",
        "api_key",
        "api_version",
        "charge",
        "client_id",
        "keeps_frame",
        "peer",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        client_id: str | None,
        peer: Peer,
        access: AccessControl | None = None,
        charge: Charge | None = None,
    ) -> None:
        """Without ``access`` everything is allowed.

        ``charge``: what counts the request against quotas, if there are any. ``keeps_frame``: the
        records of the request stay where they are after the handler has returned.
        """
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.peer = peer
        self.charge = charge
        self.keeps_frame = False
        self._access = access
        self._waits_since: float | None = None

    def deadline(self, seconds: float) -> float:
        """The time of the event loop until which the request may wait.

        ``seconds`` after the first call; so the pieces of a long request share one deadline.
        """
        if self._waits_since is None:
            self._waits_since = asyncio.get_running_loop().time()
        return self._waits_since + seconds

    @property
    def client_host(self) -> str:
        """The client's address, without the port."""
        return self.peer.host

    @property
    def sender(self) -> str:
        """Who sent the request, for a log line."""
        principal = self.peer.principal
        who = "" if principal == ANONYMOUS else f" ({principal})"
        return f"client {self.client_id!r}{who} at {self.peer.host}"

    @property
    def client_software(self) -> str:
        """The client library and its version, as it calls itself."""
        return self.peer.software

    @property
    def principal(self) -> Principal:
        """Who the client is."""
        return self.peer.principal

    @property
    def caller(self) -> Caller:
        """Who asks by which request, for the audit log."""
        key = self.api_key
        return Caller(
            self.peer.principal,
            self.peer.host,
            self.client_id,
            ApiKey(key).name,
            key in ADMINISTRATION,
        )

    @property
    def is_restricted(self) -> bool:
        """Whether anything may be denied: false saves the hot path a question for each topic."""
        return self._access is not None and self._access.is_restricted

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Whether the client may do that, which it asks for."""
        access = self._access
        if access is None or not access.is_restricted:
            return True
        allowed = access.allows_peer(self.peer, operation, resource)
        if not allowed or access.wants_record(administers=self.api_key in ADMINISTRATION):
            access.record(self.caller, operation, resource)
        return allowed

    def may(self, operation: Operation, resource: Resource) -> bool:
        """Whether the client could do that: it does not ask for it, so nothing is recorded."""
        access = self._access
        return (
            access is None
            or not access.is_restricted
            or access.allows_peer(self.peer, operation, resource)
        )

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the client could do that to any resource of a type (KIP-679)."""
        access, peer = self._access, self.peer
        return access is None or access.allows_any(peer.principal, peer.host, operation, kind)

    @property
    def sight(self) -> Sight | None:
        """Which topics the client may know of, for what looks at them later; None: all."""
        access, peer = self._access, self.peer
        if access is None or access.authorizer is None:
            return None
        return Sight(access, peer.principal, peer.host)

    def authorize(self, operation: Operation, resource: Resource) -> None:
        """Refuse what the client may not do.

        Raises:
            ApiError: the resource's AUTHORIZATION_FAILED.
        """
        if not self.allows(operation, resource):
            raise ApiError(_REFUSALS[resource.type])

    def changed(self, action: str, target: str) -> None:
        """Have the audit log tell of a change that was made: what was done, and to what."""
        access = self._access
        if access is not None and access.audit is not None:
            access.audit.administration(self.caller, action, target)

    def authorized_operations(self, resource: Resource) -> int:
        """What the client may do to a resource, as a set of bits (KIP-430)."""
        operations = OPERATIONS[resource.type]
        return bits(operation for operation in operations if self.may(operation, resource))

    # Quotas

    @property
    def fetch_limit(self) -> int:
        """How many bytes of records a fetch may bring, besides its first batch."""
        return UNLIMITED if self.charge is None else self.charge.fetch_limit

    def exempt_from_quotas(self) -> None:
        """Do not count the request: another broker sent it, and was found to be one."""
        if self.charge is not None:
            self.charge.exempt()

    def change_partitions(self, count: int, *, strict: bool) -> None:
        """Count the creation or deletion of ``count`` partitions (KIP-599).

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, in a ``strict`` request while the quota is used up.
        """
        if self.charge is not None:
            self.charge.change(count, strict=strict)

    def change_partitions_back(self, count: int) -> None:
        """Do not count a change that did not come about."""
        if self.charge is not None:
            self.charge.change_back(count)
