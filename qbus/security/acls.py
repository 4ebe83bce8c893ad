"""Access rules and how they decide: Kafka's vocabulary and semantics, without IO.

A *rule* allows or denies a principal an operation on the resources that a pattern names, from one
host or from any. Brokers decide with :class:`AclIndex`; whoever has listed the rules (DescribeAcls)
gets the same answer, with the rule that decided, from the same class.

How a decision is made (KIP-11, KIP-290; Kafka's ``StandardAuthorizer``):

1. Super users may do everything.
2. The rules that concern a resource are those of its literal name, of the literal name ``*``, and
   of every prefix of its name. If there are none, ``allow.everyone.if.no.acl.found`` decides.
3. A rule that denies wins over any that allows. Without either the answer is no.
4. A rule that allows READ, WRITE, DELETE or ALTER also allows DESCRIBE; one that allows
   ALTER_CONFIGS also allows DESCRIBE_CONFIGS. A rule that denies denies what it names alone.

The principal ``User:*`` in a rule stands for everyone, the host ``*`` for every address.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple, TypeVar

WILDCARD: Final = "*"
"""As a resource's name: all of its type. As a host: every address."""

EVERYONE: Final = "User:*"
"""The principal that stands for all, of whatever type they are."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

_HOSTS: Final = 4096
_SOME_NAME: Final = "hardcode"  # by which Kafka asks whether every name is allowed

Number = TypeVar("Number", bound=IntEnum)


class Operation(IntEnum):
    """What is done to a resource, by Kafka's numbers (``AclOperation``)."""

    UNKNOWN = 0
    ANY = 1
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kinds of resources, by Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a pattern names resources, by Kafka's numbers (KIP-290).

    Rules have LITERAL or PREFIXED patterns. ANY and MATCH are for filters: MATCH finds what
    concerns a resource, by its name, by ``*`` or by a prefix.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Whether a rule allows or denies, by Kafka's numbers (``AclPermissionType``)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""What can be done to each type of resource (KIP-430)."""


def known(kind: type[Number], number: int) -> Number:
    """The member of that number; that of number 0, UNKNOWN, where there is none."""
    return kind(number) if number in kind.__members__.values() else kind(0)


class Resource(NamedTuple):
    """One resource by its name."""

    type: ResourceType
    name: str


class Pattern(NamedTuple):
    """The resources that a rule concerns; ``pattern`` is LITERAL or PREFIXED."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def concerns(self, resource: Resource) -> bool:
        """Whether the resource is one of these."""
        if resource.type is not self.type:
            return False
        if self.pattern is PatternType.PREFIXED:
            return resource.name.startswith(self.name)
        return self.name in {resource.name, WILDCARD}

    def __str__(self) -> str:
        return f"{self.pattern.name.lower()} {self.type.name.lower()} {self.name!r}"


class Entry(NamedTuple):
    """Who may do what from where, or may not."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        verb = "allows" if self.permission is Permission.ALLOW else "denies"
        where = "every address" if self.host == WILDCARD else self.host
        return f"{verb} {self.principal} {self.operation.name} from {where}"


class Rule(NamedTuple):
    """One access rule (Kafka's ``AclBinding``)."""

    pattern: Pattern
    entry: Entry

    def __str__(self) -> str:
        return f"{self.pattern} {self.entry}"


class Reason(IntEnum):
    """Why something is allowed or not."""

    SUPER_USER = 0
    RULE = 1
    NO_RULES_ALLOW = 2
    NO_RULES_DENY = 3
    NOTHING_ALLOWS = 4
    UNREADABLE = 5
    NO_AUTHORIZER = 6


