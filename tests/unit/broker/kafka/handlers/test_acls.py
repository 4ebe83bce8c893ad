"""CreateAcls, DescribeAcls and DeleteAcls, over their messages."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.authorization import AccessControl, AclAuthorizer
from qbus.broker.net.connection import CloseConnection
from qbus.errors import ErrorCode
from qbus.security.acls import Operation, PatternType, Permission, ResourceType
from qbus.wire import ApiKey
from qbus.wire.messages.create_acls import AclCreation, CreateAclsRequest
from qbus.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from qbus.wire.messages.describe_acls import DescribeAclsRequest
from tests.support.metadata_plane import MetadataPlane, metadata_plane

VERSIONS = (0, 1, 2, 3)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Any]:
    async with metadata_plane(tmp_path) as made:
        secured: Any = made
        secured.access = AccessControl(AclAuthorizer(made.metadata.acls))
        secured.audit = None
        yield secured


def creation(**changes: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**fields | changes)


async def create(plane: MetadataPlane, *creations: AclCreation, version: int = 3) -> list[Any]:
    request = CreateAclsRequest(creations=list(creations))
    response = await plane.ask(ApiKey.CREATE_ACLS, version, request)
    return [(one.error_code, one.error_message) for one in response.results]


ANYTHING: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


async def describe(plane: MetadataPlane, version: int = 3, **wanted: Any) -> Any:
    return await plane.ask(ApiKey.DESCRIBE_ACLS, version, DescribeAclsRequest(**ANYTHING | wanted))


async def listed(plane: MetadataPlane, version: int = 3, **wanted: Any) -> set[tuple[Any, ...]]:
    response = await describe(plane, version, **wanted)
    assert response.error_code == ErrorCode.NONE
    return {
        (one.resource_name, one.pattern_type, entry.principal, entry.operation)
        for one in response.resources
        for entry in one.acls
    }


async def delete(plane: MetadataPlane, *filters: Any, version: int = 3) -> list[Any]:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**ANYTHING | one) for one in filters])
    response = await plane.ask(ApiKey.DELETE_ACLS, version, request)
    results: list[Any] = response.filter_results
    return results


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_created_is_described_and_deleted(plane: Any, version: int) -> None:
    literal = {"pattern_type_filter": PatternType.LITERAL}
    assert await create(plane, creation(), version=version) == [(0, None)]
    expected = {("orders", PatternType.LITERAL, "User:alice", Operation.READ)}
    assert await listed(plane, version, **literal) == expected
    (result,) = await delete(plane, literal, version=version)
    assert result.error_code == ErrorCode.NONE
    (gone,) = result.matching_acls
    assert (gone.error_code, gone.resource_name, gone.principal) == (0, "orders", "User:alice")
    assert await listed(plane, version, **literal) == set()


async def test_rules_of_one_pattern_come_together(plane: Any) -> None:
    await create(
        plane,
        creation(),
        creation(operation=Operation.WRITE),
        creation(resource_pattern_type=PatternType.PREFIXED),
        creation(resource_type=ResourceType.GROUP),
    )
    response = await describe(plane)
    assert sorted(len(one.acls) for one in response.resources) == [1, 1, 2]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 77}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": PatternType.ANY}, "Invalid patternType ANY"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": Permission.ANY}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource"),
        ({"principal": "alice"}, "Could not parse principal from 'alice'"),
        ({"principal": "User:"}, "Could not parse principal"),
        ({"host": ""}, "Invalid empty host"),
    ],
)
async def test_what_can_be_no_rule_is_refused_alone(
    plane: Any, changes: dict[str, Any], expected: str
) -> None:
    refused, added = await create(plane, creation(**changes), creation(resource_name="payments"))
    assert refused[0] == ErrorCode.INVALID_REQUEST
    assert expected in refused[1]
    assert added == (0, None)
    assert {one[0] for one in await listed(plane)} == {"payments"}


@pytest.mark.parametrize(
    "field", ["resource_type", "resource_pattern_type", "operation", "permission_type"]
)
async def test_an_unknown_part_closes_the_connection(plane: Any, field: str) -> None:
    with pytest.raises(CloseConnection, match="UNKNOWN"):
        await create(plane, creation(**{field: 0}))


@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
async def test_a_filter_with_an_unknown_part_closes_the_connection(plane: Any, field: str) -> None:
    with pytest.raises(CloseConnection, match="UNKNOWN"):
        await describe(plane, **{field: 0})
    with pytest.raises(CloseConnection, match="UNKNOWN"):
        await delete(plane, {field: 0})


async def test_a_filter_of_a_later_version_matches_nothing_and_removes_nothing(plane: Any) -> None:
    await create(plane, creation())
    assert await listed(plane, operation=99) == set()
    refused, removed = await delete(plane, {"operation": 99}, {})
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert len(removed.matching_acls) == 1


async def test_version_0_sees_no_prefixes(plane: Any) -> None:
    await create(plane, creation(), creation(resource_pattern_type=PatternType.PREFIXED))
    literal = {"pattern_type_filter": PatternType.LITERAL}
    assert len(await listed(plane, 0, **literal)) == 1
    (result,) = await delete(plane, literal, version=0)
    assert len(result.matching_acls) == 1
    assert len(await listed(plane)) == 1


async def test_match_finds_what_concerns_a_topic(plane: Any) -> None:
    await create(
        plane,
        creation(),
        creation(resource_name="*"),
        creation(resource_name="ord", resource_pattern_type=PatternType.PREFIXED),
        creation(resource_name="other"),
    )
    found = await listed(
        plane,
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter="orders",
        pattern_type_filter=PatternType.MATCH,
    )
    assert {one[0] for one in found} == {"orders", "*", "ord"}


async def test_without_an_authorizer_rules_are_refused(plane: Any) -> None:
    plane.access = AccessControl()
    disabled = ErrorCode.SECURITY_DISABLED
    ((code, message), *_) = await create(plane, creation())
    assert code == disabled
    assert "authorizer.class.name=acl" in message
    assert (await describe(plane)).error_code == disabled
    assert [one.error_code for one in await delete(plane, {}, {})] == [disabled] * 2


async def test_changes_are_recorded(plane: Any) -> None:
    class Noting:
        events: list[tuple[str, str]] = []  # noqa: RUF012 - of this one test

        def administration(self, _: Any, action: str, target: str) -> None:
            self.events.append((action, target))

    plane.audit = Noting()
    await create(plane, creation(), creation(principal="nobody"))
    await delete(plane, {})
    text = "literal topic 'orders' allows User:alice READ from every address"
    assert plane.audit.events == [("add access rule", text), ("remove access rule", text)]
