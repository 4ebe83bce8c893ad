"""Access rules in the store: Kafka's paths and JSON, read back as they were written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.metadata.acls import acl_path, acl_paths, decode_acls, encode_acls, pattern_at
from qbus.metadata.errors import MalformedNode
from qbus.metadata.paths import check
from qbus.security.acls import Entry, Operation, Pattern, PatternType, Permission, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
PREFIXED = PatternType.PREFIXED


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (Pattern(TOPIC, "orders"), "/kafka-acl/Topic/orders"),
        (Pattern(TOPIC, "*"), "/kafka-acl/Topic/*"),
        (Pattern(GROUP, "my group"), "/kafka-acl/Group/my%20group"),
        (Pattern(GROUP, "a/b"), "/kafka-acl/Group/a%2Fb"),
        (Pattern(ResourceType.CLUSTER, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (Pattern(ResourceType.TRANSACTIONAL_ID, "tx"), "/kafka-acl/TransactionalId/tx"),
        (Pattern(ResourceType.DELEGATION_TOKEN, "t"), "/kafka-acl/DelegationToken/t"),
        (Pattern(ResourceType.USER, "User:a"), "/kafka-acl/User/User%3Aa"),
        (Pattern(TOPIC, "orders-", PREFIXED), "/kafka-acl-extended/prefixed/Topic/orders-"),
    ],
)
def test_paths_are_kafkas(pattern: Pattern, path: str) -> None:
    assert acl_path(pattern) == path
    assert pattern_at(path) == pattern


@given(
    st.builds(
        Pattern,
        st.sampled_from([one for one in ResourceType if one > ResourceType.ANY]),
        st.text(min_size=1, max_size=20),
        st.sampled_from([PatternType.LITERAL, PREFIXED]),
    )
)
def test_every_name_has_paths_that_lead_back_to_it(pattern: Pattern) -> None:
    for path in acl_paths(pattern):
        check(path)
        assert pattern_at(path) == pattern


@pytest.mark.parametrize(
    "path",
    ["/kafka-acl", "/kafka-acl/Topic", "/kafka-acl/Planet/x", "/kafka-acl-extended/prefixed/Topic"],
)
def test_other_paths_have_no_pattern(path: str) -> None:
    assert pattern_at(path) is None


def test_a_name_as_kafka_wrote_it_stands_for_itself() -> None:
    assert pattern_at("/kafka-acl/Group/my group") == Pattern(GROUP, "my group")
    assert acl_paths(Pattern(GROUP, "my group")) == (
        "/kafka-acl/Group/my%20group",
        "/kafka-acl/Group/my group",
    )
    assert acl_paths(Pattern(TOPIC, "orders")) == ("/kafka-acl/Topic/orders",)


def test_json_is_kafkas() -> None:
    entry = Entry("User:alice", "*", Operation.CLUSTER_ACTION, Permission.ALLOW)
    assert json.loads(encode_acls([entry])) == {
        "version": 1,
        "acls": [
            {
                "principal": "User:alice",
                "permissionType": "Allow",
                "operation": "ClusterAction",
                "host": "*",
            }
        ],
    }


@given(
    st.lists(
        st.builds(
            Entry,
            st.text(),
            st.text(),
            st.sampled_from([one for one in Operation if one > Operation.ANY]),
            st.sampled_from([Permission.ALLOW, Permission.DENY]),
        )
    )
)
def test_what_is_written_is_read(entries: list[Entry]) -> None:
    assert decode_acls(encode_acls(entries)) == entries


_GOOD = {"principal": "User:a", "permissionType": "Deny", "operation": "All", "host": "*"}
_BAD: tuple[dict[str, object], ...] = (
    {"principal": None},
    {"host": 7},
    {"operation": "Fly"},
    {"operation": "Any"},
    {"operation": []},
    {"permissionType": "allow"},
    {"permissionType": "Any"},
)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b'{"version":1}',
        b'{"acls":[]}',
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":5}',
        b"[" * 10_000,
        *(
            json.dumps({"version": 1, "acls": [_GOOD, {**_GOOD, **change}]}).encode()
            for change in _BAD
        ),
    ],
    ids=repr,
)
def test_a_node_with_a_part_that_is_not_understood_is_malformed_as_a_whole(data: bytes) -> None:
    with pytest.raises(MalformedNode):
        decode_acls(data)
