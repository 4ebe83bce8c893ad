"""`qbus acl`: add, list, remove, check."""

from typing import TYPE_CHECKING

import click

from qbus.cli.acl.options import (
    Resources,
    check_operation,
    conveniences,
    operation,
    operation_option,
    pattern_options,
    principal,
    principal_option,
    resource_options,
    rules,
)
from qbus.cli.failures import FINDINGS
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import Document, Remark, emit, table
from qbus.cli.targets import Target
from qbus.cli.units import counted
from qbus.security.acls import Operation, PatternType, Permission, ResourceType, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from qbus.security.acls import Filter, Pattern

_host_option = click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ADDRESS",
    help="From which address; may be repeated. Default: every one.",
)
_deny_option = click.option(
    "--deny", is_flag=True, help="Rules that deny, which win over those that allow."
)


@click.group(cls=OrderedGroup)
def acl() -> None:
    """Add, list, remove and check rules: who may do what to topics, groups and the cluster.

    What no rule allows is denied to everyone but super users. A rule that denies wins over all
    that allow. Who may read, write, delete or alter something may also describe it.
    """


@acl.command()
@principal_option
@operation_option
@click.option(
    "--producer",
    is_flag=True,
    help="What a producer to --topic needs: write, describe and create; and write and describe"
    " for --transactional-id.",
)
@click.option(
    "--consumer",
    is_flag=True,
    help="What a consumer of --topic in --group needs: read and describe, and read.",
)
@resource_options
@pattern_options
@_host_option
@_deny_option
@client_command
async def add(
    *,
    principals: tuple[str, ...],
    operations: tuple[Operation, ...],
    producer: bool,
    consumer: bool,
    resources: Resources,
    pattern_type: str,
    hosts: tuple[str, ...],
    deny: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Allow something, or deny it: each --operation on each resource to each --principal."""
    from qbus.cli.session import administration

    if not principals:
        raise click.UsageError("Name whom the rule is about: --principal User:NAME.")
    patterns = _need(resources.patterns(PatternType[pattern_type.upper()]))
    if not operations and not producer and not consumer:
        raise click.UsageError("Name what to allow: --operation, --producer or --consumer.")
    pairs = [*conveniences(patterns, producer=producer, consumer=consumer)]
    for pattern in patterns:
        for one in operations:
            check_operation(pattern, one)
            pairs.append((pattern, one))
    permission = Permission.DENY if deny else Permission.ALLOW
    added = rules(principals, hosts, pairs, permission)
    async with administration(target) as admin:
        await admin.create_acls(added)
    emit([_document(rule) for rule in added], _added, as_json=as_json)


@acl.command("list")
@principal_option
@operation_option
@resource_options
@click.option(
    "--match",
    is_flag=True,
    help="Also rules that concern a resource by * or by a prefix of its name.",
)
@click.option("--deny", is_flag=True, help="Only rules that deny.")
@client_command
async def list_rules(
    *,
    principals: tuple[str, ...],
    operations: tuple[Operation, ...],
    resources: Resources,
    match: bool,
    deny: bool,
    target: Target,
    as_json: bool,
) -> None:
    """List rules: all, or those about what the options name."""
    from qbus.cli.session import administration

    kind = PatternType.MATCH if match else PatternType.ANY
    permission = Permission.DENY if deny else None
    filters = _filters(resources.patterns(kind), kind, principals, operations, (), permission)
    found: dict[Rule, None] = {}
    async with administration(target) as admin:
        for wanted in filters:
            found |= dict.fromkeys(await admin.describe_acls(wanted))
    emit([_document(rule) for rule in sorted(found)], _listed, as_json=as_json)


@acl.command()
@principal_option
@operation_option
@resource_options
@pattern_options
@_host_option
@click.option("--deny", is_flag=True, help="Only rules that deny. Default: both kinds.")
@click.option("--all", "everything", is_flag=True, help="Every rule that there is.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@client_command
async def remove(
    *,
    principals: tuple[str, ...],
    operations: tuple[Operation, ...],
    resources: Resources,
    pattern_type: str,
    hosts: tuple[str, ...],
    deny: bool,
    everything: bool,
    dry_run: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Remove the rules about what the options name.

    Options that are left out match everything: --principal User:NAME alone removes all rules about
    that user, whatever their pattern.
    """
    from qbus.cli.session import administration

    is_named = bool(principals or operations or hosts or any(resources))
    if everything is is_named:
        raise click.UsageError("Name which rules to remove, or --all.")
    kind = PatternType[pattern_type.upper()]
    permission = Permission.DENY if deny else None
    filters = list(
        _filters(resources.patterns(kind), kind, principals, operations, hosts, permission)
    )
    found: dict[Rule, None] = {}
    async with administration(target) as admin:
        if dry_run:
            for wanted in filters:
                found |= dict.fromkeys(await admin.describe_acls(wanted))
        else:
            found |= dict.fromkeys(await admin.delete_acls(filters))
    documents = [_document(rule) for rule in sorted(found)]
    emit(documents, _would_remove if dry_run else _removed, as_json=as_json)


@acl.command()
@click.option("--principal", "who", type=principal, required=True, metavar="User:NAME", help="Who.")
@click.option(
    "--operation", "what", type=operation, required=True, metavar="OPERATION", help="Does what."
)
@resource_options
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="From which address."
)
@client_command
async def check(
    *,
    who: str,
    what: Operation,
    resources: Resources,
    host: str,
    target: Target,
    as_json: bool,
) -> None:
    """Say whether something is allowed, and which rule decides.

    Decides by the rules as they are listed, and by super.users and allow.everyone.if.no.acl.found
    of the brokers. Exit codes: 0 it is allowed, 3 it is denied.
    """
    from qbus.cli.acl.checking import read_index
    from qbus.cli.session import administration
    from qbus.security.acls import Resource

    patterns = _need(resources.patterns(PatternType.LITERAL))
    for pattern in patterns:
        check_operation(pattern, what)
    async with administration(target) as admin:
        index = await read_index(admin)
    documents = []
    for pattern in patterns:
        decision = index.explain(who, host, what, Resource(pattern.type, pattern.name))
        documents.append(
            {
                "principal": who,
                "host": host,
                "operation": _word(what),
                "resource_type": _word(pattern.type),
                "resource_name": pattern.name,
                "allowed": decision.allowed,
                "reason": str(decision),
                "rule": None if decision.rule is None else _document(decision.rule),
            }
        )
    emit(documents, _checked, as_json=as_json)
    if not all(document["allowed"] for document in documents):
        raise click.exceptions.Exit(FINDINGS)


