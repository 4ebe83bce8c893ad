"""How Kafka decides, stated once more and as short as can be: the measure for both brokers.

Rules are Kafka's ACLs. A rule that denies wins over all that allow. An allowing rule for READ,
WRITE, DELETE or ALTER also allows DESCRIBE, one for ALTER_CONFIGS also DESCRIBE_CONFIGS; denying
rules imply nothing. Without a rule that allows, everything is denied.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple


class Operation(IntEnum):
    """Kafka's ``AclOperation``."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Kind(IntEnum):
    """Kafka's ``ResourceType``."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Pattern(IntEnum):
    """Kafka's ``PatternType``, as far as rules can have it."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's ``AclPermissionType``."""

    DENY = 2
    ALLOW = 3


ANYTHING: Final = "*"
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"

OPERATIONS: Final = {
    Kind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Kind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Kind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    Kind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
"""What can be done to each kind of resource, as the authorized operations of answers list it."""

_IMPLIED: Final = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


class Rule(NamedTuple):
    """One ACL."""

    permission: Permission
    operation: Operation
    kind: Kind
    name: str
    pattern: Pattern = Pattern.LITERAL
    host: str = ANYTHING
    principal: str = ""  # "": of whoever is given the rule

    def covers(self, kind: Kind, name: str) -> bool:
        """Whether its pattern matches a resource."""
        if self.kind is not kind:
            return False
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in {name, ANYTHING}

    def speaks_of(self, operation: Operation) -> bool:
        """Whether it decides about an operation."""
        if self.operation in {Operation.ALL, operation}:
            return True
        implied = _IMPLIED.get(operation, set())
        return self.permission is Permission.ALLOW and self.operation in implied


class Need(NamedTuple):
    """An operation on a resource; ``name`` is "*" where any resource of its kind will do."""

    operation: Operation
    kind: Kind
    name: str

    @classmethod
    def parse(cls, text: str) -> "Need":
        """Read ``"READ topic orders"``, ``"ALTER cluster"``, ``"WRITE any topic"``."""
        operation, kind, *name = text.split()
        if kind == "any":
            return cls(Operation[operation], Kind[name[0].upper()], ANYTHING)
        if kind == "cluster":
            return cls(Operation[operation], Kind.CLUSTER, CLUSTER_NAME)
        named = {"topic": Kind.TOPIC, "group": Kind.GROUP, "transaction": Kind.TRANSACTIONAL_ID}
        return cls(Operation[operation], named[kind], name[0])


def is_allowed(rules: Iterable[Rule], host: str, need: Need) -> bool:
    """Whether somebody with these rules, connected from ``host``, may do that."""
    asked = [one for one in rules if one.host in {ANYTHING, host}]
    if need.name == ANYTHING:
        return _is_allowed_on_any(asked, need)
    found = {
        one.permission
        for one in asked
        if one.covers(need.kind, need.name) and one.speaks_of(need.operation)
    }
    return found == {Permission.ALLOW}


def authorized_operations(rules: Iterable[Rule], host: str, kind: Kind, name: str) -> str:
    """All that may be done to a resource, by name and in order."""
    rules = list(rules)
    allowed = (one for one in OPERATIONS[kind] if is_allowed(rules, host, Need(one, kind, name)))
    return ",".join(sorted(one.name for one in allowed))


def _is_allowed_on_any(rules: Iterable[Rule], need: Need) -> bool:
    """Whether there is a name for which it is allowed, as far as rules alone can tell."""
    named = [one for one in rules if one.kind is need.kind]
    about = [one for one in named if one.operation in {Operation.ALL, need.operation}]
    denying = [one for one in about if one.permission is Permission.DENY]
    if any(one.name == ANYTHING and one.pattern is Pattern.LITERAL for one in denying):
        return False
    return any(
        one.name == ANYTHING or not any(_dominates(deny, one) for deny in denying)
        for one in about
        if one.permission is Permission.ALLOW
    )


def _dominates(deny: Rule, allow: Rule) -> bool:
    """Whether all that the one allows is denied by the other."""
    if deny.pattern is Pattern.PREFIXED:
        return allow.name.startswith(deny.name)
    return allow.pattern is Pattern.LITERAL and allow.name == deny.name
