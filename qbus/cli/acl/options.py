"""Options that name resources, operations and principals, in the words of Kafka's tools."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, NamedTuple

import click

from qbus.cli.completing import groups, topics, transactional_ids
from qbus.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    canonical_host,
)

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def principal(text: str) -> str:
    """Read ``User:NAME``."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise click.BadParameter(f"{text!r} is not of the form User:NAME; User:* is everyone.")
    return text


def operation(text: str) -> Operation:
    """Read the name of an operation: ``describe-configs``, or Kafka's ``DescribeConfigs``."""
    name = _CAMEL.sub("_", text).replace("-", "_").upper()
    known = [one.name for one in Operation if one > Operation.ANY]
    if name not in known:
        words = ", ".join(word.lower().replace("_", "-") for word in known)
        raise click.BadParameter(f"{text!r} is no operation; there are: {words}.")
    return Operation[name]


class Resources(NamedTuple):
    """What rules are about: names of topics, groups and so on."""

    topic: tuple[str, ...]
    group: tuple[str, ...]
    transactional_id: tuple[str, ...]
    cluster: bool

    def patterns(self, kind: PatternType) -> list[Pattern]:
        """The patterns that the options name; the cluster's is always literal."""
        named = (
            (ResourceType.TOPIC, self.topic),
            (ResourceType.GROUP, self.group),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_id),
        )
        found = [Pattern(of, name, kind) for of, names in named for name in names]
        if self.cluster:
            found.append(Pattern(ResourceType.CLUSTER, CLUSTER_NAME))
        return found


_RESOURCES = (
    click.option(
        "--topic",
        multiple=True,
        metavar="TOPIC",
        shell_complete=topics,
        help="A topic, or * for all; may be repeated, as may the others.",
    ),
    click.option("--group", multiple=True, metavar="GROUP", shell_complete=groups, help="A group."),
    click.option(
        "--transactional-id",
        multiple=True,
        metavar="ID",
        shell_complete=transactional_ids,
        help="A transactional id.",
    ),
    click.option("--cluster", is_flag=True, help="The cluster as a whole."),
)

principal_option = click.option(
    "--principal",
    "principals",
    type=principal,
    multiple=True,
    metavar="User:NAME",
    help="Whom the rules are about; User:* is everyone. May be repeated.",
)

operation_option = click.option(
    "--operation",
    "operations",
    type=operation,
    multiple=True,
    metavar="OPERATION",
    help="What is done: all, read, write, create, delete, alter, describe, describe-configs,"
    " alter-configs, cluster-action, idempotent-write. May be repeated.",
)

_pattern_options = (
    click.option(
        "--resource-pattern-type",
        "pattern_type",
        type=click.Choice(["literal", "prefixed"], case_sensitive=False),
        default="literal",
        show_default=True,
        help="Whether the rules are about what has exactly these names, or begins with them.",
    ),
    click.option(
        "--prefix",
        "pattern_type",
        flag_value="prefixed",
        help="The same as --resource-pattern-type prefixed.",
    ),
)


def resource_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of :class:`Resources`, as its argument ``resources``."""

    @wraps(function)
    def command(*args: Any, **given: Any) -> Any:
        values = {field: given.pop(field) for field in Resources._fields}
        return function(*args, **given, resources=Resources(**values))

    for option in reversed(_RESOURCES):
        command = option(command)
    return command


def pattern_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--resource-pattern-type`` and ``--prefix``, as ``pattern_type``."""
    for option in reversed(_pattern_options):
        function = option(function)
    return function


_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


def conveniences(
    patterns: Iterable[Pattern], *, producer: bool, consumer: bool
) -> Iterator[tuple[Pattern, Operation]]:
    """What --producer and --consumer stand for. Raises a usage error for what they lack."""
    patterns = list(patterns)
    has = {pattern.type for pattern in patterns}
    for is_wanted, option, meant in (
        (producer, "--producer", _PRODUCER),
        (consumer, "--consumer", _CONSUMER),
    ):
        if not is_wanted:
            continue
        if ResourceType.TOPIC not in has:
            raise click.UsageError(f"{option} needs --topic.")
        if option == "--consumer" and ResourceType.GROUP not in has:
            raise click.UsageError("--consumer needs --group: the group that it reads in.")
        for pattern in patterns:
            for one in meant.get(pattern.type, ()):
                yield pattern, one


def check_operation(pattern: Pattern, wanted: Operation) -> None:
    """Raise a usage error for an operation that means nothing for such a resource."""
    possible = OPERATIONS[pattern.type]
    if wanted is not Operation.ALL and wanted not in possible:
        words = ", ".join(_word(one) for one in (*possible, Operation.ALL))
        raise click.UsageError(
            f"{_word(wanted)} means nothing for a {_word(pattern.type)}, which has: {words}."
        )


def rules(
    principals: Iterable[str],
    hosts: Iterable[str],
    pairs: Iterable[tuple[Pattern, Operation]],
    permission: Permission,
) -> list[Rule]:
    """A rule for each combination, none twice."""
    pairs = list(dict.fromkeys(pairs))
    return [
        Rule(pattern, Entry(who, canonical_host(host), what, permission))
        for who in dict.fromkeys(principals)
        for host in dict.fromkeys(hosts or (WILDCARD,))
        for pattern, what in pairs
    ]


def _word(member: Operation | ResourceType) -> str:
    return member.name.lower().replace("_", "-")
