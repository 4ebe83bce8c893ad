"""What a shell offers while a command line is typed."""

import pytest
from click.shell_completion import ShellComplete

from qbus.cli import root

from .conftest import Qbus

pytestmark = pytest.mark.integration


def offered(qbus: Qbus, *words: str) -> list[str]:
    """What would complete the last of ``words``."""
    *before, incomplete = words
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBUS_BOOTSTRAP", qbus.environment["QBUS_BOOTSTRAP"])
        completion = ShellComplete(root.qbus, {}, "qbus", "_QBUS_COMPLETE")
        return [item.value for item in completion.get_completions(before, incomplete)]


def test_topics(qbus: Qbus) -> None:
    qbus("topic", "create", "typed-a")
    qbus("topic", "create", "typed-b")
    for command in ("consume", "produce", "topic describe", "topic delete", "topic alter"):
        assert offered(qbus, *command.split(), "typed") == ["typed-a", "typed-b"], command
    assert offered(qbus, "consume", "typed-a", "typed") == ["typed-a", "typed-b"]
    assert offered(qbus, "group", "reset-offsets", "g", "--topic", "typed-b") == ["typed-b"]


def test_groups(qbus: Qbus, topic: str, group: str) -> None:
    qbus("produce", topic, stdin=b"1\n")
    qbus("consume", topic, "--group", group, "--exit-at-end")
    for command in ("group describe", "group delete", "group reset-offsets", "consume --group"):
        assert offered(qbus, *command.split(), group) == [group], command


def test_keys_of_settings(qbus: Qbus) -> None:
    assert offered(qbus, "topic", "create", "--config", "retention.") == [
        "retention.bytes=",
        "retention.ms=",
    ]
    assert offered(qbus, "topic", "config", "t", "--unset", "retention.m") == ["retention.ms"]
    assert offered(qbus, "broker-config", "--set", "num.part") == ["num.partitions="]
    assert offered(qbus, "broker", "-o", "num.part") == ["num.partitions="]


def test_another_cluster_is_asked_where_one_is_named(qbus: Qbus) -> None:
    qbus("topic", "create", "elsewhere")
    bootstrap = qbus.environment["QBUS_BOOTSTRAP"]
    nowhere = Qbus("127.0.0.1:1")
    assert offered(nowhere, "consume", "--bootstrap", bootstrap, "elsew") == ["elsewhere"]
    assert offered(nowhere, "consume", "elsew") == [], "nothing that would spoil the line"
