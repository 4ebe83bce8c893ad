"""The documents of `--json`, and the tables that people get of them."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console, RenderableType

from qbus.cli.agent import tables as agent_tables
from qbus.cli.documents import (
    group_description,
    group_summary,
    setting,
    topic_description,
    topic_id,
    topic_summary,
)
from qbus.cli.group import tables as group_tables
from qbus.cli.output import Remark, emit
from qbus.cli.reassign.tables import moves
from qbus.cli.settings import settings
from qbus.cli.topic import tables as topic_tables
from qbus.cli.transaction.tables import hanging_list, transaction_list
from qbus.clients.admin.types import DelayedRecords
from qbus.clients.types import (
    ConfigEntry,
    ConfigSource,
    GroupDescription,
    GroupListing,
    GroupOffset,
    MemberDescription,
    Node,
    PartitionDescription,
    TopicDescription,
    TopicPartition,
)

TOPIC = TopicDescription(
    "logs",
    UUID("00112233-4455-6677-8899-aabbccddeeff"),
    False,
    (
        PartitionDescription(0, 1, 3, (1, 2), (1,), (2,)),
        PartitionDescription(1, -1, 4, (1, 2), (), (1, 2)),
    ),
)
SET = ConfigEntry("retention.ms", "1000", ConfigSource.TOPIC, False, False, "Time.")
DEFAULT = ConfigEntry("segment.ms", "5", ConfigSource.DEFAULT, False, False, None)
SECRET = ConfigEntry("password", None, ConfigSource.STATIC_BROKER, True, True, None)
GROUP = GroupDescription(
    "readers",
    "Stable",
    "consumer",
    "range",
    Node(1, "host", 9092),
    (MemberDescription("m-1", None, "client", "/10.0.0.1", (TopicPartition("logs", 1),)),),
)


def shown(renderable: RenderableType) -> list[list[str]]:
    stream = io.StringIO()
    Console(file=stream, width=200).print(renderable)
    return [line.split() for line in stream.getvalue().splitlines()]


def test_an_id_is_as_kafka_s_tools_print_it() -> None:
    assert topic_id(TOPIC.topic_id) == "ABEiM0RVZneImaq7zN3u_w"


def test_a_topic_in_a_list() -> None:
    assert topic_summary(TOPIC) == {
        "name": "logs",
        "id": "ABEiM0RVZneImaq7zN3u_w",
        "internal": False,
        "partitions": 2,
        "replication_factor": 2,
        "offline": [1],
    }


def test_unknown_fields_of_a_topic_are_null() -> None:
    document = topic_description(TOPIC, [SET, DEFAULT], {0: (5, 9)}, {0: 100}, {0: (3,)})
    assert document["config"] == {"retention.ms": "1000"}
    first, second = document["partitions"]
    assert (first["leader"], first["start_offset"], first["end_offset"], first["size"]) == (
        1, 5, 9, 100,
    )  # fmt: skip
    assert second == {
        "partition": 1,
        "leader": None,
        "leader_epoch": 4,
        "replicas": [1, 2],
        "isr": [],
        "elr": None,
        "offline_replicas": [1, 2],
        "start_offset": None,
        "end_offset": None,
        "size": None,
        "unread": None,
    }


def test_the_tables_of_topics() -> None:
    document = topic_description(TOPIC, [SET], {0: (5, 9)}, {0: 1500}, {0: (3,)})
    lines = shown(topic_tables.topic_descriptions([document]))
    assert lines[0][:5] == ["logs", "2", "partitions,", "4", "records"]
    assert lines[0][5:13] == ["without", "1", "partition", "that", "cannot", "be", "read,", "1.5"]
    assert lines[1] == ["retention.ms=1000"]
    assert ["0", "1", "3", "1,2", "1", "3", "5", "9", "1.5", "KB"] in lines
    assert ["1", "-", "4", "1,2", "-", "-", "-", "-", "-"] in lines
    assert shown(topic_tables.topic_list([topic_summary(TOPIC)]))[-1][:4] == ["logs", "2", "1", "2"]
    healthy = replace(TOPIC, partitions=TOPIC.partitions[:1])
    assert shown(topic_tables.topic_list([topic_summary(healthy)]))[-1][:3] == ["logs", "1", "2"]


def test_what_is_held_back_in_partitions_that_cannot_be_read_is_unknown() -> None:
    known = {0: DelayedRecords(2, 2_000_000_000_000, ())}
    document = topic_description(TOPIC, [], {}, {}, {}, delayed=known)
    assert document["delayed"] == {"pending": 2, "next_due": 2_000_000_000_000, "unread": 1}
    said = topic_tables.held_back(**document["delayed"])
    assert said.startswith("2 records held back, without 1 partition that cannot be read; the next")
    nothing = topic_tables.held_back(0, None, unread=2)
    assert nothing == (
        "Nothing is known to be held back, without 2 partitions that cannot be read."
    )
    assert topic_tables.held_back(0, None) == "Nothing is held back."


def test_a_list_without_entries_leaves_stdout_empty(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that counts lines takes no sentence for a finding."""
    emit([], topic_tables.topic_descriptions, as_json=False)
    assert capsys.readouterr() == ("", "No such partitions.\n")


