"""Who asks: a user for each operation on each kind of resource under each kind of rule.

All rules are about the same few names, of which some exist and some do not. Each user but the bare
ones may also do everything in the *lobby*: what a request needs besides that which is being tried.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from .rules import (
    ANYTHING,
    CLUSTER_NAME,
    EVERYBODY,
    OPERATIONS,
    Kind,
    Operation,
    Pattern,
    Permission,
    Rule,
)

THIS_HOST: Final = "127.0.0.1"
OTHER_HOST: Final = "10.9.9.9"

NAMES: Final = {
    Kind.TOPIC: ("orders", "orders-absent", "orders/invalid"),
    Kind.GROUP: ("readers", "readers-absent"),
    Kind.TRANSACTIONAL_ID: ("payments", "payments-absent"),
    Kind.CLUSTER: (CLUSTER_NAME,),
}
"""What rules are about; ``orders``, ``readers`` and ``payments`` exist."""

PREFIXES: Final = {Kind.TOPIC: "orde", Kind.GROUP: "read", Kind.TRANSACTIONAL_ID: "pay"}

LOBBY: Final = {
    Kind.TOPIC: "lobby",
    Kind.GROUP: "lobby-group",
    Kind.TRANSACTIONAL_ID: "lobby-tx",
}
OF_JOBS: Final = "disque"
"""The group that takes jobs; the lobby has it."""

VAULT: Final = {
    Kind.TOPIC: "vault",
    Kind.GROUP: "vault-group",
    Kind.TRANSACTIONAL_ID: "vault-tx",
}
"""What exists, and no rule names."""


OF_EVERYBODY: Final = (
    Rule(Permission.ALLOW, Operation.READ, Kind.TOPIC, "plaza", principal=EVERYBODY),
    Rule(Permission.DENY, Operation.ALL, Kind.TOPIC, "closed", principal=EVERYBODY),
)
"""Rules about all users: these topics do not exist."""


class User(NamedTuple):
    """One who asks, and the rules about it."""

    name: str
    rules: tuple[Rule, ...]
    is_bare: bool = False  # without the lobby

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Those and what is said of everybody."""
        return (*self.rules, *OF_EVERYBODY)

    @property
    def principal(self) -> str:
        """As rules call it."""
        return f"User:{self.name}"

    @property
    def password(self) -> str:
        """Its password."""
        return f"matrix-secret-of-{self.name}"


def everything() -> Iterator[Rule]:
    """Rules that allow everything."""
    for kind in Kind:
        name = CLUSTER_NAME if kind is Kind.CLUSTER else ANYTHING
        yield Rule(Permission.ALLOW, Operation.ALL, kind, name)


def _lobby() -> Iterator[Rule]:
    for kind, name in (*LOBBY.items(), (Kind.GROUP, OF_JOBS)):
        yield Rule(Permission.ALLOW, Operation.ALL, kind, name)


def _literal(
    permission: Permission, operation: Operation, kind: Kind, host: str = ANYTHING
) -> tuple[Rule, ...]:
    return tuple(Rule(permission, operation, kind, name, host=host) for name in NAMES[kind])


def _ways(operation: Operation, kind: Kind) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """Every kind of rule about an operation; those that deny are of somebody who may all else."""
    allow, deny, all_else = Permission.ALLOW, Permission.DENY, tuple(everything())
    yield "allow", _literal(allow, operation, kind)
    yield "this-host", _literal(allow, operation, kind, THIS_HOST)
    yield "other-host", _literal(allow, operation, kind, OTHER_HOST)
    yield "deny", (*all_else, *_literal(deny, operation, kind))
    yield "deny-other-host", (*all_else, *_literal(deny, operation, kind, OTHER_HOST))
    if kind is not Kind.CLUSTER:
        prefix = PREFIXES[kind]
        yield "prefix", (Rule(allow, operation, kind, prefix, Pattern.PREFIXED),)
        yield (
            "deny-prefix",
            (*all_else, Rule(deny, operation, kind, prefix, Pattern.PREFIXED)),
        )
        yield "wildcard", (Rule(allow, operation, kind, ANYTHING),)
        yield "deny-wildcard", (*all_else, Rule(deny, operation, kind, ANYTHING))


def operations(kind: Kind) -> Iterator[Operation]:
    """What rules about a kind of resource are tried for."""
    yield from OPERATIONS[kind]
    if kind is Kind.CLUSTER:
        yield Operation.DELETE  # not listed among the authorized ones, and asked for all the same
    yield Operation.ALL


def _users() -> Iterator[User]:
    lobby = tuple(_lobby())
    yield User("nothing", lobby)
    yield User("bare-nothing", (), is_bare=True)
    for kind in Kind:
        for operation in operations(kind):
            for way, rules in _ways(operation, kind):
                name = f"{kind.name}-{operation.name}-{way}".lower().replace("_", "-")
                yield User(name, (*lobby, *rules))
                if (operation, kind) in _OF_BARE:
                    yield User(f"bare-{name}", rules, is_bare=True)


_OF_BARE: Final = {
    (Operation.WRITE, Kind.TOPIC),
    (Operation.READ, Kind.TOPIC),
    (Operation.ALL, Kind.TOPIC),
    (Operation.IDEMPOTENT_WRITE, Kind.CLUSTER),
    (Operation.ALL, Kind.CLUSTER),
}

USERS: Final = tuple(_users())
