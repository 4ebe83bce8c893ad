"""The admin client's requests about rules, credentials and quotas."""

from typing import Any

import pytest

from qbus.clients import (
    Admin,
    ClusterAuthorizationFailed,
    Entry,
    Filter,
    Operation,
    PartialFailure,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    ScramCredentialInfo,
    ScramUpsert,
)
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.security.scram import ScramCredential, ScramMechanism
from qbus.wire import ApiKey
from qbus.wire.messages.alter_client_quotas import AlterClientQuotasResponse, AlterEntryData
from qbus.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from qbus.wire.messages.create_acls import AclCreationResult, CreateAclsResponse
from qbus.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from qbus.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from qbus.wire.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from qbus.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tests.support.fake_broker import FakeBroker

RULE = Rule(
    Pattern(ResourceType.TOPIC, "orders-", PatternType.PREFIXED),
    Entry("User:alice", "*", Operation.WRITE, Permission.ALLOW),
)
OTHER = Rule(
    Pattern(ResourceType.GROUP, "g"), Entry("User:bob", "10.0.0.1", Operation.READ, Permission.DENY)
)
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_rules_are_created() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.CREATE_ACLS] = lambda request: CreateAclsResponse(
            results=[AclCreationResult() for _ in request.creations]
        )
        await admin.create_acls([RULE, OTHER, RULE])
        (request,) = broker.asked(ApiKey.CREATE_ACLS)
        first, second = request.creations
        assert (first.resource_type, first.resource_name) == (2, "orders-")
        assert (first.resource_pattern_type, first.operation, first.permission_type) == (4, 4, 3)
        assert (second.principal, second.host, second.permission_type) == (
            "User:bob",
            "10.0.0.1",
            2,
        )
        await admin.create_acls([])
        assert len(broker.asked(ApiKey.CREATE_ACLS)) == 1


async def test_some_rules_are_refused() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.CREATE_ACLS] = lambda _: CreateAclsResponse(
            results=[AclCreationResult(), AclCreationResult(error_code=42, error_message="no host")]
        )
        with pytest.raises(PartialFailure) as caught:
            await admin.create_acls([RULE, OTHER])
        assert list(caught.value.errors) == [OTHER]
        assert str(caught.value.errors[OTHER]) == "no host"


async def test_rules_are_found() -> None:
    def describe(request: Any) -> DescribeAclsResponse:
        assert (request.resource_type_filter, request.pattern_type_filter) == (2, 2)
        assert (request.resource_name_filter, request.principal_filter) == ("orders-1", None)
        return DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    resource_type=2,
                    resource_name="orders-",
                    pattern_type=4,
                    acls=[
                        AclDescription(
                            principal="User:alice", host="*", operation=4, permission_type=3
                        )
                    ],
                )
            ]
        )

    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_ACLS] = describe
        wanted = Filter(ResourceType.TOPIC, "orders-1", PatternType.MATCH)
        assert await admin.describe_acls(wanted) == [RULE]


async def test_who_may_not_ask_is_told_at_once() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_ACLS] = lambda _: DescribeAclsResponse(
            error_code=REFUSED, error_message="Cluster authorization failed.", resources=[]
        )
        with pytest.raises(ClusterAuthorizationFailed, match="Cluster authorization failed"):
            await admin.describe_acls()
        assert len(broker.asked(ApiKey.DESCRIBE_ACLS)) == 1


async def test_rules_are_deleted() -> None:
    found = DeleteAclsMatchingAcl(
        resource_type=2,
        resource_name="orders-",
        pattern_type=4,
        principal="User:alice",
        host="*",
        operation=4,
        permission_type=3,
    )
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DELETE_ACLS] = lambda request: DeleteAclsResponse(
            filter_results=[DeleteAclsFilterResult(matching_acls=[found]) for _ in request.filters]
        )
        filters = [Filter(principal="User:alice"), Filter(name="orders-")]
        assert await admin.delete_acls(filters) == [RULE]
        (request,) = broker.asked(ApiKey.DELETE_ACLS)
        assert [each.principal_filter for each in request.filters] == ["User:alice", None]


async def test_a_credential_is_sent_salted_and_hashed() -> None:
    def alter(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
        users = {each.name for each in request.deletions}
        users |= {each.name for each in request.upsertions}
        return AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult(user=user) for user in sorted(users)]
        )

    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.ALTER_USER_SCRAM_CREDENTIALS] = alter
        upsert = ScramUpsert("alice", "hunter2", "SCRAM-SHA-256", 4096)
        assert "hunter2" not in repr(upsert)
        await admin.alter_user_scram_credentials([upsert], [("bob", "scram-sha-512")])
        (request,) = broker.asked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
        ((stored,), (deleted,)) = request.upsertions, request.deletions
        assert (stored.name, stored.mechanism, stored.iterations) == ("alice", 1, 4096)
        assert (deleted.name, deleted.mechanism) == ("bob", 2)
        salt, kind = bytes(stored.salt), ScramMechanism.SHA_256
        salted = kind.salted_password(b"hunter2", salt, 4096)
        assert bytes(stored.salted_password) == salted
        again = ScramCredential.from_password(kind, "hunter2", salt=salt, iterations=4096)
        assert again.matches_salted(kind, salted)


