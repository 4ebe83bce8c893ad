"""`qbus cluster wait`: what a cluster lacks, and how the command ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qbus.cli.cluster.waiting import missing
from qbus.cli.failures import Failure
from qbus.cli.root import qbus
from qbus.cli.targets import Target

STATUS: dict[str, Any] = {
    "cluster_id": "c",
    "controller": 1,
    "brokers": [
        {"id": number, "up": True, "host": "h", "port": 1, "pid": None, "leaders": 0, "replicas": 0}
        for number in (1, 2)
    ],
    "zookeepers": None,
    "spark": None,
    "partitions": 8,
    "under_replicated": [],
    "offline": [],
    "damaged": [],
    "failing_directories": [],
}


def places(count: int) -> list[dict[str, Any]]:
    return [{"topic": "t", "partition": number} for number in range(count)]


DOWN = {"brokers": [STATUS["brokers"][0], {**STATUS["brokers"][1], "up": False}]}


@pytest.mark.parametrize(
    ("changes", "brokers", "reasons"),
    [
        ({}, None, []),
        ({}, 2, []),
        ({}, 3, ["2 of 3 brokers up"]),
        (DOWN, None, ["1 broker down (2)"]),
        ({"controller": None}, None, ["no controller"]),
        ({"offline": places(1)}, None, ["1 partition without a leader (t-0)"]),
        (
            {"under_replicated": places(7)},
            None,
            ["7 partitions under-replicated (t-0, t-1, t-2, t-3, t-4 and 2 more)"],
        ),
        ({"partitions": None}, None, ["an answer of a broker"]),
    ],
)
def test_what_is_missing(changes: dict[str, Any], brokers: int | None, reasons: list[str]) -> None:
    assert missing(STATUS | changes, brokers) == reasons


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any] | Exception]:
    """What the cluster answers, in turn; the last answer again and again."""
    answers: list[dict[str, Any] | Exception] = []

    async def gather(_: Path | None, __: str | None, ___: Target) -> dict[str, Any]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("qbus.cli.cluster.status.gather", gather)
    monkeypatch.setattr("qbus.cli.cluster.waiting._INTERVAL_S", 0.001)
    return answers


def test_it_ends_once_nothing_is_missing(statuses: list[dict[str, Any] | Exception]) -> None:
    statuses += [Failure("cannot reach a broker"), STATUS | DOWN, STATUS | DOWN, STATUS]
    result = CliRunner().invoke(qbus, ["cluster", "wait", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == STATUS
    assert result.stderr.splitlines() == [
        "waiting for the cluster: a broker: cannot reach a broker",
        "waiting for the cluster: 1 broker down (2)",
    ]


def test_it_gives_up_and_says_what_is_missing(statuses: list[dict[str, Any] | Exception]) -> None:
    statuses.append(STATUS | {"under_replicated": places(1)})
    result = CliRunner().invoke(qbus, ["cluster", "wait", "--timeout", "50ms"])
    assert (result.exit_code, result.stdout) == (3, "")
    last = result.stderr.splitlines()[-1]
    assert last == "qbus: not complete after 0.1 s: 1 partition under-replicated (t-0)"


def test_a_wrong_command_line_ends_it_at_once(tmp_path: Path) -> None:
    words = ["cluster", "wait", "--data-dir", str(tmp_path), "--zookeeper", "z:1"]
    result = CliRunner().invoke(qbus, words)
    assert result.exit_code == 2