@pytest.mark.parametrize(
    "present",
    [
        agent_tables.status_table,
        agent_tables.file_tables,
        group_tables.group_list,
        hanging_list,
        moves,
        topic_tables.topic_descriptions,
        topic_tables.topic_list,
        transaction_list,
    ],
)
def test_nothing_found_is_a_remark(present: Callable[[list[dict[str, Any]]], Any]) -> None:
    assert isinstance(present([]), Remark)


@pytest.mark.parametrize(
    ("renderable", "words"),
    [
        (topic_tables.topic_list([]), "No topics yet"),
        (topic_tables.topic_descriptions([]), "No such partitions"),
        (group_tables.group_list([]), "No groups yet"),
        (settings([]), "Every setting has its default"),
    ],
)
def test_empty_lists_have_a_hint(renderable: Any, words: str) -> None:
    assert renderable.startswith(words)


def test_settings() -> None:
    assert setting(SET) == {
        "name": "retention.ms",
        "value": "1000",
        "source": "topic",
        "default": False,
        "read_only": False,
        "sensitive": False,
        "documentation": "Time.",
    }
    lines = shown(settings([setting(SET), setting(DEFAULT), setting(SECRET)]))
    assert ["retention.ms", "1000", "topic"] in lines
    assert ["password", "(hidden)", "static,", "read-only"] in lines


def test_a_group_in_a_list() -> None:
    listing = group_summary(GroupListing("readers", "consumer", "Empty"))
    assert listing == {
        "group": "readers",
        "state": "Empty",
        "protocol_type": "consumer",
        "type": None,
    }
    assert shown(group_tables.group_list([listing]))[-1] == ["readers", "Empty", "consumer"]


def test_a_group_whole_has_every_partition_committed_or_owned() -> None:
    offsets = [GroupOffset("logs", 0, 7, "note", 5, 9)]
    document = group_description(GROUP, offsets)
    assert document["coordinator"] == 1
    assert document["members"][0]["partitions"] == [{"topic": "logs", "partition": 1}]
    assert document["offsets"] == [
        {
            "topic": "logs",
            "partition": 0,
            "member_id": None,
            "committed": 7,
            "metadata": "note",
            "start_offset": 5,
            "end_offset": 9,
            "lag": 2,
            "unread": None,
        },
        {
            "topic": "logs",
            "partition": 1,
            "member_id": "m-1",
            "committed": None,
            "metadata": None,
            "start_offset": None,
            "end_offset": None,
            "lag": None,
            "unread": None,
        },
    ]


def test_the_tables_of_groups() -> None:
    document = group_description(GROUP, [GroupOffset("logs", 0, 7, "", 5, 9)])
    lines = shown(group_tables.group_descriptions([document]))
    headline = "readers Stable, 1 member, lag 2 without 1 partition that cannot be read"
    assert lines[0] == [*headline.split()[:-1], "read,", "assignor", "range"]
    assert ["logs", "0", "7", "9", "2", "-"] in lines
    assert ["logs", "1", "-", "-", "-", "m-1"] in lines
    assert ["m-1", "(client)", "/10.0.0.1", "1"] in lines


@pytest.mark.parametrize(("applied", "verb"), [(True, "continues"), (False, "would")])
def test_the_table_of_a_reset(applied: bool, verb: str) -> None:
    change = {"topic": "logs", "partition": 0, "from": None, "to": 3}
    document = {"group": "readers", "applied": applied, "changes": [change]}
    lines = shown(group_tables.reset(document))
    assert lines[0][2] == verb
    assert lines[-1] == ["logs", "0", "-", "3"]


def test_names_are_shown_as_they_are() -> None:
    listing = {"group": "[red]readers[/]", "state": "Empty", "protocol_type": ""}
    assert shown(group_tables.group_list([listing]))[-1] == ["[red]readers[/]", "Empty", "-"]