async def test_changes_of_one_user_are_made_one_after_another() -> None:
    def alter(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
        users = [each.name for each in request.deletions]
        users += [each.name for each in request.upsertions]
        assert len(set(users)) == len(users)
        return AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult(user=user) for user in users]
        )

    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.ALTER_USER_SCRAM_CREDENTIALS] = alter
        upserts = [
            ScramUpsert(user, "hunter2", mechanism, 4096)
            for user in ("alice", "bob")
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        await admin.alter_user_scram_credentials(upserts)
        requests = broker.asked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
        made = [[(each.name, each.mechanism) for each in one.upsertions] for one in requests]
        assert made == [[("alice", 1), ("bob", 1)], [("alice", 2), ("bob", 2)]]


@pytest.mark.parametrize(
    "upsert", [ScramUpsert("alice", ""), ScramUpsert("alice", "hunter2", "PLAIN")]
)
async def test_credentials_that_make_no_sense(upsert: ScramUpsert) -> None:
    async with Admin("127.0.0.1:1") as admin:
        with pytest.raises(ConfigError) as caught:
            await admin.alter_user_scram_credentials([upsert])
        assert "hunter2" not in str(caught.value)


async def test_another_controller_is_asked_when_it_moved() -> None:
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def alter(_: Any) -> AlterUserScramCredentialsResponse:
        code = codes.pop(0)
        return AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult(user="alice", error_code=code)]
        )

    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.ALTER_USER_SCRAM_CREDENTIALS] = alter
        await admin.alter_user_scram_credentials(deletions=[("alice", "SCRAM-SHA-256")])
        assert codes == []


async def test_credentials_are_described() -> None:
    def describe(request: Any) -> DescribeUserScramCredentialsResponse:
        names = ["alice"] if request.users is None else [user.name for user in request.users]
        return DescribeUserScramCredentialsResponse(
            results=[
                DescribeUserScramCredentialsResult(
                    user=name, credential_infos=[CredentialInfo(mechanism=2, iterations=8192)]
                )
                if name == "alice"
                else DescribeUserScramCredentialsResult(
                    user=name,
                    error_code=ErrorCode.RESOURCE_NOT_FOUND,
                    error_message=f"no {name}",
                    credential_infos=[],
                )
                for name in names
            ]
        )

    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS] = describe
        known = {"alice": [ScramCredentialInfo("SCRAM-SHA-512", 8192)]}
        assert await admin.describe_user_scram_credentials() == known
        assert await admin.describe_user_scram_credentials(["alice"]) == known
        assert await admin.describe_user_scram_credentials([]) == {}
        with pytest.raises(ApiError, match="no bob") as caught:
            await admin.describe_user_scram_credentials(["bob"])
        assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_quotas_are_described() -> None:
    def describe(request: Any) -> DescribeClientQuotasResponse:
        user, client = request.components
        assert (user.entity_type, user.match_type, user.match) == ("user", 0, "alice")
        assert (client.entity_type, client.match_type, client.match) == ("client-id", 1, None)
        assert request.strict
        return DescribeClientQuotasResponse(
            entries=[
                EntryData(
                    entity=[
                        EntityData(entity_type="user", entity_name="alice"),
                        EntityData(entity_type="client-id", entity_name=None),
                    ],
                    values=[ValueData(key="producer_byte_rate", value=1024.0)],
                )
            ]
        )

    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.DESCRIBE_CLIENT_QUOTAS] = describe
        found = await admin.describe_client_quotas(
            {"user": "alice", "client-id": None}, strict=True
        )
        assert found == {(("user", "alice"), ("client-id", None)): {"producer_byte_rate": 1024.0}}


async def test_quotas_are_altered() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.ALTER_CLIENT_QUOTAS] = lambda request: AlterClientQuotasResponse(
            entries=[AlterEntryData(entity=[]) for _ in request.entries]
        )
        await admin.alter_client_quotas(
            {(("user", None),): {"producer_byte_rate": 1e6, "consumer_byte_rate": None}}
        )
        await admin.alter_client_quotas({})
        (request,) = broker.asked(ApiKey.ALTER_CLIENT_QUOTAS)
        ((entity,), ops) = request.entries[0].entity, request.entries[0].ops
        assert (entity.entity_type, entity.entity_name) == ("user", None)
        assert [(op.key, op.value, op.remove) for op in ops] == [
            ("producer_byte_rate", 1e6, False),
            ("consumer_byte_rate", 0.0, True),
        ]
