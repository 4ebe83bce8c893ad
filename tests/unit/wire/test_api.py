"""The table of APIs."""

import subprocess
import sys

import pytest

from qbus.wire import API, ApiKey

# What clients in use need to see; the names and numbers are the protocol guide's.
VERSIONS = {
    "PRODUCE": (0, 0, 13, 9),
    "FETCH": (1, 4, 18, 12),
    "LIST_OFFSETS": (2, 1, 11, 6),
    "METADATA": (3, 0, 13, 9),
    "OFFSET_COMMIT": (8, 2, 10, 8),
    "OFFSET_FETCH": (9, 1, 10, 6),
    "FIND_COORDINATOR": (10, 0, 6, 3),
    "JOIN_GROUP": (11, 0, 9, 6),
    "HEARTBEAT": (12, 0, 4, 4),
    "LEAVE_GROUP": (13, 0, 5, 4),
    "SYNC_GROUP": (14, 0, 5, 4),
    "DESCRIBE_GROUPS": (15, 0, 6, 5),
    "LIST_GROUPS": (16, 0, 5, 3),
    "SASL_HANDSHAKE": (17, 0, 1, 32767),
    "API_VERSIONS": (18, 0, 5, 3),
    "CREATE_TOPICS": (19, 2, 7, 5),
    "DELETE_TOPICS": (20, 1, 6, 4),
    "DELETE_RECORDS": (21, 0, 2, 2),
    "INIT_PRODUCER_ID": (22, 0, 5, 2),
    "OFFSET_FOR_LEADER_EPOCH": (23, 2, 4, 4),
    "ADD_PARTITIONS_TO_TXN": (24, 0, 5, 3),
    "ADD_OFFSETS_TO_TXN": (25, 0, 4, 3),
    "END_TXN": (26, 0, 5, 3),
    "WRITE_TXN_MARKERS": (27, 1, 2, 1),
    "TXN_OFFSET_COMMIT": (28, 0, 5, 3),
    "DESCRIBE_ACLS": (29, 0, 3, 2),
    "CREATE_ACLS": (30, 0, 3, 2),
    "DELETE_ACLS": (31, 0, 3, 2),
    "DESCRIBE_CONFIGS": (32, 1, 4, 4),
    "ALTER_CONFIGS": (33, 0, 2, 2),
    "ALTER_REPLICA_LOG_DIRS": (34, 1, 2, 2),
    "DESCRIBE_LOG_DIRS": (35, 1, 5, 2),
    "SASL_AUTHENTICATE": (36, 0, 2, 2),
    "CREATE_PARTITIONS": (37, 0, 3, 2),
    "DELETE_GROUPS": (42, 0, 2, 2),
    "ELECT_LEADERS": (43, 0, 2, 2),
    "INCREMENTAL_ALTER_CONFIGS": (44, 0, 1, 1),
    "ALTER_PARTITION_REASSIGNMENTS": (45, 0, 1, 0),
    "LIST_PARTITION_REASSIGNMENTS": (46, 0, 0, 0),
    "OFFSET_DELETE": (47, 0, 0, 32767),
    "DESCRIBE_CLIENT_QUOTAS": (48, 0, 1, 1),
    "ALTER_CLIENT_QUOTAS": (49, 0, 1, 1),
    "DESCRIBE_USER_SCRAM_CREDENTIALS": (50, 0, 0, 0),
    "ALTER_USER_SCRAM_CREDENTIALS": (51, 0, 0, 0),
    "DESCRIBE_QUORUM": (55, 0, 2, 0),
    "UPDATE_FEATURES": (57, 0, 2, 0),
    "DESCRIBE_CLUSTER": (60, 0, 2, 0),
    "DESCRIBE_PRODUCERS": (61, 0, 0, 0),
    "DESCRIBE_TRANSACTIONS": (65, 0, 0, 0),
    "LIST_TRANSACTIONS": (66, 0, 2, 0),
    "CONSUMER_GROUP_HEARTBEAT": (68, 0, 1, 0),
    "CONSUMER_GROUP_DESCRIBE": (69, 0, 1, 0),
    "GET_TELEMETRY_SUBSCRIPTIONS": (71, 0, 0, 0),
    "PUSH_TELEMETRY": (72, 0, 0, 0),
    "LIST_CONFIG_RESOURCES": (74, 0, 1, 0),
    "DESCRIBE_TOPIC_PARTITIONS": (75, 0, 0, 0),
    "SHARE_GROUP_HEARTBEAT": (76, 1, 1, 0),
    "SHARE_GROUP_DESCRIBE": (77, 1, 1, 0),
    "SHARE_FETCH": (78, 1, 2, 0),
    "SHARE_ACKNOWLEDGE": (79, 1, 2, 0),
    "DESCRIBE_SHARE_GROUP_OFFSETS": (90, 0, 1, 0),
    "ALTER_SHARE_GROUP_OFFSETS": (91, 0, 0, 0),
    "DELETE_SHARE_GROUP_OFFSETS": (92, 0, 0, 0),
    "DESCRIBE_DELAYED": (10100, 0, 0, 0),
    "QUEUE_OFFSETS": (10101, 0, 0, 0),
    "END_GROUP_TRANSACTION": (10102, 0, 0, 0),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_versions(name: str) -> None:
    number, first, last, flexible = VERSIONS[name]
    api = API[ApiKey[name]]
    assert api.key == number
    assert (api.advertised_min, api.max_version) == (first, last)
    assert api.first_flexible == api.response.first_flexible == flexible


def test_the_table_has_no_others() -> None:
    assert {key.name for key in API} == set(VERSIONS)


def test_produce_advertises_versions_that_it_does_not_serve() -> None:
    assert API[ApiKey.PRODUCE].min_version == 3
    assert all(api.min_version == api.advertised_min for api in API.values() if api.key)


def test_messages_are_imported_at_first_use() -> None:
    code = (
        "import sys, qbus.wire as wire\n"
        "loaded = lambda: [m for m in sys.modules if m.startswith('qbus.wire.messages.')]\n"
        "assert not loaded(), loaded()\n"
        "wire.API[wire.ApiKey.HEARTBEAT].request\n"
        "assert loaded() == ['qbus.wire.messages.heartbeat'], loaded()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