def _need(patterns: "list[Pattern]") -> "list[Pattern]":
    if not patterns:
        raise click.UsageError(
            "Name what it is about: --topic, --group, --transactional-id or --cluster."
        )
    for pattern in patterns:
        if not pattern.name:
            raise click.UsageError(f"The name of a {_word(pattern.type)} is empty.")
    return patterns


def _filters(
    patterns: "Sequence[Pattern]",
    kind: PatternType,
    principals: "Sequence[str]",
    operations: "Sequence[Operation]",
    hosts: "Sequence[str]",
    permission: Permission | None,
) -> "Iterator[Filter]":
    """A filter for each combination of what is named; what is not named matches everything."""
    from qbus.security.acls import Filter, canonical_host

    for pattern in patterns or (None,):
        for who in principals or (None,):
            for what in operations or (Operation.ANY,):
                for host in hosts or (None,):
                    yield Filter(
                        ResourceType.ANY if pattern is None else pattern.type,
                        None if pattern is None else pattern.name,
                        PatternType.ANY if pattern is None else _kind(pattern, kind),
                        who,
                        None if host is None else canonical_host(host),
                        what,
                        permission or Permission.ANY,
                    )


def _kind(pattern: "Pattern", kind: PatternType) -> PatternType:
    return PatternType.LITERAL if pattern.type is ResourceType.CLUSTER else kind


def _document(rule: Rule) -> Document:
    pattern, entry = rule
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": _word(entry.operation),
        "permission": _word(entry.permission),
        "resource_type": _word(pattern.type),
        "resource_name": pattern.name,
        "pattern_type": _word(pattern.pattern),
    }


def _word(member: Operation | ResourceType | PatternType | Permission) -> str:
    return member.name.lower().replace("_", "-")


def _table(documents: list[Document]) -> "RenderableType":
    rows = (
        (
            one["principal"],
            one["permission"],
            one["operation"],
            one["resource_type"],
            one["resource_name"] + "…" * (one["pattern_type"] == "prefixed"),
            one["host"],
        )
        for one in documents
    )
    columns = ("principal", "rule", "operation", "on", "name", "host")
    return table(*columns, rows=rows, whole=("rule", "operation", "on", "host"))


def _listed(documents: list[Document]) -> "RenderableType":
    return _table(documents) if documents else Remark("No such rules.")


def _added(documents: list[Document]) -> "RenderableType":
    return _said(documents, "There is now:")


def _removed(documents: list[Document]) -> "RenderableType":
    if not documents:
        return "There were no such rules."
    return _said(documents, f"Removed {counted(len(documents), 'rule')}:")


def _would_remove(documents: list[Document]) -> "RenderableType":
    return _said(documents, "Would remove:") if documents else "There are no such rules."


def _said(documents: list[Document], text: str) -> "RenderableType":
    from rich.console import Group

    return Group(text, _table(documents))


def _checked(documents: list[Document]) -> str:
    return "\n".join(
        f"{'Allowed' if one['allowed'] else 'Denied'}: {one['principal']} {one['operation']}"
        f" {one['resource_type']} {one['resource_name']}: {one['reason']}."
        for one in documents
    )
