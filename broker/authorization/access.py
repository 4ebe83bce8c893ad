"""Asks the authorizer, counts what it denies, and has the audit log record it."""

import logging
from collections.abc import Collection, Iterable
from time import monotonic
from typing import Final, Protocol

from qbus.security.acls import Decision, Operation, Reason, Resource, ResourceType

from ..audit import AuditLog, Caller
from ..net.peer import Grants, Peer, Principal
from .authorizer import Authorizer, Versioned

_log = logging.getLogger(__name__)

_LOG_EVERY_S: Final = 10.0
_LONGEST_NAME: Final = 300


class _Unchanging:
    """The rules where there are none."""

    version = 0


class Asking(Protocol):
    """A connection's client: a :class:`Peer`, or what another protocol has in its place."""

    @property
    def principal(self) -> Principal:
        """Who it is."""

    @property
    def host(self) -> str:
        """The address it is connected from."""

    @property
    def grants(self) -> Grants:
        """What was decided for it before."""


class AccessControl:
    """The one place where all protocols ask whether a client may do something.

    ``is_restricted``: anything may be denied, or is to be recorded; without it nobody need ask.
    ``denied`` counts what was denied that a client asked for. What was decided under another
    version of ``rules`` is to be decided anew.
    """

    def __init__(
        self,
        authorizer: Authorizer | None = None,
        audit: AuditLog | None = None,
        brokers: Collection[Principal] = (),
    ) -> None:
        """Without an ``authorizer`` all is allowed. ``brokers``: as whom other brokers come."""
        self.authorizer = authorizer
        self.audit = audit
        self.denied = 0
        self.is_restricted = authorizer is not None or audit is not None
        self._brokers = frozenset(brokers)
        self._logged = 0
        self._logged_at = -_LOG_EVERY_S
        self.rules: Versioned = _Unchanging() if authorizer is None else authorizer.rules

    def close(self) -> None:
        """Have the audit log write what waits, and close it."""
        if self.audit is not None:
            self.audit.close()

    @property
    def broker_names(self) -> frozenset[str]:
        """The users that brokers of the cluster are."""
        return frozenset(principal.name for principal in self._brokers)

    def is_broker(self, principal: Principal) -> bool:
        """Whether this is how brokers of the cluster authenticate."""
        return principal in self._brokers

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        """Whether a client may do that. Nothing is counted or recorded."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.is_allowed(principal, host, operation, resource)

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether a client may do that to any resource of a type (KIP-679)."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.is_allowed_for_any(principal, host, operation, kind)

    def grants_of(self, peer: Asking) -> Grants:
        """What was decided for a connection's client by the rules of now."""
        grants, version = peer.grants, self.rules.version
        if grants.version != version:
            grants.renew(version)
        return grants

    def allows_peer(self, peer: Asking, operation: Operation, resource: Resource) -> bool:
        """As :meth:`allows` for a connection's client, from what was decided before if it holds."""
        grants = self.grants_of(peer)
        key = operation, resource
        allowed = grants.decisions.get(key)
        if allowed is None:
            allowed = self.allows(peer.principal, peer.host, operation, resource)
            grants.keep(key, allowed=allowed)
        return allowed

    def check(self, peer: Peer, operation: Operation, resource: Resource, caller: Caller) -> bool:
        """Whether a client may do what it asks for; counted if not, and recorded as is due."""
        allowed = self.allows_peer(peer, operation, resource)
        self.note(caller, operation, resource, allowed=allowed)
        return allowed

    def note(
        self, caller: Caller, operation: Operation, resource: Resource, *, allowed: bool
    ) -> None:
        """Count and record, as is due, a decision about something that a client asked for."""
        if not allowed or self.wants_record(administers=caller.administers):
            self.record(caller, operation, resource)

    def wants_record(self, *, administers: bool) -> bool:
        """Whether the audit log is to have something that was allowed."""
        audit = self.audit
        return audit is not None and (administers or audit.samples())

    @property
    def is_record_due(self) -> bool:
        """Whether the audit log is to have the next request that is allowed, whatever it is."""
        return self.audit is not None and self.audit.is_due()

    def record(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """Count and record a decision."""
        decision = self._why(caller, operation, resource)
        if not decision.allowed:
            self.denied += 1
            self._log_denial(caller, operation, resource, decision)
        if self.audit is not None:
            self.audit.authorization(caller, operation, resource, decision)

    def _log_denial(
        self, caller: Caller, operation: Operation, resource: Resource, decision: Decision
    ) -> None:
        """Have the broker's log tell of some denials: a client may be denied very often."""
        now = monotonic()
        if now - self._logged_at < _LOG_EVERY_S:
            return
        others, self._logged = self.denied - self._logged - 1, self.denied
        self._logged_at = now
        _log.info(
            "%s from %s may not %s %s %r, which %s asks for: %s (and %d other denials since the "
            "last such line; the audit log has all of them)",
            caller.principal,
            caller.host,
            operation.name,
            resource.type.name.lower(),
            resource.name[:_LONGEST_NAME],
            caller.request,
            decision,
            others,
        )

    def _why(self, caller: Caller, operation: Operation, resource: Resource) -> Decision:
        authorizer, principal = self.authorizer, caller.principal
        if authorizer is None:
            return Decision(True, Reason.NO_AUTHORIZER)
        return authorizer.explain(principal, caller.host, operation, resource)


class Sight:
    """Which topics a client may know of: those that it may describe.

    Equal ones are of the same client under the same rules; it outlives the client's request.
    """

    __slots__ = ("_access", "_client")

    def __init__(self, access: AccessControl, principal: Principal, host: str) -> None:
        self._access = access
        self._client = principal, host, access.rules.version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sight) and self._client == other._client

    def __hash__(self) -> int:
        return hash(self._client)

    def sees(self, topic: str, /) -> bool:
        """Whether it may know of a topic by this name, by the rules of now."""
        principal, host, _ = self._client
        resource = Resource(ResourceType.TOPIC, topic)
        return self._access.allows(principal, host, Operation.DESCRIBE, resource)


def bits(operations: Iterable[Operation]) -> int:
    """A set of operations as a number: each is the bit of its own number (KIP-430)."""
    return sum(1 << operation for operation in operations)