_REASONS: Final = {
    Reason.SUPER_USER: "the principal is a super user",
    Reason.NO_RULES_ALLOW: "no rule concerns the resource, and allow.everyone.if.no.acl.found=true",
    Reason.NO_RULES_DENY: "no rule concerns the resource",
    Reason.NOTHING_ALLOWS: "rules concern the resource, but none allows it",
    Reason.UNREADABLE: "rules that concern the resource cannot be read",
    Reason.NO_AUTHORIZER: "nothing is restricted here: there is no authorizer",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and what decided it; ``rule`` where it was a rule."""

    allowed: bool
    reason: Reason
    rule: Rule | None = None

    def __str__(self) -> str:
        return str(self.rule) if self.rule is not None else _REASONS[self.reason]


@dataclass(frozen=True, slots=True)
class Filter:
    """What rules to find (Kafka's ``AclBindingFilter``); None and ANY match whatever there is."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def has_unknown(self) -> bool:
        """Whether a part of it is UNKNOWN, so that it means nothing."""
        return 0 in {self.type, self.pattern, self.operation, self.permission}

    def matches_pattern(self, pattern: Pattern) -> bool:
        """Whether rules of this pattern are meant."""
        if self.type not in {ResourceType.ANY, pattern.type}:
            return False
        if self.pattern not in {PatternType.ANY, PatternType.MATCH, pattern.pattern}:
            return False
        if self.name is None:
            return True
        if self.pattern is PatternType.MATCH:
            return pattern.concerns(Resource(pattern.type, self.name))
        return self.name == pattern.name

    def matches_entry(self, entry: Entry) -> bool:
        """Whether this entry is meant, whatever its pattern."""
        return (
            self.principal in {None, entry.principal}
            and self.host in {None, entry.host}
            and self.operation in {Operation.ANY, entry.operation}
            and self.permission in {Permission.ANY, entry.permission}
        )

    def matches(self, rule: Rule) -> bool:
        """Whether this rule is meant."""
        return self.matches_pattern(rule.pattern) and self.matches_entry(rule.entry)


def _bit(operation: int) -> int:
    return 1 << operation


_ALL: Final = sum(_bit(one) for one in Operation if one > Operation.ALL)
_IMPLIED: Final = {
    Operation.ALL: _ALL,
    **dict.fromkeys(
        (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
        _bit(Operation.DESCRIBE),
    ),
    Operation.ALTER_CONFIGS: _bit(Operation.DESCRIBE_CONFIGS),
}
_ALLOWED_BY: Final = {
    wanted: (wanted, *(one for one in Operation if _IMPLIED.get(one, 0) & _bit(wanted)))
    for wanted in Operation
    if wanted > Operation.ALL
}
"""For each operation those that, allowed, allow it: itself first, ALL among them."""


def canonical_host(host: str) -> str:
    """An address in one form, so that equal ones compare equal; other text as it is.

    ``::ffff:10.0.0.1`` is ``10.0.0.1``, which is how a listener of both families names its clients.
    """
    if host == WILDCARD:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


@lru_cache(maxsize=_HOSTS)
def _looked_up(principal: str, host: str) -> "tuple[Who, ...]":
    """What rules for this principal at this address may name."""
    host = canonical_host(host)
    return (principal, host), (principal, WILDCARD), (EVERYONE, host), (EVERYONE, WILDCARD)


Who = tuple[str, str]
"""A principal and a host, as rules name them."""


class _Rules:
    """The entries of one pattern, by whom they concern: bits of what is denied and allowed."""

    __slots__ = ("_rewritten", "allowed", "denied", "entries", "is_readable", "pattern")

    def __init__(self, pattern: Pattern, entries: Iterable[Entry], *, is_readable: bool) -> None:
        self.pattern = pattern
        self.is_readable = is_readable
        self.entries = dict.fromkeys(entries)
        self.allowed: dict[Who, int] = {}
        self.denied: dict[Who, int] = {}
        self._rewritten: dict[Entry, Entry] = {}  # whose host is written in another form
        for entry in self.entries:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        host = canonical_host(entry.host)
        if host != entry.host:
            self._rewritten[entry._replace(host=host)] = entry
        who = entry.principal, host
        bits = _ALL if entry.operation is Operation.ALL else _bit(entry.operation)
        if entry.permission is Permission.DENY:
            self.denied[who] = self.denied.get(who, 0) | bits
        else:
            bits |= _IMPLIED.get(entry.operation, 0)
            self.allowed[who] = self.allowed.get(who, 0) | bits

    def denies(self, whos: Iterable[Who], bit: int) -> bool:
        """Whether anything for these denies; what cannot be read may."""
        denied = self.denied
        return not self.is_readable or (
            bool(denied) and any(denied.get(who, 0) & bit for who in whos)
        )

    def find(
        self, whos: Iterable[Who], operation: Operation, permission: Permission
    ) -> Entry | None:
        """The first entry for these that decides about an operation."""
        names: tuple[Operation, ...] = (operation, Operation.ALL)
        if permission is Permission.ALLOW:
            names = _ALLOWED_BY[operation]
        for principal, host in whos:
            for name in names:
                entry = Entry(principal, host, name, permission)
                if entry in self.entries:
                    return entry
                if entry in self._rewritten:
                    return self._rewritten[entry]
        return None


class _OfType:
    """The rules about one type of resource, by the names in their patterns."""

    __slots__ = ("_lengths", "by_who", "literal", "longest_first", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.by_who: dict[Who, dict[str, _Rules]] = {}  # what allows them anything
        self.longest_first: tuple[int, ...] = ()  # the lengths of prefixes
        self._lengths: dict[int, int] = {}  # how many prefixes have that length

    def get(self, pattern: Pattern) -> _Rules | None:
        """The rules of exactly this pattern."""
        return self._by_name(pattern).get(pattern.name)

    def put(self, pattern: Pattern, rules: _Rules | None) -> _Rules | None:
        """Replace or remove the rules of a pattern; returns those it had."""
        by_name = self._by_name(pattern)
        before = by_name.pop(pattern.name, None)
        if before is not None:
            self._forget(before)
        if rules is not None:
            by_name[pattern.name] = rules
            for who in rules.allowed:
                self.by_who.setdefault(who, {})[str(pattern)] = rules
        if pattern.pattern is PatternType.PREFIXED:
            self._count(len(pattern.name), (rules is not None) - (before is not None))
        return before

    def concerning(self, name: str) -> Iterator[_Rules]:
        """The rules that concern a name, the most specific first.

        One look-up for each length that a prefix has, however many prefixes there are.
        """
        rules = self.literal.get(name)
        if rules is not None:
            yield rules
        if name != WILDCARD:
            rules = self.literal.get(WILDCARD)
            if rules is not None:
                yield rules
        yield from self.of_prefixes(name)

    def of_prefixes(self, name: str) -> Iterator[_Rules]:
        """The rules of all prefixes of a name, the longest first."""
        size = len(name)
        for length in self.longest_first:
            if length <= size:
                rules = self.prefixed.get(name[:length])
                if rules is not None:
                    yield rules

    def all(self) -> Iterator[_Rules]:
        """The rules of every pattern."""
        yield from self.literal.values()
        yield from self.prefixed.values()

    def _by_name(self, pattern: Pattern) -> dict[str, _Rules]:
        return self.prefixed if pattern.pattern is PatternType.PREFIXED else self.literal

    def _forget(self, rules: _Rules) -> None:
        key = str(rules.pattern)
        for who in rules.allowed:
            known_ = self.by_who[who]
            del known_[key]
            if not known_:
                del self.by_who[who]

    def _count(self, length: int, change: int) -> None:
        if change:
            left = self._lengths.get(length, 0) + change
            self._lengths[length] = left
            if not left:
                del self._lengths[length]
            if left == max(change, 0):  # the first one, or none any more
                self.longest_first = tuple(sorted(self._lengths, reverse=True))


class AclIndex:
    """All access rules, found by resource and by whom they concern.

    A decision takes a few look-ups for each pattern that concerns the resource; the number of
    patterns and rules does not matter. ``version`` grows with every change: what was decided under
    an older one is to be decided anew. Not thread-safe.
    """

    def __init__(
        self, super_users: Iterable[str] = (), *, allows_without_rules: bool = False
    ) -> None:
        """``super_users``: principals as ``User:name``.

        ``allows_without_rules``: what no rule concerns is allowed.
        """
        self.super_users = frozenset(super_users)
        self.version = 0
        self._allows_without_rules = allows_without_rules
        self._types: dict[ResourceType, _OfType] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many rules there are."""
        return self._count

    # Changing

    def put(self, pattern: Pattern, entries: Iterable[Entry]) -> None:
        """Replace the entries of a pattern; with none it is removed."""
        rules = _Rules(pattern, entries, is_readable=True)
        self._put(pattern, rules if rules.entries else None)

    def put_unreadable(self, pattern: Pattern) -> None:
        """Deny what the pattern concerns to all but super users: its rules cannot be read."""
        self._put(pattern, _Rules(pattern, (), is_readable=False))

    def add_super_users(self, principals: Iterable[str]) -> None:
        """Let more principals do everything."""
        self.super_users |= frozenset(principals)
        self.version += 1

    def clear(self) -> None:
        """Remove every rule."""
        self._types.clear()
        self._count = 0
        self.version += 1

    def patterns(self) -> list[Pattern]:
        """The patterns that have rules, readable or not."""
        return [rules.pattern for of_type in self._types.values() for rules in of_type.all()]

    def _put(self, pattern: Pattern, rules: _Rules | None) -> None:
        of_type = self._types.get(pattern.type)
        if of_type is None:
            of_type = self._types[pattern.type] = _OfType()
        before = of_type.put(pattern, rules)
        self._count += len(rules.entries if rules else ()) - len(before.entries if before else ())
        self.version += 1

    # Deciding

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether a principal, connected from an address, may do that to a resource."""
        if principal in self.super_users:
            return True
        of_type = self._types.get(resource.type)
        if of_type is None:
            return self._allows_without_rules
        whos, bit = _looked_up(principal, host), 1 << operation
        is_concerned = is_allowed = False
        for rules in of_type.concerning(resource.name):
            is_concerned = True
            if rules.denies(whos, bit):
                return False
            if not is_allowed:
                allowed = rules.allowed
                is_allowed = any(allowed.get(who, 0) & bit for who in whos)
        return is_allowed if is_concerned else self._allows_without_rules

    def allows_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether a principal may do that to any resource of a type, be there one or not.

        A name or prefix that is allowed counts unless it, or a prefix of it, is denied (KIP-679).
        """
        if self.allows(principal, host, operation, Resource(kind, _SOME_NAME)):
            return True
        of_type = self._types.get(kind)
        if of_type is None:
            return False
        whos, bit = _looked_up(principal, host), 1 << operation
        everything = of_type.literal.get(WILDCARD)
        if everything is not None and everything.denies(whos, bit):
            return False
        return any(
            rules.allowed.get(who, 0) & bit and not self._is_denied(of_type, rules, whos, bit)
            for who in whos
            for rules in of_type.by_who.get(who, {}).values()
        )

    @staticmethod
    def _is_denied(of_type: _OfType, rules: _Rules, whos: tuple[Who, ...], bit: int) -> bool:
        """Whether what these rules allow is denied as a whole."""
        return rules.denies(whos, bit) or any(
            wider.denies(whos, bit) for wider in of_type.of_prefixes(rules.pattern.name)
        )

    def explain(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> Decision:
        """Decide as :meth:`allows` does, and say what decided."""
        if principal in self.super_users:
            return Decision(True, Reason.SUPER_USER)
        of_type = self._types.get(resource.type)
        concerned = [] if of_type is None else list(of_type.concerning(resource.name))
        if not concerned:
            allowed = self._allows_without_rules
            return Decision(allowed, Reason.NO_RULES_ALLOW if allowed else Reason.NO_RULES_DENY)
        whos = _looked_up(principal, host)
        for permission in (Permission.DENY, Permission.ALLOW):
            for rules in concerned:
                entry = rules.find(whos, operation, permission)
                if entry is not None:
                    rule = Rule(rules.pattern, entry)
                    return Decision(permission is Permission.ALLOW, Reason.RULE, rule)
            if not all(rules.is_readable for rules in concerned):
                return Decision(False, Reason.UNREADABLE)
        return Decision(False, Reason.NOTHING_ALLOWS)

    # Listing

    def entries(self, pattern: Pattern) -> list[Entry]:
        """The entries of exactly this pattern."""
        of_type = self._types.get(pattern.type)
        rules = None if of_type is None else of_type.get(pattern)
        return [] if rules is None else list(rules.entries)

    def find(self, wanted: Filter) -> Iterator[Rule]:
        """The rules that match a filter, those of one pattern together."""
        for rules in self._found(wanted):
            if wanted.matches_pattern(rules.pattern):
                for entry in rules.entries:
                    if wanted.matches_entry(entry):
                        yield Rule(rules.pattern, entry)

    def _found(self, wanted: Filter) -> Iterator[_Rules]:
        """Rules among which are all those that match."""
        types = self._types
        if wanted.type is not ResourceType.ANY:
            types = {kind: rules for kind, rules in types.items() if kind is wanted.type}
        for of_type in list(types.values()):
            if wanted.name is None or wanted.pattern is PatternType.ANY:
                yield from list(of_type.all())
            elif wanted.pattern is PatternType.MATCH:
                yield from of_type.concerning(wanted.name)
            else:
                rules = of_type.get(Pattern(wanted.type, wanted.name, wanted.pattern))
                if rules is not None:
                    yield rules


def index_of(rules: Iterable[Rule], super_users: Iterable[str] = (), **options: bool) -> AclIndex:
    """An index of rules as DescribeAcls lists them, in any order; options as of AclIndex."""
    by_pattern: dict[Pattern, list[Entry]] = {}
    for rule in rules:
        by_pattern.setdefault(rule.pattern, []).append(rule.entry)
    index = AclIndex(super_users, **options)
    for pattern, entries in by_pattern.items():
        index.put(pattern, entries)
    return index
