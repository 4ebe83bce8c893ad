"""What decides whether a client may do something."""

from typing import Protocol

from qbus.security.acls import AclIndex, Decision, Operation, Resource, ResourceType

from ..net.peer import Principal


class Versioned(Protocol):
    """Something whose ``version`` changes whenever it does."""

    version: int


class Authorizer(Protocol):
    """Decides. It is asked in the event loop, so it answers from memory.

    ``rules`` are what it goes by: what was answered under another version of them is to be asked
    again. It is always the same object.
    """

    @property
    def rules(self) -> Versioned: ...

    def is_allowed(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        """Whether ``principal``, connected from the address ``host``, may do that."""

    def is_allowed_for_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether it may do that to any resource of a type, be there one or not (KIP-679)."""

    def explain(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> Decision:
        """The same answer as of :meth:`is_allowed`, and what decided it."""


class AclAuthorizer:
    """Decides by access rules, which the metadata cache keeps as the store has them."""

    __slots__ = ("_rules",)

    def __init__(self, rules: AclIndex) -> None:
        """``rules`` may change at any time."""
        self._rules = rules

    @property
    def rules(self) -> AclIndex:
        """See :class:`Authorizer`."""
        return self._rules

    def is_allowed(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        """See :class:`Authorizer`."""
        return self._rules.allows(str(principal), host, operation, resource)

    def is_allowed_for_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """See :class:`Authorizer`."""
        return self._rules.allows_any(str(principal), host, operation, kind)

    def explain(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> Decision:
        """See :class:`Authorizer`."""
        return self._rules.explain(str(principal), host, operation, resource)
