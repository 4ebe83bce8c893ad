"""Tables on a terminal of 80 columns: each row of usual names is one line."""

import sys
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console, RenderableType

from qbus.cli.acl.command import _listed as acl_list
from qbus.cli.agent.tables import file_tables, status_table
from qbus.cli.cluster.tables import cluster_status
from qbus.cli.group.tables import group_descriptions, group_list
from qbus.cli.mirror.tables import status_tables
from qbus.cli.output import table
from qbus.cli.quota import _shown as quota_list
from qbus.cli.root import COMMANDS, qbus
from qbus.cli.settings import settings
from qbus.cli.topic.tables import topic_descriptions, topic_list
from qbus.cli.user.command import _listed as user_list
from qbus.config import BROKER_CONFIG, TOPIC_CONFIG

MEMBER = "qbus-consume-0f8a1b2c-1111-2222-3333-444455556666"


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def lines(renderable: RenderableType) -> list[str]:
    console = Console(width=80, markup=False, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    shown = capture.get().splitlines()
    assert max(map(len, shown)) <= 80
    return [" ".join(line.split()) for line in shown]


def partition(index: int, **changed: Any) -> dict[str, Any]:
    return {
        "partition": index,
        "leader": 1,
        "leader_epoch": 12,
        "replicas": [1, 2, 3],
        "isr": [1, 2, 3],
        "elr": [],
        "unread": None,
        "start_offset": 12_345_678,
        "end_offset": 23_456_789,
        "size": 123_400_000,
        **changed,
    }


def test_topics() -> None:
    topic: dict[str, Any] = {
        "name": "access-logs",
        "id": "L6pmXb5tSmuaoLS_Xb5tSg",
        "config": {},
        "delayed": None,
        "uncompacted": [],
        "damaged": [],
        "failing_directories": [],
        "partitions": [partition(0), partition(11)],
    }
    shown = lines(topic_descriptions([topic]))
    assert "0 1 12 1,2,3 1,2,3 12345678 23456789 123.4 MB" in shown
    listed = {"name": "access-logs", "partitions": 12, "replication_factor": 3, "id": topic["id"]}
    listed["offline"] = []
    assert f"access-logs 12 3 {topic['id']}" in lines(topic_list([listed]))


def test_replicas_that_may_lead_without_being_in_sync_are_shown_where_there_are_some() -> None:
    topic: dict[str, Any] = {"name": "t", "id": "L6pmXb5tSmuaoLS_Xb5tSg", "config": {}}
    topic["delayed"] = None
    topic["uncompacted"] = topic["damaged"] = topic["failing_directories"] = []
    shown = lines(topic_descriptions([topic | {"partitions": [partition(0, isr=[1], elr=[2])]}]))
    assert "0 1 12 1,2,3 1 2 12345678 23456789 123.4 MB" in shown


def test_groups() -> None:
    offset = {
        "topic": "access-logs",
        "partition": 11,
        "committed": 12_345_678,
        "end_offset": 23_456_789,
        "lag": 11_111_111,
        "member_id": MEMBER,
    }
    member = {"member_id": MEMBER, "client_id": "qbus-consume", "host": "/192.168.100.200"}
    other = {"member_id": "a-1-x", "client_id": "shop", "host": "/10.0.0.1", "partitions": []}
    group = {
        "group": "readers",
        "type": "classic",
        "state": "Stable",
        "protocol": "range",
        "epoch": None,
        "offsets": [offset],
        "members": [
            member | {"partitions": [1], "reconciled": True},
            other | {"reconciled": True},
        ],
    }
    shown = lines(group_descriptions([group]))
    assert "access-logs 11 12345678 23456789 11111111 qbus-consume-0f8a1b2c…" in shown
    assert f"{MEMBER} /192.168.100.200 1" in shown
    assert "a-1-x (shop) /10.0.0.1 0" in shown
    listed = {"group": "readers", "state": "PreparingRebalance", "protocol_type": "consumer"}
    assert "readers PreparingRebalance consumer" in lines(group_list([listed]))


def test_agents() -> None:
    file = {
        "path": "/var/log/nginx/access.log",
        "topic": "access-logs",
        "state": "reading",
        "size": 123_400_000,
        "lag_bytes": 23_400_000,
        "lag_seconds": 1.25,
        "rate": 1_230_000.0,
        "error": None,
    }
    status = {
        "name": "web-17",
        "host": "web-17.example.net",
        "running": True,
        "totals": {
            "files": 120,
            "failed": 0,
            "lag_bytes": 123_400_000,
            "lag_seconds": 700,
            "rate": 1_230_000.0,
            "records": 1_234_567_890,
            "spool_bytes": 0,
        },
        "configuration": {
            "in_force": "/agents/web-17/config",
            "version": 3,
            "refused": None,
            "reason": None,
        },
        "error": None,
        "spools": [],
        "files": [file, file | {"error": "Permission denied"}],
        "files_left_out": 0,
    }
    shown = lines(status_table([status]))
    assert "web-17 web-17.example.net 120 0 123.4 MB 12 min 1.2 MB/s" in shown
    assert "web-17 1234567890 0 B /agents/web-17/config v3" in shown
    shown = lines(file_tables([status]))
    row = "/var/log/nginx/access.log access-logs reading 23.4 MB 1.2 s 1.2 MB/s"
    assert row in shown
    assert "/var/log/nginx/access.log: Permission denied" in shown


def test_mirrors() -> None:
    row = {
        "topic": "orders",
        "target_topic": "dc1.orders",
        "partition": 11,
        "state": "copying",
        "source_end": 123_456_789,
        "lag_records": 1_234_567,
        "lag_bytes": 123_400_000,
        "lag_seconds": 1.2,
        "error": None,
    }
    link = {"name": "dc1", "error": None, "reproduces": False, "partitions": [row]}
    shown = lines(status_tables({"links": [link], "processes": []}))
    assert "dc1 orders dc1.orders 11 copying 1234567 123.4 MB 1.2 s" in shown


def test_clusters() -> None:
    broker = {
        "id": 3,
        "up": True,
        "host": "broker-3.example.net",
        "port": 9092,
        "pid": 1_234_567,
        "leaders": 1000,
        "replicas": 3000,
    }
    status = {
        "brokers": [broker],
        "controller": 3,
        "zookeepers": None,
        "spark": None,
        "partitions": 1000,
        "under_replicated": [],
        "offline": [],
        "damaged": [],
        "failing_directories": [
            {"broker": 3, "path": "/data", "online": False, "reason": "flush: Input/output error"}
        ],
    }
    shown = lines(cluster_status(status))
    assert "3 up broker-3.example.net:9092 1234567 controller 1000 3000" in shown
    assert "Broker 3: /data is offline: flush: Input/output error" in shown


def test_users_rules_and_limits() -> None:
    credential = {"mechanism": "SCRAM-SHA-256", "iterations": 8192}
    user = {"user": "shop-frontend", "credentials": [credential]}
    assert "shop-frontend SCRAM-SHA-256 8192" in lines(user_list([user]))
    rule = {
        "principal": "User:frontend",
        "host": "10.0.100.200",
        "operation": "describe-configs",
        "permission": "allow",
        "resource_type": "cluster",
        "resource_name": "kafka-cluster",
        "pattern_type": "literal",
    }
    row = "User:frontend allow describe-configs cluster kafka-cluster 10.0.100.200"
    assert row in lines(acl_list([rule]))
    entity = {"user": "frontend", "client-id": "app"}
    limit = {"entity": entity, "limits": {"controller_mutation_rate": 1_000_000.0}}
    row = "user frontend, client app controller_mutation_rate 1,000,000"
    assert row in lines(quota_list([limit]))


def test_numbers_stay_whole_and_names_are_folded() -> None:
    shown = lines(table("name", "#count", rows=[("x" * 100, 123_456_789_012)]))
    assert any(line.endswith("123456789012") for line in shown)
    assert sum(line.count("x") for line in shown) == 100


@pytest.mark.parametrize("group", [name for name, command in COMMANDS.items() if "." in command[0]])
def test_summaries_are_whole(group: str) -> None:
    shown = CliRunner().invoke(qbus, [group, "--help"], terminal_width=80).stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert max(map(len, shown.splitlines())) <= 80


def test_names_of_settings_are_never_folded() -> None:
    entries = [
        {"name": name, "value": "9223372036854775807", "source": "static_broker",
         "read_only": True, "sensitive": False}
        for name in (*BROKER_CONFIG, *TOPIC_CONFIG)
    ]  # fmt: skip
    shown = lines(settings(entries))
    assert {line.split()[0] for line in shown} >= {*BROKER_CONFIG, *TOPIC_CONFIG}
    assert sum(line.endswith(" static, read-only") for line in shown) == len(entries)
